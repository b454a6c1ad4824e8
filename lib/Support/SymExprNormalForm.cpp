//===- SymExprNormalForm.cpp - Normal form of expressions -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file brings symbolic expressions into their normal form.
//
// Integer sums and products are kept as polynomials: a sum of terms, a term
// being an integer coefficient and a sorted list of factors. Products of sums
// are multiplied out while the result stays small. Everything that is not a sum
// or a product (a symbol, a floordiv, ...) is a factor of its own. A rewriting
// that would overflow int64 is not done: the node stays as it was written, and
// evaluating it says so.
//
//===----------------------------------------------------------------------===//

#include "SymExprArithmetic.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

using namespace intarsia;
using namespace intarsia::arithmetic;

//===----------------------------------------------------------------------===//
// Polynomials
//===----------------------------------------------------------------------===//

namespace {
/// A product of sums is multiplied out up to this many terms.
constexpr size_t maxTerms = 64;

using Factors = std::vector<SymExpr>; // sorted; a power is a repeated factor

struct Term {
  int64_t coefficient;
  Factors factors;
  bool isConstant() const { return factors.empty(); }
};

/// Terms with more factors come first, the constant last.
int orderFactors(const Factors &a, const Factors &b) {
  if (a.size() != b.size())
    return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    if (int o = compare(a[i], b[i]))
      return o;
  return 0;
}

/// Sorted, no two terms with equal factors, no zero coefficient.
using Polynomial = std::vector<Term>;

Term termOf(const SymExpr &e) {
  if (auto value = e.asInteger())
    return {*value, {}};
  if (e.kind() == Kind::Mul) {
    const auto &ops = e.operands();
    if (auto value = ops.front().asInteger())
      // A product that would overflow holds more than one integer.
      if (ops.size() > 1 && ops[1].kind() != Kind::Integer)
        return {*value, Factors(ops.begin() + 1, ops.end())};
    if (ops.front().kind() != Kind::Integer)
      return {1, ops};
  }
  return {1, {e}};
}

/// False when a coefficient overflows.
bool normalise(Polynomial &p) {
  std::stable_sort(p.begin(), p.end(), [](const Term &a, const Term &b) {
    return orderFactors(a.factors, b.factors) < 0;
  });
  size_t out = 0;
  for (size_t i = 0; i < p.size();) {
    Term term = std::move(p[i]);
    for (++i; i < p.size() && orderFactors(p[i].factors, term.factors) == 0;
         ++i) {
      MaybeInt sum = checkedAdd(term.coefficient, p[i].coefficient);
      if (!sum)
        return false;
      term.coefficient = *sum;
    }
    if (term.coefficient != 0)
      p[out++] = std::move(term);
  }
  p.resize(out);
  return true;
}

Polynomial polynomialOf(const SymExpr &e) {
  Polynomial p;
  if (e.kind() == Kind::Add) {
    for (const SymExpr &operand : e.operands())
      p.push_back(termOf(operand));
  } else {
    p.push_back(termOf(e));
    if (p.front().coefficient == 0)
      p.clear();
  }
  return p;
}

SymExpr exprOf(const Term &term) {
  if (term.factors.empty())
    return SymExpr(term.coefficient);
  if (term.coefficient == 1 && term.factors.size() == 1)
    return term.factors.front();
  std::vector<SymExpr> operands;
  if (term.coefficient != 1)
    operands.push_back(term.coefficient);
  operands.insert(operands.end(), term.factors.begin(), term.factors.end());
  return SymExpr::raw(Kind::Mul, std::move(operands));
}

SymExpr exprOf(const Polynomial &p) {
  if (p.empty())
    return SymExpr(0);
  if (p.size() == 1)
    return exprOf(p.front());
  std::vector<SymExpr> operands;
  for (const Term &term : p)
    operands.push_back(exprOf(term));
  return SymExpr::raw(Kind::Add, std::move(operands));
}

std::optional<Polynomial> multiply(const Polynomial &a, const Polynomial &b) {
  Polynomial result;
  for (const Term &x : a)
    for (const Term &y : b) {
      MaybeInt c = checkedMul(x.coefficient, y.coefficient);
      if (!c)
        return std::nullopt;
      Term term{*c, {}};
      std::merge(x.factors.begin(), x.factors.end(), y.factors.begin(),
                 y.factors.end(), std::back_inserter(term.factors));
      result.push_back(std::move(term));
    }
  if (!normalise(result))
    return std::nullopt;
  return result;
}

/// a - b; nothing when it overflows.
std::optional<Polynomial> difference(const SymExpr &a, const SymExpr &b) {
  Polynomial p = polynomialOf(a);
  for (Term &term : polynomialOf(b)) {
    MaybeInt negated = checkedSub(0, term.coefficient);
    if (!negated)
      return std::nullopt;
    p.push_back({*negated, std::move(term.factors)});
  }
  if (!normalise(p))
    return std::nullopt;
  return p;
}

bool isRaw(const SymExpr &e) {
  // Only what would have overflowed keeps two integers side by side.
  if (e.kind() != Kind::Add && e.kind() != Kind::Mul)
    return false;
  return std::count_if(e.operands().begin(), e.operands().end(),
                       [](const SymExpr &operand) {
                         return operand.kind() == Kind::Integer;
                       }) > 1;
}

SymExpr keepAsWritten(Kind kind, std::vector<SymExpr> operands) {
  std::sort(operands.begin(), operands.end());
  return SymExpr::raw(kind, std::move(operands));
}

SymExpr makeAdd(std::vector<SymExpr> operands) {
  Polynomial p;
  bool hasReal = false;
  double real = 0;
  auto add = [&](const SymExpr &e) {
    if (auto value = e.asReal()) {
      hasReal = true;
      real += *value;
    } else {
      p.push_back(termOf(e));
    }
  };
  for (const SymExpr &operand : operands) {
    if (operand.kind() == Kind::Add && !isRaw(operand))
      for (const SymExpr &inner : operand.operands())
        add(inner);
    else
      add(operand);
  }
  if (!normalise(p))
    return keepAsWritten(Kind::Add, std::move(operands));
  if (!hasReal)
    return exprOf(p);
  if (!p.empty() && p.back().isConstant()) {
    real += static_cast<double>(p.back().coefficient);
    p.pop_back();
  }
  if (p.empty())
    return SymExpr::real(real);
  std::vector<SymExpr> terms;
  for (const Term &term : p)
    terms.push_back(exprOf(term));
  terms.push_back(SymExpr::real(real));
  return SymExpr::raw(Kind::Add, std::move(terms));
}

SymExpr makeMul(std::vector<SymExpr> operands) {
  std::vector<SymExpr> flat;
  for (const SymExpr &operand : operands) {
    if (operand.kind() == Kind::Mul && !isRaw(operand))
      flat.insert(flat.end(), operand.operands().begin(),
                  operand.operands().end());
    else
      flat.push_back(operand);
  }
  int64_t coefficient = 1;
  bool hasReal = false;
  double real = 1;
  Factors factors; // all but constants
  size_t terms = 1, sums = 0;
  for (const SymExpr &e : flat) {
    if (auto value = e.asInteger()) {
      MaybeInt product = checkedMul(coefficient, *value);
      if (!product)
        return keepAsWritten(Kind::Mul, std::move(operands));
      coefficient = *product;
    } else if (auto value = e.asReal()) {
      hasReal = true;
      real *= *value;
    } else {
      if (e.kind() == Kind::Add && !isRaw(e)) {
        ++sums;
        terms = std::min(terms * e.operands().size(), size_t(1) << 20);
      }
      factors.push_back(e);
    }
  }
  std::sort(factors.begin(), factors.end());
  if (hasReal) {
    // Not multiplied out: that would round differently.
    real *= static_cast<double>(coefficient);
    if (factors.empty())
      return SymExpr::real(real);
    factors.insert(factors.begin(), SymExpr::real(real));
    return SymExpr::raw(Kind::Mul, std::move(factors));
  }
  if (coefficient == 0)
    return SymExpr(0);
  bool isScaledSum = factors.size() == 1 && sums == 1;
  if (sums == 0 || (terms > maxTerms && !isScaledSum))
    return exprOf(Term{coefficient, std::move(factors)});
  Polynomial product{{coefficient, {}}};
  for (const SymExpr &factor : factors) {
    auto next = multiply(product, factor.kind() == Kind::Add && isRaw(factor)
                                      ? Polynomial{{1, {factor}}}
                                      : polynomialOf(factor));
    if (!next)
      return keepAsWritten(Kind::Mul, std::move(operands));
    product = std::move(*next);
  }
  return exprOf(product);
}

//===----------------------------------------------------------------------===//
// Division
//===----------------------------------------------------------------------===//

/// a / b when every term of `a` is a multiple of the single term `b`.
std::optional<Polynomial> divideExactly(const Polynomial &a, const Term &b) {
  Polynomial quotient;
  for (const Term &term : a) {
    if (b.coefficient == 0 || (b.coefficient == -1) ||
        term.coefficient % b.coefficient != 0)
      return std::nullopt;
    Term q{term.coefficient / b.coefficient, {}};
    std::set_difference(term.factors.begin(), term.factors.end(),
                        b.factors.begin(), b.factors.end(),
                        std::back_inserter(q.factors));
    if (q.factors.size() + b.factors.size() != term.factors.size())
      return std::nullopt;
    quotient.push_back(std::move(q));
  }
  if (!normalise(quotient))
    return std::nullopt;
  return quotient;
}

/// The greatest common divisor of `start` and the coefficients of all terms but
/// the constant.
int64_t commonDivisor(const Polynomial &p, int64_t start) {
  uint64_t g = start < 0 ? 0 - uint64_t(start) : uint64_t(start);
  for (const Term &term : p)
    if (!term.isConstant()) {
      uint64_t c = term.coefficient < 0 ? 0 - uint64_t(term.coefficient)
                                        : uint64_t(term.coefficient);
      g = std::gcd(g, c);
    }
  return g > uint64_t(std::numeric_limits<int64_t>::max()) ? 1 : int64_t(g);
}

/// floor(p / g) for a `g` that divides every term but the constant.
Polynomial scaleDown(const Polynomial &p, int64_t g) {
  Polynomial result;
  for (const Term &term : p) {
    int64_t c = *checkedFloorDiv(term.coefficient, g);
    if (c != 0)
      result.push_back({c, term.factors});
  }
  return result;
}

SymExpr makeFloorDiv(std::vector<SymExpr> operands) {
  const SymExpr a = operands[0], b = operands[1];
  if (a.isConstant() && b.isConstant()) {
    auto x = a.asInteger(), y = b.asInteger();
    if (x && y) {
      if (MaybeInt q = checkedFloorDiv(*x, *y))
        return *q;
      return SymExpr::raw(Kind::FloorDiv, std::move(operands));
    }
  }
  if (a.mayBeReal() || b.mayBeReal() || isRaw(a) || isRaw(b))
    return SymExpr::raw(Kind::FloorDiv, std::move(operands));
  if (b.isInteger(1))
    return a;
  if (b.isInteger(-1))
    return makeMul({a, SymExpr(-1)});
  if (b.isInteger(0))
    return SymExpr::raw(Kind::FloorDiv, std::move(operands));
  Polynomial p = polynomialOf(a);
  Polynomial divisor = polynomialOf(b);
  if (a == b)
    return 1;
  if (divisor.size() == 1 && !b.asInteger())
    if (auto q = divideExactly(p, divisor.front()))
      return exprOf(*q);
  auto c = b.asInteger();
  if (!c || *c < 0)
    return SymExpr::raw(Kind::FloorDiv, std::move(operands));
  // floordiv(c*q + r, c) = q + floordiv(r, c)
  Polynomial quotient, rest;
  for (const Term &term : p) {
    int64_t q = 0, r = term.coefficient;
    if (term.isConstant() || r % *c == 0) {
      q = *checkedFloorDiv(r, *c);
      r = *checkedMod(r, *c);
    }
    if (q != 0)
      quotient.push_back({q, term.factors});
    if (r != 0)
      rest.push_back({r, term.factors});
  }
  if (rest.empty() || (rest.size() == 1 && rest.front().isConstant()))
    return exprOf(quotient);
  // floordiv(g*x + k, g*c) = floordiv(x + floordiv(k, g), c)
  int64_t g = commonDivisor(rest, *c);
  SymExpr inner = exprOf(scaleDown(rest, g));
  int64_t by = *c / g;
  SymExpr result;
  if (by == 1) {
    result = inner;
  } else if (inner.kind() == Kind::FloorDiv) {
    auto innerBy = inner.operands()[1].asInteger();
    MaybeInt both =
        innerBy && *innerBy > 0 ? checkedMul(*innerBy, by) : MaybeInt();
    result = both ? makeFloorDiv({inner.operands()[0], SymExpr(*both)})
                  : SymExpr::raw(Kind::FloorDiv, {inner, SymExpr(by)});
  } else {
    result = SymExpr::raw(Kind::FloorDiv, {inner, SymExpr(by)});
  }
  return quotient.empty() ? result : makeAdd({exprOf(quotient), result});
}

SymExpr makeMod(std::vector<SymExpr> operands) {
  const SymExpr a = operands[0], b = operands[1];
  if (auto x = a.asInteger(), y = b.asInteger(); x && y) {
    if (MaybeInt r = checkedMod(*x, *y))
      return *r;
    return SymExpr::raw(Kind::Mod, std::move(operands));
  }
  if (a.mayBeReal() || b.mayBeReal() || isRaw(a) || isRaw(b) || b.isInteger(0))
    return SymExpr::raw(Kind::Mod, std::move(operands));
  if (b.isInteger(1) || b.isInteger(-1) || a == b)
    return 0;
  Polynomial p = polynomialOf(a);
  Polynomial divisor = polynomialOf(b);
  if (divisor.size() == 1 && !b.asInteger() &&
      divideExactly(p, divisor.front()))
    return 0;
  auto c = b.asInteger();
  if (!c || *c < 0)
    return SymExpr::raw(Kind::Mod, std::move(operands));
  // Coefficients count modulo c only: those nearest to 0 are the normal form.
  Polynomial rest;
  for (const Term &term : p) {
    int64_t r = *checkedMod(term.coefficient, *c);
    if (!term.isConstant() && r > *c / 2)
      r -= *c;
    const SymExpr *only =
        term.factors.size() == 1 ? &term.factors.front() : nullptr;
    if (r != 0 && only && only->kind() == Kind::Mod) {
      // mod(mod(x, k*c), c) = mod(x, c)
      auto innerBy = only->operands()[1].asInteger();
      if (innerBy && *innerBy > 0 && *innerBy % *c == 0) {
        SymExpr without = makeMul({SymExpr(r), only->operands()[0]});
        std::vector<SymExpr> sum{without};
        for (const Term &other : p)
          if (&other != &term)
            sum.push_back(exprOf(other));
        SymExpr next = makeAdd(std::move(sum));
        if (!isRaw(next))
          return makeMod({next, b});
      }
    }
    if (r != 0)
      rest.push_back({r, term.factors});
  }
  if (rest.empty())
    return 0;
  if (rest.size() == 1 && rest.front().isConstant())
    return rest.front().coefficient;
  // mod(g*x + k, g*c) = g*mod(x + floordiv(k, g), c) + mod(k, g)
  int64_t g = commonDivisor(rest, *c);
  if (g == 1)
    return SymExpr::raw(Kind::Mod, {exprOf(rest), b});
  int64_t k =
      rest.back().isConstant() ? *checkedMod(rest.back().coefficient, g) : 0;
  SymExpr inner = makeMod({exprOf(scaleDown(rest, g)), SymExpr(*c / g)});
  return makeAdd({makeMul({SymExpr(g), inner}), SymExpr(k)});
}

//===----------------------------------------------------------------------===//
// Minimum, maximum, comparisons, booleans
//===----------------------------------------------------------------------===//

std::vector<SymExpr> flatten(Kind kind, const std::vector<SymExpr> &operands) {
  std::vector<SymExpr> flat;
  for (const SymExpr &operand : operands) {
    if (operand.kind() == kind)
      flat.insert(flat.end(), operand.operands().begin(),
                  operand.operands().end());
    else
      flat.push_back(operand);
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  return flat;
}

/// a - b when it is one integer.
MaybeInt constantDifference(const SymExpr &a, const SymExpr &b) {
  if (a.mayBeReal() || b.mayBeReal() || isRaw(a) || isRaw(b) || a.isBoolean() ||
      b.isBoolean())
    return std::nullopt;
  auto d = difference(a, b);
  if (!d)
    return std::nullopt;
  if (d->empty())
    return 0;
  if (d->size() == 1 && d->front().isConstant())
    return d->front().coefficient;
  return std::nullopt;
}

SymExpr makeMinMax(Kind kind, const std::vector<SymExpr> &operands) {
  std::vector<SymExpr> kept;
  for (const SymExpr &e : flatten(kind, operands)) {
    bool dominated = false;
    for (SymExpr &other : kept) {
      MaybeInt d = constantDifference(e, other);
      if (!d)
        continue;
      if ((kind == Kind::Max) == (*d > 0))
        other = e;
      dominated = true;
      break;
    }
    if (!dominated)
      kept.push_back(e);
  }
  if (kept.size() == 1)
    return kept.front();
  std::sort(kept.begin(), kept.end());
  return SymExpr::raw(kind, std::move(kept));
}

SymExpr negate(const SymExpr &e);

/// The integer or float value of a constant, as the widest type that holds
/// both.
std::optional<long double> numberOf(const SymExpr &e) {
  if (auto value = e.asInteger())
    return static_cast<long double>(*value);
  if (auto value = e.asReal())
    return static_cast<long double>(*value);
  return std::nullopt;
}

SymExpr makeComparison(Kind kind, std::vector<SymExpr> operands) {
  bool symmetric = kind == Kind::Eq || kind == Kind::Ne;
  const SymExpr a = operands[0], b = operands[1];
  auto asWritten = [&] {
    return symmetric ? keepAsWritten(kind, {a, b}) : SymExpr::raw(kind, {a, b});
  };
  if (a.isBoolean() || b.isBoolean()) {
    if (!symmetric)
      return asWritten();
    if (a == b)
      return SymExpr::boolean(kind == Kind::Eq);
    for (auto [value, other] : {std::pair(a, b), std::pair(b, a)})
      if (auto constant = value.asBool(); constant && other.isBoolean())
        return (*constant == (kind == Kind::Eq)) ? other : negate(other);
    return asWritten();
  }
  if (auto x = numberOf(a), y = numberOf(b); x && y)
    return SymExpr::boolean(holds(kind, *x, *y));
  if (a.mayBeReal() || b.mayBeReal() || isRaw(a) || isRaw(b))
    return asWritten();
  auto d = difference(a, b);
  if (!d)
    return asWritten();
  if (d->empty())
    return SymExpr::boolean(kind == Kind::Eq || kind == Kind::Le);
  if (d->size() == 1 && d->front().isConstant())
    return SymExpr::boolean(
        holds(kind, static_cast<long double>(d->front().coefficient), 0));
  // One normal form: no common divisor, positive terms on the left, negated
  // negative ones on the right; of an equation, the first term on the left.
  int64_t constant = d->back().isConstant() ? d->back().coefficient : 0;
  int64_t g = commonDivisor(*d, 0);
  if (constant % g != 0)
    g = 1;
  bool flip = symmetric && d->front().coefficient < 0;
  Polynomial left, right;
  for (const Term &term : *d) {
    int64_t c = term.coefficient / g;
    if (c == std::numeric_limits<int64_t>::min())
      return asWritten();
    if (flip)
      c = -c;
    if (!term.isConstant())
      (c > 0 ? left : right).push_back({c > 0 ? c : -c, term.factors});
    else if (right.empty() || (!left.empty() && c < 0))
      right.push_back({-c, {}});
    else
      left.push_back({c, {}});
  }
  return SymExpr::raw(kind, {exprOf(left), exprOf(right)});
}

SymExpr negate(const SymExpr &e) {
  const auto &ops = e.operands();
  switch (e.kind()) {
  case Kind::Bool:
    return SymExpr::boolean(!*e.asBool());
  case Kind::Not:
    return ops[0];
  case Kind::Eq:
    return SymExpr::raw(Kind::Ne, ops);
  case Kind::Ne:
    return SymExpr::raw(Kind::Eq, ops);
  case Kind::Lt:
  case Kind::Le:
    // Not for floats: no comparison with NaN holds.
    if (!ops[0].mayBeReal() && !ops[1].mayBeReal())
      return makeComparison(e.kind() == Kind::Lt ? Kind::Le : Kind::Lt,
                            {ops[1], ops[0]});
    break;
  default:
    break;
  }
  return SymExpr::raw(Kind::Not, {e});
}

SymExpr makeAndOr(Kind kind, const std::vector<SymExpr> &operands) {
  bool absorbing = kind == Kind::Or;
  std::vector<SymExpr> kept;
  for (const SymExpr &e : flatten(kind, operands)) {
    if (auto value = e.asBool()) {
      if (*value == absorbing)
        return e;
      continue;
    }
    kept.push_back(e);
  }
  if (kept.empty())
    return SymExpr::boolean(!absorbing);
  if (kept.size() == 1)
    return kept.front();
  return SymExpr::raw(kind, std::move(kept));
}

SymExpr makePow(std::vector<SymExpr> operands) {
  const SymExpr base = operands[0], exponent = operands[1];
  auto n = exponent.asInteger();
  if (auto x = base.asReal(), y = exponent.asReal(); x && y)
    return SymExpr::real(std::pow(*x, *y));
  if (!n)
    return SymExpr::raw(Kind::Pow, std::move(operands));
  if (auto x = base.asReal())
    return SymExpr::real(std::pow(*x, static_cast<double>(*n)));
  if (auto x = base.asInteger()) {
    if (*n < 0)
      return SymExpr::real(
          std::pow(static_cast<double>(*x), static_cast<double>(*n)));
    if (MaybeInt value = checkedPow(*x, *n))
      return *value;
    return SymExpr::raw(Kind::Pow, std::move(operands));
  }
  if (*n == 0)
    return 1;
  if (*n == 1)
    return base;
  // A small power is a product, so that it takes part in the normal form.
  constexpr int64_t maxUnrolled = 8;
  if (*n > 0 && *n <= maxUnrolled)
    return makeMul(std::vector<SymExpr>(size_t(*n), base));
  return SymExpr::raw(Kind::Pow, std::move(operands));
}

SymExpr makeRounding(Kind kind, const SymExpr &e) {
  if (e.kind() == Kind::Integer)
    return e;
  if (auto value = e.asReal()) {
    if (auto rounded = roundedTo(kind, *value))
      return *rounded;
  }
  // Exact below 2^53, which is beyond every size.
  if (e.kind() == Kind::ToFloat)
    return e.operands()[0];
  return SymExpr::raw(kind, {e});
}

} // namespace

SymExpr SymExpr::make(Kind kind, std::vector<SymExpr> operands) {
  if (size_t n = arity(kind); n && n != operands.size())
    throw std::invalid_argument("SymExpr::make: wrong number of operands");
  switch (kind) {
  case Kind::Integer:
  case Kind::Float:
  case Kind::Bool:
  case Kind::Symbol:
    throw std::invalid_argument("SymExpr::make: a leaf has its own function");
  case Kind::Add:
    return makeAdd(std::move(operands));
  case Kind::Mul:
    return makeMul(std::move(operands));
  case Kind::Pow:
    return makePow(std::move(operands));
  case Kind::FloorDiv:
    return makeFloorDiv(std::move(operands));
  case Kind::Mod:
    return makeMod(std::move(operands));
  case Kind::Min:
  case Kind::Max:
    if (operands.empty())
      throw std::invalid_argument("SymExpr::make: min or max of nothing");
    return makeMinMax(kind, operands);
  case Kind::Abs:
    if (auto value = operands[0].asInteger();
        value && *value != std::numeric_limits<int64_t>::min())
      return *value < 0 ? -*value : *value;
    if (auto value = operands[0].asReal())
      return real(std::fabs(*value));
    if (operands[0].kind() == Kind::Abs)
      return operands[0];
    break;
  case Kind::TrueDiv:
    if (auto a = numberOf(operands[0]), b = numberOf(operands[1]);
        a && b && *b != 0)
      return real(static_cast<double>(*a / *b));
    break;
  case Kind::ToFloat:
    if (auto value = operands[0].asInteger())
      return real(static_cast<double>(*value));
    if (operands[0].kind() == Kind::Float ||
        operands[0].kind() == Kind::ToFloat)
      return operands[0];
    break;
  case Kind::Trunc:
  case Kind::Floor:
  case Kind::Ceil:
  case Kind::Round:
    return makeRounding(kind, operands[0]);
  case Kind::RoundDecimal:
    if (auto value = numberOf(operands[0]))
      if (auto digits = operands[1].asInteger())
        return real(roundDecimal(static_cast<double>(*value), *digits));
    break;
  case Kind::BitAnd:
  case Kind::BitOr:
  case Kind::BitXor:
    if (auto a = operands[0].asInteger(), b = operands[1].asInteger(); a && b)
      return bitwise(kind, *a, *b);
    break;
  case Kind::Eq:
  case Kind::Ne:
  case Kind::Lt:
  case Kind::Le:
    return makeComparison(kind, std::move(operands));
  case Kind::And:
  case Kind::Or:
    return makeAndOr(kind, operands);
  case Kind::Not:
    return negate(operands[0]);
  case Kind::Select:
    if (auto condition = operands[0].asBool())
      return operands[*condition ? 1 : 2];
    if (operands[1] == operands[2])
      return operands[1];
    break;
  default:
    if (const RealFunction *function = realFunction(kind))
      if (auto value = numberOf(operands[0]))
        if (auto result = (*function)(static_cast<double>(*value)))
          return real(*result);
    break;
  }
  return raw(kind, std::move(operands));
}

namespace intarsia {
SymExpr operator+(const SymExpr &a, const SymExpr &b) {
  return SymExpr::make(Kind::Add, {a, b});
}
SymExpr operator-(const SymExpr &a, const SymExpr &b) {
  return SymExpr::make(Kind::Add, {a, SymExpr::make(Kind::Mul, {-1, b})});
}
SymExpr operator*(const SymExpr &a, const SymExpr &b) {
  return SymExpr::make(Kind::Mul, {a, b});
}
} // namespace intarsia
