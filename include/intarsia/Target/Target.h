//===- Target.h - Machine code for a module of kernels ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The last steps of the path for the CPU: a module of the LLVM dialect becomes
// ELF objects, and objects become one shared object. Nothing here knows what a
// kernel computes. Kernels.h puts the steps together and adds the cache.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TARGET_TARGET_H
#define INTARSIA_TARGET_TARGET_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace intarsia {

/// What went wrong on the way to machine code; what() says what to do.
class TargetError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The machine to compile for, as a user writes it.
struct TargetOptions {
  /// An LLVM CPU name ("x86-64-v3", "znver4"); "native" is this machine.
  std::string cpu = "native";
  /// LLVM features added to or taken from those of the CPU: "+fma,-avx512f".
  std::string features;
};

/// The machine to compile for, with nothing left open.
struct ResolvedTarget {
  std::string triple;
  /// LLVM's CPU and feature strings: what instructions may be used.
  std::string cpu;
  std::string features;
  /// The CPU whose instruction costs are assumed.
  std::string tuneCpu;
  /// The widest vector to use, in bits.
  unsigned vectorBits = 128;
  /// What a machine must have in order to run the code, by LLVM's feature
  /// names, sorted. An artifact records it.
  std::vector<std::string> requiredFeatures;

  bool has(llvm::StringRef feature) const;
};

/// Throws TargetError for an unknown CPU or feature.
ResolvedTarget resolveTarget(const TargetOptions &options);

/// Compiles `module`, in which only the LLVM dialect is left, to one ELF object
/// of position-independent code. Each function gets a frame pointer (for perf)
/// and no unwind table (kernels never throw). Throws TargetError if the object
/// would need a symbol from elsewhere: a kernel calls nobody. Copies and fills
/// of memory are expanded into loops for the same reason.
std::string emitObject(mlir::ModuleOp module, const TargetOptions &options);

/// The same in several objects, generated in parallel. Which function goes
/// where depends on the module alone, so equal input gives equal bytes.
std::vector<std::string> emitObjects(mlir::ModuleOp module,
                                     const ResolvedTarget &target);

enum class TextForm { LLVMIR, OptimizedLLVMIR, Assembly };

/// What emitObject would do, as text to read.
std::string emitText(mlir::ModuleOp module, const TargetOptions &options,
                     TextForm form);

/// Links objects into one ELF shared object with lld, in this process. Equal
/// objects give equal bytes. Any thread may call it; one link runs at a time,
/// and a fork waits for it. Throws TargetError with lld's words.
std::string linkSharedObject(llvm::ArrayRef<std::string> objects);

} // namespace intarsia

#endif // INTARSIA_TARGET_TARGET_H
