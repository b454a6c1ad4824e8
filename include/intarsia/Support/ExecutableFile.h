//===- ExecutableFile.h - May code be mapped from a file? -------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiled kernels are files: the compiler and the runtime must find a folder
// from which they can be loaded.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_SUPPORT_EXECUTABLEFILE_H
#define INTARSIA_SUPPORT_EXECUTABLEFILE_H

#include <string>

namespace intarsia {

/// Whether code in the file can be mapped: not on a noexec mount.
bool isExecutable(const std::string &path);

} // namespace intarsia

#endif // INTARSIA_SUPPORT_EXECUTABLEFILE_H
