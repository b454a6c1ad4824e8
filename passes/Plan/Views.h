//===- Views.h - View operators with a known form -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The view operators that the plan makes itself, without a call: the result's
// sizes and strides are those of its type, only where it starts must be known.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PLAN_VIEWS_H
#define INTARSIA_PASSES_PLAN_VIEWS_H

#include "dialects/Graph/Graph.h"

#include <optional>

namespace intarsia {

/// A call whose results are strided views of one operand.
struct StridedView {
  mlir::Value source;
  /// One a result: its first element, counted in elements from the source's
  /// first element.
  llvm::SmallVector<SymExpr, 1> offsets;
};

/// Nullopt when the call is not certainly of this kind (complex tensors too:
/// they carry conjugation outside of their strides).
std::optional<StridedView> stridedView(graph::CallOp call);

/// Where the part that a call of `aten::slice_scatter` or
/// `aten::select_scatter` writes starts, counted from the first element of its
/// argument `self`.
std::optional<SymExpr> writtenOffset(graph::CallOp call);

/// For `value` made from `base` by such views alone: where it starts, counted
/// from the first element of `base`.
std::optional<SymExpr> offsetWithin(mlir::Value value, mlir::Value base);

} // namespace intarsia

#endif // INTARSIA_PASSES_PLAN_VIEWS_H
