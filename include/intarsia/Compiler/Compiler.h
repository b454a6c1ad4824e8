//===- Compiler.h - The compiler as a library -*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// From an imported program to a plan and native code.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_COMPILER_COMPILER_H
#define INTARSIA_COMPILER_COMPILER_H

#include "intarsia/Import/ImportGraph.h"
#include "intarsia/Import/Schema.h"
#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Cuda.h"

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace intarsia {

class MemoryKernels; // Target/Kernels.h

/// "0.1.0"
const char *version();

/// The stages of which the IR can be asked for, in order.
enum class Stage {
  Imported,
  Lowered,
  Fused,
  Plan,
  Kernels,
  LLVM,
  Assembly,
  PTX
};
std::string_view stageName(Stage stage); // "imported", ..., "asm", "ptx"

struct CompileOptions {
  /// Off: every node is a call through the dispatcher (the oracle).
  bool fuse = true;
  /// "eager" rounds low precision where eager does; "fused" keeps f32 between
  /// implicit casts.
  std::string numerics = "eager";
  /// Whose library computes products of float32 matrices on the CPU: "auto"
  /// (the faster one of the processor that runs the program), "eager" or
  /// "onednn". They differ in the last bits.
  std::string products = "auto";
  /// Take what depends on weights alone out of the program: `frozen` in the
  /// result computes it.
  bool freeze = false;
  /// A result whose strides differ from its fake's is an error, not a warning.
  bool strict = false;
  /// What kernels are made for: "cpu", or "cuda". Calls on other devices stay
  /// calls.
  std::string target = "cpu";
  /// GPUs to make code for, with "cuda": "sm_80", "sm_90a". Where ptxas is
  /// found each gets a cubin, and the latest PTX; else each gets PTX.
  std::vector<std::string> archs = {"sm_80"};
  /// Look for ptxas.
  bool cubins = true;
  /// The code of other compilers' kernels that the program describes without
  /// it, as an artifact does.
  std::vector<runtime::CudaImage> foreignImages = {};
  /// A test aid, "" or "cuda": kernels for the CPU have the code of CUDA's,
  /// whose threads are emulated (`gpu-to-simt`).
  std::string emulate;
  /// LLVM CPU name and features; "native" asks the host.
  std::string cpu = "native";
  std::string features;
  /// When not empty, the IR after each stage is written here as
  /// imported.mlir, lowered.mlir, fused.mlir, plan.txt, kernels.mlir, and
  /// llvm.ll and, for CUDA, kernels.ptx.
  std::string dumpDir;
  /// Called once with the text of `observedStage`, when both are set. Kernels,
  /// LLVM and Assembly do not happen when there are no kernels.
  std::optional<Stage> observedStage;
  std::function<void(const std::string &text)> observer;
  /// Called with the name of each stage when it begins; by compileOffline also
  /// with "" at the end, before anything is printed.
  std::function<void(const std::string &stage)> progress;
  /// Where the fake implementation of an operator stands, "file.py:10", for
  /// messages; may return "", and may be empty: then only C++ ones are known.
  std::function<std::string(const std::string &op)> fakeLocation;
};

struct CompiledProgram {
  plan::Plan plan;
  /// Computes the values of those weights of `plan` whose records begin with
  /// plan::frozenRecords, in order; nothing when there are none.
  std::optional<plan::Plan> frozen;
  /// The ELF shared object with all kernels, and where it lies in the cache
  /// (empty when there are no kernels).
  std::string sharedObject;
  std::string sharedObjectPath;
  /// Where no folder is writable: the kernels in this process's memory.
  std::shared_ptr<MemoryKernels> memoryKernels;
  /// The kernels for CUDA, by GPU.
  std::vector<runtime::CudaImage> cudaImages;
  /// LLVM's name of the processor compiled for, and the features it must have.
  std::string cpu;
  std::vector<std::string> cpuFeatures;
  /// Stage name -> seconds, in order.
  std::vector<std::pair<std::string, double>> timings;
  /// Call and Launch steps.
  int64_t callCount = 0, kernelCount = 0;
};

/// Compiles. Throws intarsia::CompileError (what() names the operator, the
/// user's source line and the remedy). Thread-safe; may be called with no GIL.
CompiledProgram compile(const importer::Program &program,
                        const CompileOptions &options,
                        const importer::SchemaProvider &schemas);

/// Asks PyTorch's dispatcher through the shim (runtime::torchApi, which loads
/// libtorch into the process when it is not there yet). Throws runtime::Error
/// when that fails.
importer::SchemaProvider torchSchemas();

class CompileError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// `dumpDir` cannot be written.
class DumpError : public CompileError {
public:
  using CompileError::CompileError;
};

/// The address of a kernel that was linked into memory; null if there is none
/// of that name.
void *lookupKernel(const MemoryKernels &kernels, const std::string &name);

} // namespace intarsia

#endif // INTARSIA_COMPILER_COMPILER_H
