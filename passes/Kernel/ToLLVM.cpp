//===- ToLLVM.cpp - What the conversions to LLVM have in common -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The last step on kernels, for every kind of device: loops become branches,
// then everything becomes the LLVM dialect in one full conversion, so that
// nothing can be left over.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/ToLLVM.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;

LogicalResult intarsia::kernel::convertLoopsToBranches(Operation *root) {
  MLIRContext *context = root->getContext();
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  ConversionTarget target(*context);
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  target.addIllegalDialect<scf::SCFDialect>();
  target.addIllegalOp<arith::FloorDivSIOp, arith::CeilDivSIOp,
                      arith::CeilDivUIOp>();
  return applyPartialConversion(root, target, std::move(patterns));
}

LogicalResult intarsia::kernel::convertToLLVM(
    Operation *root, function_ref<void(LLVMTypeConverter &, RewritePatternSet &,
                                       ConversionTarget &)>
                         populate) {
  MLIRContext *context = root->getContext();
  LowerToLLVMOptions options(context);
  options.overrideIndexBitwidth(64);
  LLVMTypeConverter converter(context, options);
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns,
                                       /*approximateLog1p=*/false,
                                       /*benefit=*/2);
  LLVMConversionTarget target(*context);
  populate(converter, patterns, target);
  return applyFullConversion(root, target, std::move(patterns));
}
