//===- FuseGraph.h - The order that fusion must keep -----------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the two fusion passes share: the operations of a block as a graph of
// what must come before what, and the views that a fused consumer looks
// through.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_FUSE_FUSEGRAPH_H
#define INTARSIA_PASSES_FUSE_FUSEGRAPH_H

#include "dialects/Graph/Graph.h"
#include "passes/Kernel/Body.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace intarsia::fuse {

/// On a kernel: the number of the group that it becomes part of.
inline constexpr llvm::StringLiteral groupAttrName = "intarsia.group";

/// On a `linalg.generic` in a kernel's body: a cast that the user wrote.
inline constexpr llvm::StringLiteral explicitCastAttrName =
    "intarsia.explicit_cast";

/// The value that `call` is a view of, when fusion can look through it: a view
/// operator with an index map. Null otherwise.
mlir::Value viewSource(graph::CallOp call);

/// The kernel whose result `value` is, directly or through views that fusion
/// can look through; null otherwise.
graph::KernelOp producerOf(mlir::Value value);

/// The position in the source of a view that fusion can look through, from one
/// in the view; nullopt for a view that does more than move positions.
std::optional<llvm::SmallVector<SymExpr>>
viewedPosition(graph::CallOp view, llvm::ArrayRef<SymExpr> index,
               const kernel::Ranges &ranges);

/// True if somebody outside `isMember` needs `result`: a user that is not a
/// member, or a view of it with such a user.
bool neededOutside(mlir::Value result,
                   llvm::function_ref<bool(mlir::Operation *)> isMember);

/// The value at the bottom of a chain of views: storage is its.
mlir::Value baseOf(mlir::Value value);

class OrderGraph {
public:
  explicit OrderGraph(mlir::Block &block);

  llvm::ArrayRef<mlir::Operation *> operations() const { return ops; }
  int64_t indexOf(mlir::Operation *op) const { return index.lookup(op); }
  /// Operations that must come after this one: users, the next one with
  /// effects, and what would overwrite a value that it reads.
  llvm::ArrayRef<int64_t> successors(int64_t node) const { return after[node]; }

private:
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::DenseMap<mlir::Operation *, int64_t> index;
  llvm::SmallVector<llvm::SmallVector<int64_t, 4>> after;
};

} // namespace intarsia::fuse

#endif // INTARSIA_PASSES_FUSE_FUSEGRAPH_H
