//===- SymExprEvaluate.cpp - Values of symbolic expressions ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file evaluates symbolic expressions as Python does: integers stay
// integers (an overflow of int64 is an error), a float makes floats.
//
//===----------------------------------------------------------------------===//

#include "SymExprArithmetic.h"

#include <functional>
#include <map>
#include <string>

using namespace intarsia;
using namespace intarsia::arithmetic;

namespace {
using Lookup = std::function<std::optional<SymValue>(const std::string &)>;
using MaybeValue = std::optional<SymValue>;

/// A boolean counts as 0 or 1, as in Python.
SymValue numeric(const SymValue &value) {
  if (const bool *b = std::get_if<bool>(&value))
    return int64_t(*b);
  return value;
}
double toReal(const SymValue &value) {
  return std::visit([](auto v) { return static_cast<double>(v); }, value);
}
long double toWide(const SymValue &value) {
  return std::visit([](auto v) { return static_cast<long double>(v); }, value);
}
bool isTrue(const SymValue &value) {
  return std::visit([](auto v) { return v != 0; }, value);
}
MaybeValue lift(MaybeInt value) {
  return value ? MaybeValue(*value) : std::nullopt;
}

template <typename IntegerOp, typename RealOp>
MaybeValue arithmetic(const SymValue &a, const SymValue &b, IntegerOp integer,
                      RealOp real) {
  SymValue x = numeric(a), y = numeric(b);
  if (std::holds_alternative<int64_t>(x) && std::holds_alternative<int64_t>(y))
    return lift(integer(std::get<int64_t>(x), std::get<int64_t>(y)));
  return SymValue(real(toReal(x), toReal(y)));
}

MaybeValue applyBinary(Kind kind, const SymValue &a, const SymValue &b) {
  switch (kind) {
  case Kind::Add:
    return arithmetic(a, b, checkedAdd,
                      [](double x, double y) { return x + y; });
  case Kind::Mul:
    return arithmetic(a, b, checkedMul,
                      [](double x, double y) { return x * y; });
  case Kind::FloorDiv:
    if (toWide(b) == 0)
      return std::nullopt;
    return arithmetic(a, b, checkedFloorDiv, [](double x, double y) {
      return (x - floorMod(x, y)) / y;
    });
  case Kind::Mod:
    if (toWide(b) == 0)
      return std::nullopt;
    return arithmetic(a, b, checkedMod, floorMod);
  case Kind::Pow: {
    SymValue x = numeric(a), y = numeric(b);
    const int64_t *base = std::get_if<int64_t>(&x);
    const int64_t *exponent = std::get_if<int64_t>(&y);
    if (base && exponent && *exponent >= 0)
      return lift(checkedPow(*base, *exponent));
    if (toReal(x) == 0 && toReal(y) < 0)
      return std::nullopt;
    return SymValue(std::pow(toReal(x), toReal(y)));
  }
  case Kind::TrueDiv:
    if (toWide(b) == 0)
      return std::nullopt;
    return SymValue(static_cast<double>(toWide(a) / toWide(b)));
  case Kind::RoundDecimal: {
    const int64_t *digits = std::get_if<int64_t>(&b);
    if (!digits)
      return std::nullopt;
    return SymValue(SymExpr::roundDecimal(toReal(a), *digits));
  }
  case Kind::BitAnd:
  case Kind::BitOr:
  case Kind::BitXor: {
    SymValue x = numeric(a), y = numeric(b);
    const int64_t *left = std::get_if<int64_t>(&x);
    const int64_t *right = std::get_if<int64_t>(&y);
    if (!left || !right)
      return std::nullopt;
    return SymValue(bitwise(kind, *left, *right));
  }
  case Kind::Min:
    return toWide(b) < toWide(a) ? b : a;
  case Kind::Max:
    return toWide(a) < toWide(b) ? b : a;
  default:
    return SymValue(holds(kind, toWide(a), toWide(b)));
  }
}

MaybeValue applyUnary(Kind kind, const SymValue &value) {
  SymValue a = numeric(value);
  const int64_t *integer = std::get_if<int64_t>(&a);
  switch (kind) {
  case Kind::Abs:
    if (!integer)
      return SymValue(std::fabs(toReal(a)));
    return *integer < 0 ? lift(checkedSub(0, *integer)) : MaybeValue(a);
  case Kind::ToFloat:
    return SymValue(toReal(a));
  default:
    if (const SymExpr::RealFunction *function = SymExpr::realFunction(kind)) {
      std::optional<double> result = (*function)(toReal(a));
      return result ? MaybeValue(*result) : std::nullopt;
    }
    // The roundings.
    return integer ? MaybeValue(a) : lift(roundedTo(kind, toReal(a)));
  }
}

MaybeValue evaluateIn(const SymExpr &e, const Lookup &lookup) {
  const auto &ops = e.operands();
  switch (e.kind()) {
  case Kind::Integer:
    return SymValue(*e.asInteger());
  case Kind::Float:
    return SymValue(*e.asReal());
  case Kind::Bool:
    return SymValue(*e.asBool());
  case Kind::Symbol:
    return lookup(e.name());
  case Kind::And:
  case Kind::Or:
    for (const SymExpr &operand : ops) {
      MaybeValue value = evaluateIn(operand, lookup);
      if (!value)
        return std::nullopt;
      if (isTrue(*value) == (e.kind() == Kind::Or))
        return SymValue(e.kind() == Kind::Or);
    }
    return SymValue(e.kind() == Kind::And);
  case Kind::Not: {
    MaybeValue value = evaluateIn(ops[0], lookup);
    if (!value)
      return std::nullopt;
    return SymValue(!isTrue(*value));
  }
  case Kind::Select: {
    // The branch not taken may well divide by zero.
    MaybeValue condition = evaluateIn(ops[0], lookup);
    if (!condition)
      return std::nullopt;
    return evaluateIn(ops[isTrue(*condition) ? 1 : 2], lookup);
  }
  default:
    break;
  }
  MaybeValue result = evaluateIn(ops[0], lookup);
  if (result && ops.size() == 1 && arity(e.kind()) == 1)
    return applyUnary(e.kind(), *result);
  for (size_t i = 1; i < ops.size() && result; ++i) {
    MaybeValue next = evaluateIn(ops[i], lookup);
    if (!next)
      return std::nullopt;
    result = applyBinary(e.kind(), *result, *next);
  }
  return result;
}
} // namespace

std::optional<SymValue> SymExpr::evaluate(const Lookup &lookup) const {
  return evaluateIn(*this, lookup);
}
