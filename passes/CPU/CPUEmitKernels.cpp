//===- CPUEmitKernels.cpp - One function for each kernel ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cpu-emit-kernels`: every scheduled kernel of the module becomes a
// function of the nested module `@kernels`; equal kernels share one.
// The kernel operations stay and learn the function's name.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/CPUShell.h"
#include "passes/Kernel/EmitKernels.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CPUEMITKERNELS
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

class CPUEmitKernels final
    : public ::intarsia::impl::CPUEmitKernelsBase<CPUEmitKernels> {
public:
  using CPUEmitKernelsBase::CPUEmitKernelsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<graph::KernelOp> kernels;
    module.walk([&](graph::KernelOp kernelOp) {
      if (deviceOf(kernelOp) == "cpu")
        kernels.push_back(kernelOp);
    });
    if (kernels.empty())
      return;
    if (Operation *code = module.lookupSymbol("kernels")) {
      code->emitError("is there already: kernels are emitted once");
      return signalPassFailure();
    }
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto code = ModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToEnd(code.getBody());
    CPUShell shell;
    FailureOr<EmittedKernels> counts = emitKernels(kernels, builder, shell);
    if (failed(counts))
      return signalPassFailure();
    numKernels += counts->emitted;
    numShared += counts->shared;
  }
};

} // namespace
