//===- PythonProcess.cpp - What only Python can do ------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements PythonProcess.h.
//
//===----------------------------------------------------------------------===//

#include "PythonProcess.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

void intarsia::runPython(const std::string &module,
                         const std::vector<std::string> &arguments,
                         const std::string &purpose) {
  const char *wanted = std::getenv("INTARSIA_PYTHON");
  llvm::ErrorOr<std::string> python =
      llvm::sys::findProgramByName(wanted && *wanted ? wanted : "python3");
  const char *remedy = "; set INTARSIA_PYTHON to an interpreter that has the "
                       "intarsia package and the modules that the program "
                       "needs";
  if (!python)
    throw PythonError(std::string("there is no Python interpreter") + remedy,
                      /*isMissing=*/true);
  llvm::SmallString<128> errors;
  llvm::scope_exit remove([&] {
    if (!errors.empty())
      llvm::sys::fs::remove(errors);
  });
  if (llvm::sys::fs::createTemporaryFile("intarsia-python", "txt", errors))
    throw PythonError("a temporary file cannot be made");
  std::vector<llvm::StringRef> words = {*python, "-m", module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string failure;
  int status = llvm::sys::ExecuteAndWait(
      *python, words, std::nullopt,
      {llvm::StringRef(""), llvm::StringRef(errors), llvm::StringRef(errors)},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &failure);
  if (status == 0)
    return;
  if (!failure.empty())
    throw PythonError(*python + " cannot be started (" + failure + ")" + remedy,
                      /*isMissing=*/true);
  if (auto buffer = llvm::MemoryBuffer::getFile(errors))
    failure = (*buffer)->getBuffer().rtrim().str();
  if (llvm::StringRef(failure).contains("No module named 'intarsia'"))
    throw PythonError(*python + " has no module intarsia" + remedy);
  throw PythonError(*python + " " + purpose + ": " + failure);
}
