//===- Options.h - The command line of intarsia-run ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The options, their help text and the exit codes. No LLVM: the tool ships with
// the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_OPTIONS_H
#define INTARSIA_TOOLS_INTARSIA_RUN_OPTIONS_H

#include <stdexcept>
#include <string>
#include <vector>

namespace intarsia::tool {

enum ExitCode : int {
  Success = 0,
  RunFailed = 1,
  Usage = 2,
  InputError = 3,
  LibraryError = 4,
  OutputError = 5,
};

class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string model;
  std::vector<std::string> operatorLibraries;
  std::vector<std::string> inputs;
  std::string outputDirectory; // "": outputs are not written
  std::string outputFile;      // a .safetensors file; "": none
  bool random = false, verify = false;
  bool checkAgainstEager = false;
  std::string target;
  int benchmark = 0;
  int threads = 0; // 0: PyTorch's own choice
  bool profile = false;
  bool printPlan = false;
  bool help = false;
};

extern const char *const helpText;

/// Throws UsageError.
Options parseOptions(int argc, char **argv);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_OPTIONS_H
