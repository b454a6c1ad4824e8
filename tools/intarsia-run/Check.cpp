//===- Check.cpp - Comparison with eager PyTorch --------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Check.h with `python -m intarsia._check`; tensors go there in
// files of a temporary folder.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "TorchFile.h"

#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

using namespace intarsia;
using namespace intarsia::tool;
namespace fs = std::filesystem;

bool tool::checkAgainstEager(
    const Options &options,
    const std::map<std::string, runtime::Tensor> &inputs,
    const std::vector<runtime::Tensor> &outputs) {
  std::string name = (fs::temp_directory_path() / "intarsia-check-XXXXXX");
  if (!mkdtemp(name.data()))
    throw std::runtime_error("a temporary folder cannot be made in " +
                             fs::temp_directory_path().string());
  struct Remove {
    fs::path folder;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } folder{name};
  writeTorchFile(folder.folder / "inputs",
                 std::vector<std::pair<std::string, runtime::Tensor>>(
                     inputs.begin(), inputs.end()));
  writeTorchFile(folder.folder / "outputs", outputs);

  // Python's own errors end with 1, a shell's missing command with 127.
  constexpr int differs = 10, raised = 11, notLoaded = 12;
  const char *python = std::getenv("INTARSIA_PYTHON");
  std::vector<std::string> words = {python && *python ? python : "python3",
                                    "-m",
                                    "intarsia._check",
                                    options.model,
                                    folder.folder / "inputs",
                                    folder.folder / "outputs"};
  words.insert(words.end(), options.operatorLibraries.begin(),
               options.operatorLibraries.end());
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0)
    throw std::runtime_error("--check-against eager: " + words[0] +
                             " cannot be started");
  // What was wrong is on standard error already.
  if (WIFEXITED(status) && WEXITSTATUS(status) == raised)
    throw std::runtime_error(
        "--check-against eager: the program raises in eager mode");
  if (WIFEXITED(status) && WEXITSTATUS(status) == notLoaded)
    throw runtime::Error(runtime::ErrorKind::Load,
                         "--check-against eager: PyTorch cannot load the "
                         "program in '" +
                             options.model + "'");
  if (!WIFEXITED(status) ||
      (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != differs))
    throw runtime::Error(
        runtime::ErrorKind::Load,
        "--check-against eager: " + words[0] +
            " could not run the program; set INTARSIA_PYTHON to an interpreter "
            "that has the intarsia package and the modules that the program "
            "needs");
  return WEXITSTATUS(status) == 0;
}
