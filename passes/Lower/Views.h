//===- Views.h - Positions in slices ------------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What slices and their inverses (scatters) read of their arguments alike.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_VIEWS_H
#define INTARSIA_PASSES_LOWER_VIEWS_H

#include "passes/Lower/Lowering.h"

namespace intarsia::lower {

/// Python's index into a dimension of `size`: counted from the end when
/// negative. Its sign may be known only when the program runs.
SymExpr fromFront(const SymExpr &index, const SymExpr &size);
/// The argument `start` of a slice of `length` elements along a dimension of
/// `size`: from the front, and in range as Python has it.
std::optional<SymExpr> sliceStart(graph::CallOp call, const SymExpr &size,
                                  const SymExpr &length);
/// The argument `index` of a selection, from the front.
std::optional<SymExpr> selectIndex(graph::CallOp call, const SymExpr &size);

/// The names that `lookupView` knows.
std::vector<llvm::StringRef> viewOperators();

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_VIEWS_H
