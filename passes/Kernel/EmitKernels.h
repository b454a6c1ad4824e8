//===- EmitKernels.h - One function for each kernel -------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the passes that emit code have in common: names, sharing, and what the
// kernel operations learn.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_EMITKERNELS_H
#define INTARSIA_PASSES_KERNEL_EMITKERNELS_H

#include "passes/Kernel/KernelEmitter.h"

namespace intarsia::kernel {

struct EmittedKernels {
  int64_t emitted = 0;
  /// Kernels equal to an earlier one.
  int64_t shared = 0;
};

/// The type of the device that a kernel's tensors are on: "cpu", "cuda".
llvm::StringRef deviceOf(graph::KernelOp kernelOp);

/// Whether it was emitted before, for another device.
bool hasCode(graph::KernelOp kernelOp);

/// Emits a function of `shell` at the builder's insertion point for each of the
/// scheduled kernels, one for all that are equal. The operations stay; their
/// `decisions` learn `symbol`, `scratch` (bytes) and `checks` (texts of the
/// run-time checks, in the order of their numbers from 1).
mlir::FailureOr<EmittedKernels>
emitKernels(llvm::ArrayRef<graph::KernelOp> kernels, mlir::OpBuilder &builder,
            KernelShell &shell);

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_EMITKERNELS_H
