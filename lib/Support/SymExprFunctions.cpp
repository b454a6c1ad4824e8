//===- SymExprFunctions.cpp - Functions of floats --------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The functions that Python's math module and round() have for a SymFloat, with
// Python's values: math calls the same C library, round() rounds the decimal
// digits of the exact value.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/SymExpr.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace intarsia;
using Kind = SymExpr::Kind;

static constexpr SymExpr::RealFunction functions[] = {
    {Kind::Sqrt, "sqrt", std::sqrt}, {Kind::Exp, "exp", std::exp},
    {Kind::Log, "log", std::log},    {Kind::Log2, "log2", std::log2},
    {Kind::Sin, "sin", std::sin},    {Kind::Cos, "cos", std::cos},
    {Kind::Tan, "tan", std::tan},    {Kind::Asin, "asin", std::asin},
    {Kind::Acos, "acos", std::acos}, {Kind::Atan, "atan", std::atan},
    {Kind::Sinh, "sinh", std::sinh}, {Kind::Cosh, "cosh", std::cosh},
    {Kind::Tanh, "tanh", std::tanh}, {Kind::Asinh, "asinh", std::asinh},
};

std::span<const SymExpr::RealFunction> SymExpr::realFunctions() {
  return functions;
}

const SymExpr::RealFunction *SymExpr::realFunction(Kind kind) {
  for (const RealFunction &function : functions)
    if (function.kind == kind)
      return &function;
  return nullptr;
}

const SymExpr::RealFunction *SymExpr::realFunction(std::string_view name) {
  for (const RealFunction &function : functions)
    if (function.name == name)
      return &function;
  return nullptr;
}

std::optional<double> SymExpr::RealFunction::operator()(double x) const {
  double result = apply(x);
  bool raises = (std::isnan(result) && !std::isnan(x)) ||
                (std::isinf(result) && std::isfinite(x));
  return raises ? std::nullopt : std::optional(result);
}

double SymExpr::roundDecimal(double x, int64_t digits) {
  // Beyond these, nothing is rounded, or everything.
  if (!std::isfinite(x) || x == 0 || digits > 323)
    return x;
  if (digits < -308)
    return std::copysign(0.0, x);
  char text[1200];
  if (digits >= 0) {
    std::snprintf(text, sizeof(text), "%.*f", int(digits), x);
    return std::strtod(text, nullptr);
  }
  // The exact value has at most 767 digits, the first of which stands for
  // 10^exponent.
  std::snprintf(text, sizeof(text), "%.766e", x);
  int exponent = std::atoi(std::strchr(text, 'e') + 1);
  int kept = exponent + 1 + int(digits);
  if (kept > 0) {
    std::snprintf(text, sizeof(text), "%.*e", kept - 1, x);
    return std::strtod(text, nullptr);
  }
  // Less than half of the last place kept is nothing; half goes to the even 0.
  double half =
      std::strtod(("5e" + std::to_string(-digits - 1)).c_str(), nullptr);
  if (kept < 0 || std::fabs(x) <= half)
    return std::copysign(0.0, x);
  return std::copysign(
      std::strtod(("1e" + std::to_string(-digits)).c_str(), nullptr), x);
}
