//===- Options.h - The command line of intarsia-compile ---------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The options and their help text.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_COMPILE_OPTIONS_H
#define INTARSIA_TOOLS_INTARSIA_COMPILE_OPTIONS_H

#include "intarsia/Compiler/OfflineCompiler.h"

#include <optional>

namespace intarsia::tool {

/// Nullopt, after a message, when the command line is wrong.
std::optional<OfflineOptions> parseOptions(int argc, char **argv);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_COMPILE_OPTIONS_H
