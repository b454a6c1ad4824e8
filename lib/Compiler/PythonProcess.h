//===- PythonProcess.h - What only Python can do ----------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The compiler runs without Python; operators that exist in Python alone, and
// another dtype of a program, are asked of a process of its own.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_COMPILER_PYTHONPROCESS_H
#define INTARSIA_LIB_COMPILER_PYTHONPROCESS_H

#include <stdexcept>
#include <string>
#include <vector>

namespace intarsia {

/// There is no interpreter, or it failed; the message says with what.
class PythonError : public std::runtime_error {
public:
  explicit PythonError(const std::string &message, bool isMissing = false)
      : std::runtime_error(message), isMissing(isMissing) {}
  /// There is no interpreter that could fail.
  bool isMissing;
};

/// Runs `python -m module arguments...` with $INTARSIA_PYTHON, or python3.
/// Throws PythonError: the interpreter, `purpose` ("cannot import the modules")
/// and what it printed.
void runPython(const std::string &module,
               const std::vector<std::string> &arguments,
               const std::string &purpose);

} // namespace intarsia

#endif // INTARSIA_LIB_COMPILER_PYTHONPROCESS_H
