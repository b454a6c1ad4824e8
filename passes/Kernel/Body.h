//===- Body.h - Reading the body of a kernel ----------------------*- C++
//-*-===//
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
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "passes/Kernel/IndexMath.h"

namespace intarsia::kernel {

/// The iteration space of a kernel: the dimensions of the largest tensor that
/// it computes. Some of them are its rows; a row runs along the others, those
/// that reductions are along. A kernel without such reductions has rows only.
struct Space {
  /// In the order of the tensor's dimensions.
  llvm::SmallVector<SymExpr> sizes;
  /// The dimensions, those of the rows first.
  llvm::SmallVector<int64_t> order;
  int64_t rows = 0;

  /// The space of rows only.
  static Space ofElements(llvm::ArrayRef<SymExpr> sizes);
  /// What `fuse-analyse` and `fuse-decide` wrote on the kernel.
  static mlir::FailureOr<Space> of(graph::KernelOp kernel);
  void set(mlir::NamedAttrList &decisions, mlir::MLIRContext *context) const;

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  bool isElementwise() const { return rows == rank(); }
  llvm::ArrayRef<int64_t> rowDims() const {
    return llvm::ArrayRef(order).take_front(rows);
  }
  llvm::ArrayRef<int64_t> innerDims() const {
    return llvm::ArrayRef(order).drop_front(rows);
  }
  /// Whether a row is one piece of the row-major order.
  bool isTrailing() const { return llvm::is_sorted(order); }
  SymExpr size() const { return productOf(sizes); }
  SymExpr rowCount() const;
  /// The number of the row that a position lies in.
  SymExpr rowOf(llvm::ArrayRef<SymExpr> index) const;
  /// Whether rows are the same pieces of data in the same order.
  bool hasRowsOf(const Space &other) const;
};

/// The expression of an `index` value of the kernel's body.
mlir::FailureOr<SymExpr> exprOfIndex(mlir::Value value);
SymExpr exprOfFold(mlir::OpFoldResult value);

/// The sizes of a tensor inside a kernel.
llvm::SmallVector<SymExpr> sizesOf(mlir::Value tensor);

/// The dimensions of an elementwise kernel's space in the order of loops: as
/// the first result lies in memory.
llvm::SmallVector<int64_t> loopOrder(graph::KernelOp kernel,
                                     llvm::ArrayRef<SymExpr> space);

/// Makes every symbol in the sizes and strides of the kernel's types one of its
/// `symbols`: code needs the values.
void addSizeSymbols(graph::KernelOp kernel);

/// What positions, and what is added to them, stay below: the elements that
/// memory spans, those of any tensor on the way, the user's numbers. Loops add
/// their step to the last position, which is no more than all of them; blocks
/// of a sum are shorter than `margin`.
SymExpr extentOf(graph::KernelOp kernel);

/// True for a reduction, and for a running one.
bool reduces(mlir::Operation *op);
/// True for a reduction that keeps the value after each element.
bool runs(mlir::Operation *op);
/// True if an operation for which `isSuch` holds is in the computation of
/// `tensor`.
bool contains(mlir::Value tensor, bool (*isSuch)(mlir::Operation *));
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
