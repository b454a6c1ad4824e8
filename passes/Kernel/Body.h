//===- Body.h - Reading the body of a kernel ----------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Facts about the body of an `intarsia.kernel` that fusion, scheduling and code
// generation share: symbolic sizes, positions through views, what reduces and
// what is dear. passes/Lower/Lowering.h describes the language of a body.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_BODY_H
#define INTARSIA_PASSES_KERNEL_BODY_H

#include "dialects/Graph/Graph.h"
#include "passes/Kernel/IndexMath.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace intarsia::kernel {

/// The expression of an `index` value of the kernel's body.
mlir::FailureOr<SymExpr> exprOfIndex(mlir::Value value);
SymExpr exprOfFold(mlir::OpFoldResult value);

/// The sizes of a tensor inside a kernel.
llvm::SmallVector<SymExpr> sizesOf(mlir::Value tensor);

/// True for a reduction.
bool reduces(mlir::Operation *op);
/// True if a reduction is in the computation of `tensor`.
bool containsReduction(mlir::Value tensor);
/// True for an operation whose vector code is more than a few instructions.
bool isDear(mlir::Operation *op);

/// The position in the source of a view that only moves positions (a slice, a
/// reshape); nullopt for other operations.
std::optional<llvm::SmallVector<SymExpr>>
sourceIndex(mlir::Operation *op, llvm::ArrayRef<SymExpr> index,
            const Ranges &ranges);
/// The position of an operand of a generic at the loop position `index`.
llvm::SmallVector<SymExpr> applyMap(mlir::AffineMap map,
                                    llvm::ArrayRef<SymExpr> index);

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_BODY_H
