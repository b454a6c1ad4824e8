//===- CPUShell.h - A kernel as a CPU function ------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The function around a kernel's loops that KernelABI.h describes.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CPU_CPUSHELL_H
#define INTARSIA_PASSES_CPU_CPUSHELL_H

#include "passes/Kernel/KernelEmitter.h"

namespace intarsia {

/// Makes a `func.func` with the signature of IntarsiaKernel.
class CPUShell final : public kernel::KernelShell {
public:
  int64_t scratchBytes(graph::KernelOp kernel) const override;
  kernel::KernelEntry open(mlir::OpBuilder &builder, graph::KernelOp kernel,
                           llvm::StringRef name) override;
  void close(mlir::OpBuilder &builder, mlir::Location loc,
             const kernel::KernelEntry &entry) override;
};

/// What positions come up in the loops of `plan`. Their code is thrown away.
mlir::FailureOr<kernel::Observations> observeTrial(graph::KernelOp kernel,
                                                   kernel::Schedule plan);

} // namespace intarsia

#endif // INTARSIA_PASSES_CPU_CPUSHELL_H
