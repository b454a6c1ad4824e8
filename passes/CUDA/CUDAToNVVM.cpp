//===- CUDAToNVVM.cpp - Kernels in the LLVM and NVVM dialects -------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cuda-to-nvvm`, the last pass on CUDA kernels: NVVM's registers
// and the LLVM dialect. The library calls (libdevice) that MLIR has for math
// are avoided: kernels are linked with no library.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/ToLLVM.h"
#include "passes/Passes.h"

#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace intarsia;

namespace intarsia {
#define GEN_PASS_DEF_CUDATONVVM
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

class CUDAToNVVM final : public ::intarsia::impl::CUDAToNVVMBase<CUDAToNVVM> {
public:
  void runOnOperation() override {
    auto populate = [](LLVMTypeConverter &converter,
                       RewritePatternSet &patterns, ConversionTarget &target) {
      configureGpuToNVVMTypeConverter(converter);
      populateVectorToLLVMConversionPatterns(converter, patterns);
      populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
      // Of lower benefit than the patterns of math: their calls of libdevice
      // are not wanted.
      populateGpuToNVVMConversionPatterns(converter, patterns);
      target.addLegalDialect<NVVM::NVVMDialect>();
      target.addLegalOp<gpu::GPUModuleOp>();
    };
    if (failed(kernel::convertLoopsToBranches(getOperation())) ||
        failed(kernel::convertToLLVM(getOperation(), populate)))
      signalPassFailure();
  }
};

} // namespace
