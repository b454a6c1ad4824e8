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

#include "llvm/Support/Process.h"

#include <csignal>
#include <iostream>

/// One line on a terminal that says what is being done, until it is replaced.
static void showStage(const std::string &stage) {
  std::cerr << "\r\033[K" << (stage.empty() ? "" : "intarsia-compile: " + stage)
            << std::flush;
}

int main(int argc, char **argv) {
  // A file that grows too large is an error of the write, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  std::optional<intarsia::OfflineOptions> options =
      intarsia::tool::parseOptions(argc, argv);
  if (!options)
    return int(intarsia::OfflineStatus::Usage);
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options->compile.progress = showStage;
  return int(intarsia::compileOffline(*options, std::cout, std::cerr));
}
