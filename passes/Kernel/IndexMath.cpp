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

#include <numeric>

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

/// The remainders x - b * floordiv(x, b) in a sum, as `modulo` makes them.
struct Remainders {
  llvm::SmallVector<SymExpr> divisors;
  SymExpr others; // what else is in the sum

  explicit Remainders(const SymExpr &sum) : others(sum) {
    for (const SymExpr &term : terms(sum)) {
      for (const SymExpr &factor : factors(term)) {
        if (factor.kind() != Kind::FloorDiv)
          continue;
        const SymExpr &divisor = factor.operands()[1];
        if (term != SymExpr(-1) * divisor * factor)
          continue;
        others = others - factor.operands()[0] - term;
        divisors.push_back(divisor);
        break;
      }
    }
  }
};

static bool hasVariables(const SymExpr &expr, const Ranges &ranges) {
  std::set<std::string> names;
  expr.collectSymbols(names);
  return llvm::any_of(
      names, [&](const std::string &name) { return ranges.count(name); });
}

/// A value that `expr` does not exceed, if it grows with each loop variable
/// outside remainders.
static std::optional<SymExpr> largest(const SymExpr &expr,
                                      const Ranges &ranges) {
  Remainders remainders(expr);
  SymExpr bound;
  for (const SymExpr &divisor : remainders.divisors)
    bound = bound + divisor - SymExpr(1);
  for (const SymExpr &term : terms(remainders.others)) {
    SymExpr product(1);
    for (const SymExpr &factor : factors(term)) {
      std::optional<int64_t> constant = factor.asInteger();
      if (!hasVariables(factor, ranges)) {
        if (constant && *constant < 0 && hasVariables(term, ranges))
          return std::nullopt;
        product = product * factor;
      } else if (factor.isSymbol()) {
        product = product * (ranges.at(factor.name()) - SymExpr(1));
      } else if (factor.kind() == Kind::FloorDiv &&
                 !hasVariables(factor.operands()[1], ranges)) {
        const SymExpr &divisor = factor.operands()[1];
        std::optional<SymExpr> most = largest(factor.operands()[0], ranges);
        if (!most)
          return std::nullopt;
        // floordiv(k * b - 1, b) is k - 1.
        std::optional<SymExpr> count =
            divideExactly(*most + SymExpr(1), divisor);
        product =
            product * (count ? *count - SymExpr(1)
                             : SymExpr::make(Kind::FloorDiv, {*most, divisor}));
      } else {
        return std::nullopt;
      }
    }
    bound = bound + product;
  }
  return bound;
}

bool kernel::isNonNegative(const SymExpr &expr, const Ranges &ranges) {
  return llvm::all_of(terms(Remainders(expr).others), [&](const SymExpr &term) {
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

/// Whether 0 <= `expr` < `bound` whatever the loop variables are.
static bool isBelow(const SymExpr &expr, const SymExpr &bound,
                    const Ranges &ranges) {
  if (!isNonNegative(expr, ranges))
    return false;
  std::optional<SymExpr> most = largest(expr, ranges);
  return most && isNonNegative(bound - SymExpr(1) - *most, ranges);
}

/// The factors that both products have.
static SymExpr commonFactor(const SymExpr &a, const SymExpr &b) {
  SymExpr common(1);
  llvm::SmallVector<SymExpr> left = factors(b);
  for (const SymExpr &factor : factors(a)) {
    if (std::optional<int64_t> constant = factor.asInteger()) {
      for (const SymExpr &other : left)
        if (std::optional<int64_t> value = other.asInteger())
          common = common * SymExpr(std::gcd(*constant, *value));
    } else if (auto *found = llvm::find(left, factor); found != left.end()) {
      common = common * factor;
      left.erase(found);
    }
  }
  return common;
}

/// `expr` as a multiple of `divisor`, term by term, and the rest: quotient,
/// rest.
static std::pair<SymExpr, SymExpr> splitMultiples(const SymExpr &expr,
                                                  const SymExpr &divisor) {
  SymExpr quotient, rest;
  for (const SymExpr &term : terms(expr)) {
    if (std::optional<SymExpr> exact = divideExactly(term, divisor))
      quotient = quotient + *exact;
    else
      rest = rest + term;
  }
  return {quotient, rest};
}

SymExpr kernel::floorDiv(const SymExpr &a, const SymExpr &b,
                         const Ranges &ranges) {
  if (b.isInteger(1))
    return a;
  auto [quotient, rest] = splitMultiples(a, b);
  if (isBelow(rest, b, ranges))
    return quotient;
  // floordiv(c * x + r, c * d) is floordiv(x, d) for 0 <= r < c.
  for (const SymExpr &term : terms(rest)) {
    SymExpr common = commonFactor(term, b);
    if (common.isInteger(1))
      continue;
    auto [multiple, below] = splitMultiples(rest, common);
    if (isBelow(below, common, ranges))
      return quotient + floorDiv(multiple, *divideExactly(b, common), ranges);
  }
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
