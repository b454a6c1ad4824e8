//===- OfflineCompiler.h - From a .pt2 file to an artifact --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What intarsia-compile does, for programs that want to do it themselves.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_COMPILER_OFFLINECOMPILER_H
#define INTARSIA_COMPILER_OFFLINECOMPILER_H

#include "intarsia/Compiler/Compiler.h"

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace intarsia {

struct OfflineOptions {
  /// The archive that torch.export.save wrote.
  std::string input;
  /// The artifact; not written when empty (`emit` alone).
  std::string output;
  /// Shared libraries that register operators, loaded in this order.
  std::vector<std::string> operatorLibraries;
  /// Put them into the artifact, which loads them where an operator is missing.
  bool bundleLibraries = false;
  /// Python modules that register operators: a Python process describes them.
  std::vector<std::string> pythonModules;
  /// What operators return that return a number alone and whose fakes only
  /// Python can ask: for each, a JSON list of what each call in the main graph
  /// returns, "": not asked. A process that imports `pythonModules` tells, too.
  std::string promisedNumbers;
  /// Write a sidecar: no record of the program's, which stays beside it under
  /// its name.
  bool codeOnly = false;
  /// Processors to compile for, by LLVM's names; the runtime takes the best
  /// that the machine is. Empty: compile.cpu alone.
  std::vector<std::string> cpus;
  /// GPUs to compile for with the target "cuda". Empty: compile.archs.
  std::vector<std::string> archs;
  /// Move the program from one device to another first: "cpu=cuda:0"; "": leave
  /// it.
  std::string retarget;
  CompileOptions compile;
  /// Print this stage to `out`. PTX is written to `output`, if that is given,
  /// instead of an artifact ("-": to standard output).
  std::optional<Stage> emit;
  bool printTiming = false;
  /// Convert the program's floating-point tensors first: "float32", "bfloat16",
  /// "float16"; "": leave them. A Python process does it.
  std::string dtype;
  /// Allow `output` to be the file `input`.
  bool force = false;
};

/// Exit statuses, as `intarsia-compile --help` lists them.
enum class OfflineStatus : int {
  Success = 0,
  /// The program cannot be compiled, an operator is not registered.
  CompileError = 1,
  Usage = 2,
  /// The input cannot be read, or is no archive of an exported program.
  InputError = 3,
  /// PyTorch or an operator library cannot be loaded.
  LibraryError = 4,
  /// The output cannot be written; nothing was left there.
  OutputError = 5,
};

/// Compiles one file. Errors are written to `errors`, one message.
/// The artifact is the input's archive, every record as it was, with
/// data/intarsia/ added; it appears under its name only when it is complete.
OfflineStatus compileOffline(const OfflineOptions &options, std::ostream &out,
                             std::ostream &errors);

} // namespace intarsia

#endif // INTARSIA_COMPILER_OFFLINECOMPILER_H
