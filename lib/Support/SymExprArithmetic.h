//===- SymExprArithmetic.h - Arithmetic of expressions ---------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the normal form and the evaluation of symbolic expressions share: int64
// arithmetic that says when it overflows, and the meaning of each kind. Private
// to this folder.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_SUPPORT_SYMEXPRARITHMETIC_H
#define INTARSIA_LIB_SUPPORT_SYMEXPRARITHMETIC_H

#include "intarsia/Support/SymExpr.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace intarsia::arithmetic {
using Kind = SymExpr::Kind;
using MaybeInt = std::optional<int64_t>;

inline MaybeInt checkedAdd(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_add_overflow(a, b, &r) ? MaybeInt() : MaybeInt(r);
}
inline MaybeInt checkedSub(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_sub_overflow(a, b, &r) ? MaybeInt() : MaybeInt(r);
}
inline MaybeInt checkedMul(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? MaybeInt() : MaybeInt(r);
}
inline MaybeInt checkedFloorDiv(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min()))
    return std::nullopt;
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
inline MaybeInt checkedMod(int64_t a, int64_t b) {
  if (b == 0)
    return std::nullopt;
  if (b == -1)
    return 0;
  int64_t r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}
/// base to the power of a non-negative exponent.
inline MaybeInt checkedPow(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if (exponent & 1) {
      MaybeInt r = checkedMul(result, base);
      if (!r)
        return r;
      result = *r;
    }
    exponent >>= 1;
    if (exponent == 0)
      return result;
    MaybeInt square = checkedMul(base, base);
    if (!square)
      return square;
    base = *square;
  }
}
inline MaybeInt integerFromReal(double value) {
  // 2^63 is a double; the largest int64 is not.
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0))
    return std::nullopt;
  return static_cast<int64_t>(value);
}
inline double floorMod(double a, double b) {
  double r = std::fmod(a, b);
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}

/// A comparison of values, each converted to a type that holds any of them.
inline bool holds(Kind kind, long double a, long double b) {
  switch (kind) {
  case Kind::Eq:
    return a == b;
  case Kind::Ne:
    return a != b;
  case Kind::Lt:
    return a < b;
  default:
    return a <= b;
  }
}

/// A float as the integer that Trunc, Floor, Ceil or Round make of it; nothing
/// when it is none.
inline std::optional<int64_t> roundedTo(Kind kind, double value) {
  switch (kind) {
  case Kind::Trunc:
    return integerFromReal(std::trunc(value));
  case Kind::Floor:
    return integerFromReal(std::floor(value));
  case Kind::Ceil:
    return integerFromReal(std::ceil(value));
  default: // Round: half to even, whatever the thread's rounding mode is.
    return integerFromReal(value - std::remainder(value, 1.0));
  }
}

/// The number of operands; 0: any number, or a leaf.
inline size_t arity(Kind kind) {
  switch (kind) {
  case Kind::Abs:
  case Kind::ToFloat:
  case Kind::Trunc:
  case Kind::Floor:
  case Kind::Ceil:
  case Kind::Round:
  case Kind::Not:
    return 1;
  case Kind::Pow:
  case Kind::FloorDiv:
  case Kind::Mod:
  case Kind::TrueDiv:
  case Kind::RoundDecimal:
  case Kind::BitAnd:
  case Kind::BitOr:
  case Kind::BitXor:
  case Kind::Eq:
  case Kind::Ne:
  case Kind::Lt:
  case Kind::Le:
    return 2;
  case Kind::Select:
    return 3;
  default:
    return SymExpr::realFunction(kind) ? 1 : 0;
  }
}

inline int64_t bitwise(Kind kind, int64_t a, int64_t b) {
  return kind == Kind::BitAnd ? a & b : kind == Kind::BitOr ? a | b : a ^ b;
}

/// A total order: negative, 0 or positive.
int compare(const SymExpr &a, const SymExpr &b);

} // namespace intarsia::arithmetic

#endif // INTARSIA_LIB_SUPPORT_SYMEXPRARITHMETIC_H
