//===- Error.h - What the runtime throws --------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The one exception type of the runtime. Its kind says who has to act: the
// author of an operator (Contract, Operator), the caller (Guard) or whoever
// deploys the program (Load). The message names the operator or the argument,
// the user's source line and the remedy.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_ERROR_H
#define INTARSIA_RUNTIME_ERROR_H

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

namespace intarsia::runtime {

enum class ErrorKind : int32_t {
  /// An operator did not return what its fake implementation promised.
  Contract,
  /// An input is not what the program was compiled for, or an assertion of the
  /// traced program does not hold.
  Guard,
  /// An operator's kernel raised: `cause` is its exception.
  Operator,
  /// An index that data decided is out of range.
  Index,
  /// An artifact, operator or library cannot be loaded.
  Load,
  /// A plan that the runtime cannot execute: a fault of the compiler.
  Internal,
};

class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, const std::string &message)
      : std::runtime_error(message), kind(kind) {}

  ErrorKind kind;
  /// "mylib::op.overload"; "" when no operator is concerned.
  std::string op;
  /// The user's source line; "" when unknown.
  std::string location;
  /// The original exception of a kernel (c10::Error, python_error, ...), for
  /// whoever can rethrow or translate it; null otherwise. Destroying it may
  /// take the GIL when it holds a Python exception.
  std::exception_ptr cause;
};

/// Receives warnings (one line, no newline at the end). May be called from any
/// thread, without the GIL. The default prints "intarsia: warning: ..." to
/// stderr. A handler may throw: the exception leaves `Program::run`.
using WarningHandler = void (*)(const char *message);
/// Returns the previous handler. Thread-safe; nullptr restores the default.
WarningHandler setWarningHandler(WarningHandler handler);
void warn(const std::string &message);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_ERROR_H
