//===- Reuse.h - Functional updates that can be done in place -----*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Functionalisation turns a write into a part of a buffer into an operator that
// returns the whole buffer anew (`index_put`, `slice_scatter`, `copy`). Where
// the buffer gets that value anyway, the part alone is written again.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PLAN_REUSE_H
#define INTARSIA_PASSES_PLAN_REUSE_H

#include "dialects/Graph/Graph.h"

#include <optional>
#include <string>

namespace intarsia {

/// "inplace" on a call: its result is its argument `self`, updated.
inline constexpr llvm::StringLiteral reuseAttrName = "intarsia.reuse";

/// What has to be done to update `self`.
struct Update {
  /// The in-place operator with the same arguments; "" when `src` is copied
  /// into a part of `self` instead.
  std::string twin;
  /// The part: where it starts, from the first element of `self`.
  SymExpr offset;
  llvm::SmallVector<SymExpr> sizes, strides;
};

/// Nullopt when the call is no update of its argument `self`.
std::optional<Update> updateOf(graph::CallOp call);

/// The same, also when the result has other strides than `self`.
std::optional<Update> partialUpdateOf(graph::CallOp call);

/// The argument that the call's result replaces in place; null when it makes a
/// new tensor.
mlir::Value reusedOperand(graph::CallOp call);

} // namespace intarsia

#endif // INTARSIA_PASSES_PLAN_REUSE_H
