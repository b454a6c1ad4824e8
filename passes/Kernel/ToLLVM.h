//===- ToLLVM.h - What the conversions to LLVM have in common -----*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_TOLLVM_H
#define INTARSIA_PASSES_KERNEL_TOLLVM_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/IR/Operation.h"
#include "mlir/Transforms/DialectConversion.h"

namespace intarsia::kernel {

/// Loops and scf.if become branches, rounding divisions plain ones.
mlir::LogicalResult convertLoopsToBranches(mlir::Operation *root);

/// Converts all of `root` to the LLVM dialect, with indices of 64 bits: arith,
/// cf and math (before anything of lower benefit), and what `populate` adds
/// patterns and legality for. Fails if an operation is left over.
mlir::LogicalResult
convertToLLVM(mlir::Operation *root,
              llvm::function_ref<void(mlir::LLVMTypeConverter &,
                                      mlir::RewritePatternSet &,
                                      mlir::ConversionTarget &)>
                  populate);

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_TOLLVM_H
