//===- CPUToLLVM.cpp - Kernels in the LLVM dialect ------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cpu-to-llvm`, the last pass on kernels.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/ToLLVM.h"
#include "passes/Passes.h"

#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace intarsia;

namespace intarsia {
#define GEN_PASS_DEF_CPUTOLLVM
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

class CPUToLLVM final : public ::intarsia::impl::CPUToLLVMBase<CPUToLLVM> {
public:
  using CPUToLLVMBase::CPUToLLVMBase;

  void runOnOperation() override {
    auto populate = [](LLVMTypeConverter &converter,
                       RewritePatternSet &patterns, ConversionTarget &target) {
      populateFuncToLLVMConversionPatterns(converter, patterns);
      populateVectorToLLVMConversionPatterns(converter, patterns);
      target.addLegalOp<ModuleOp>();
    };
    if (failed(kernel::convertLoopsToBranches(getOperation())) ||
        failed(kernel::convertToLLVM(getOperation(), populate)))
      signalPassFailure();
  }
};

} // namespace
