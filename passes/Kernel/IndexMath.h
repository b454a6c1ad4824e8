//===- IndexMath.h - Index expressions with ranges ----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Code generation keeps every position as a symbolic expression over loop
// variables and sizes until it is needed as a value, so that a chain of views
// collapses to one linear offset. This file has the simplifications that need
// the loop variables' ranges.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_INDEXMATH_H
#define INTARSIA_PASSES_KERNEL_INDEXMATH_H

#include "intarsia/Support/SymExpr.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <optional>
#include <string>

namespace intarsia::kernel {

/// Loop variables are non-negative and below their bound.
using Ranges = std::map<std::string, SymExpr>;

/// True if `expr` cannot be negative, given that sizes are at least 0 and loop
/// variables lie in their ranges. May say false for what it cannot prove.
bool isNonNegative(const SymExpr &expr, const Ranges &ranges);

/// floordiv(a, b) for b > 0, simplified with the ranges.
SymExpr floorDiv(const SymExpr &a, const SymExpr &b, const Ranges &ranges);
/// a - b * floordiv(a, b): kept in this form so that a recombination with the
/// quotient cancels.
SymExpr modulo(const SymExpr &a, const SymExpr &b, const Ranges &ranges);

SymExpr productOf(llvm::ArrayRef<SymExpr> sizes);

/// The row-major position of `index` in a box of `sizes`, and back.
SymExpr linearize(llvm::ArrayRef<SymExpr> index, llvm::ArrayRef<SymExpr> sizes);
llvm::SmallVector<SymExpr> delinearize(const SymExpr &position,
                                       llvm::ArrayRef<SymExpr> sizes,
                                       const Ranges &ranges);

bool dependsOn(const SymExpr &expr, const std::string &symbol);

/// The step of `expr` when `symbol` grows by one, if it does not depend on
/// `symbol`.
std::optional<SymExpr> strideAlong(const SymExpr &expr,
                                   const std::string &symbol);

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_INDEXMATH_H
