//===- intarsia-compile.cpp - Compile an exported program -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The offline compiler as a program; what it does is in
// lib/Compiler/OfflineCompiler.cpp.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include <iostream>

int main(int argc, char **argv) {
  std::optional<intarsia::OfflineOptions> options =
      intarsia::tool::parseOptions(argc, argv);
  if (!options)
    return int(intarsia::OfflineStatus::Usage);
  return int(intarsia::compileOffline(*options, std::cout, std::cerr));
}
