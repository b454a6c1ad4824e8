//===- IndexMath.cpp - Index expressions with ranges ----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements IndexMath.h: division with remainder by ranges, linear positions.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/IndexMath.h"

using namespace intarsia;
using namespace intarsia::kernel;
using Kind = SymExpr::Kind;

static llvm::SmallVector<SymExpr> terms(const SymExpr &expr) {
  if (expr.kind() == Kind::Add)
    return llvm::SmallVector<SymExpr>(expr.operands().begin(),
                                      expr.operands().end());
  return {expr};
}

static llvm::SmallVector<SymExpr> factors(const SymExpr &expr) {
  if (expr.kind() == Kind::Mul)
    return llvm::SmallVector<SymExpr>(expr.operands().begin(),
                                      expr.operands().end());
  return {expr};
}

/// term / divisor if it is exact, for a divisor that is a product.
static std::optional<SymExpr> divideExactly(const SymExpr &term,
                                            const SymExpr &divisor) {
  llvm::SmallVector<SymExpr> remaining = factors(term);
  for (const SymExpr &factor : factors(divisor)) {
    if (std::optional<int64_t> constant = factor.asInteger()) {
      bool divided = false;
      for (SymExpr &candidate : remaining) {
        std::optional<int64_t> value = candidate.asInteger();
        if (value && *constant != 0 && *value % *constant == 0) {
          candidate = SymExpr(*value / *constant);
          divided = true;
          break;
        }
      }
      if (!divided)
        return std::nullopt;
      continue;
    }
    auto *found = llvm::find(remaining, factor);
    if (found == remaining.end())
      return std::nullopt;
    remaining.erase(found);
  }
  SymExpr result(1);
  for (const SymExpr &factor : remaining)
    result = result * factor;
  return result;
}

/// `expr` with every loop variable at its largest value, if `expr` grows with
/// each of them.
static std::optional<SymExpr> largest(const SymExpr &expr,
                                      const Ranges &ranges) {
  std::map<std::string, SymExpr> values;
  for (const SymExpr &term : terms(expr)) {
    for (const SymExpr &factor : factors(term)) {
      if (factor.isSymbol()) {
        if (auto range = ranges.find(factor.name()); range != ranges.end())
          values.emplace(factor.name(), range->second - SymExpr(1));
      } else if (std::optional<int64_t> constant = factor.asInteger()) {
        if (*constant < 0)
          return std::nullopt;
      } else {
        std::set<std::string> names;
        factor.collectSymbols(names);
        for (const std::string &name : names)
          if (ranges.count(name))
            return std::nullopt;
      }
    }
  }
  return expr.substitute(values);
}

bool kernel::isNonNegative(const SymExpr &expr, const Ranges &ranges) {
  return llvm::all_of(terms(expr), [&](const SymExpr &term) {
    return llvm::all_of(factors(term), [&](const SymExpr &factor) {
      if (std::optional<int64_t> constant = factor.asInteger())
        return *constant >= 0;
      switch (factor.kind()) {
      case Kind::Symbol:
        return true;
      case Kind::FloorDiv:
      case Kind::Min:
      case Kind::Add:
      case Kind::Pow:
        return llvm::all_of(factor.operands(), [&](const SymExpr &operand) {
          return isNonNegative(operand, ranges);
        });
      case Kind::Max:
        return llvm::any_of(factor.operands(), [&](const SymExpr &operand) {
          return isNonNegative(operand, ranges);
        });
      case Kind::Mod:
        return isNonNegative(factor.operands()[1], ranges);
      default:
        return false;
      }
    });
  });
}

SymExpr kernel::floorDiv(const SymExpr &a, const SymExpr &b,
                         const Ranges &ranges) {
  if (b.isInteger(1))
    return a;
  SymExpr quotient, rest;
  for (const SymExpr &term : terms(a)) {
    if (std::optional<SymExpr> exact = divideExactly(term, b))
      quotient = quotient + *exact;
    else
      rest = rest + term;
  }
  if (isNonNegative(rest, ranges))
    if (std::optional<SymExpr> most = largest(rest, ranges))
      if (isNonNegative(b - SymExpr(1) - *most, ranges))
        return quotient;
  return quotient + SymExpr::make(Kind::FloorDiv, {rest, b});
}

SymExpr kernel::modulo(const SymExpr &a, const SymExpr &b,
                       const Ranges &ranges) {
  return a - b * floorDiv(a, b, ranges);
}

SymExpr kernel::productOf(llvm::ArrayRef<SymExpr> sizes) {
  SymExpr result(1);
  for (const SymExpr &size : sizes)
    result = result * size;
  return result;
}

SymExpr kernel::linearize(llvm::ArrayRef<SymExpr> index,
                          llvm::ArrayRef<SymExpr> sizes) {
  SymExpr position;
  for (size_t i = 0; i < index.size(); ++i)
    position = position * sizes[i] + index[i];
  return position;
}

llvm::SmallVector<SymExpr> kernel::delinearize(const SymExpr &position,
                                               llvm::ArrayRef<SymExpr> sizes,
                                               const Ranges &ranges) {
  llvm::SmallVector<SymExpr> index(sizes.size());
  SymExpr rest = position;
  for (size_t i = sizes.size(); i-- > 1;) {
    index[i] = modulo(rest, sizes[i], ranges);
    rest = floorDiv(rest, sizes[i], ranges);
  }
  if (!sizes.empty())
    index[0] = rest;
  return index;
}

bool kernel::dependsOn(const SymExpr &expr, const std::string &symbol) {
  std::set<std::string> names;
  expr.collectSymbols(names);
  return names.count(symbol) != 0;
}

std::optional<SymExpr> kernel::strideAlong(const SymExpr &expr,
                                           const std::string &symbol) {
  SymExpr next =
      expr.substitute({{symbol, SymExpr::symbol(symbol) + SymExpr(1)}});
  SymExpr step = next - expr;
  if (dependsOn(step, symbol))
    return std::nullopt;
  return step;
}
