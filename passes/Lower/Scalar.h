//===- Scalar.h - Arithmetic on one element -----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A value with a dtype and C++ operators, so that an operator's formula is
// written once and reads as in PyTorch's source. A complex number has the
// operators of arithmetic and of equality alone, and is held as an integer: the
// bits of its real part below those of its imaginary part, as in memory.
// Integers wrap, `max` and `min` propagate NaN, comparisons are ordered (false
// with NaN) but `!=`, which is true with it: what C++ does. Nothing is
// contracted or reassociated.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_SCALAR_H
#define INTARSIA_PASSES_LOWER_SCALAR_H

#include "passes/Lower/Lowering.h"

namespace intarsia::lower {

/// Where scalars are emitted.
struct ScalarContext {
  KernelBuilder &kernel;
  mlir::OpBuilder &builder;
  mlir::Location loc;
};

class Scalar {
public:
  Scalar(const ScalarContext &context, mlir::Value value, DType dtype)
      : context(&context), value(value), type(dtype) {}

  const ScalarContext &getContext() const { return *context; }
  mlir::Value getValue() const { return value; }
  DType dtype() const { return type; }
  bool isFloat() const { return isFloatingPoint(type); }
  bool isComplexNumber() const { return isComplex(type); }

  /// Of a complex number. A real one's imaginary part is 0.
  Scalar real() const;
  Scalar imaginary() const;

  /// Another scalar of the same dtype and place.
  Scalar with(mlir::Value other) const { return {*context, other, type}; }
  Scalar constant(double number) const;
  Scalar constant(int64_t number) const;
  Scalar constant(int number) const { return constant(int64_t(number)); }
  Scalar to(DType dtype) const;
  /// Rounds to `dtype` and comes back.
  Scalar roundedTo(DType dtype) const { return to(dtype).to(type); }

  Scalar operator-() const;

private:
  const ScalarContext *context;
  mlir::Value value;
  DType type;
};

Scalar operator+(const Scalar &a, const Scalar &b);
Scalar operator-(const Scalar &a, const Scalar &b);
Scalar operator*(const Scalar &a, const Scalar &b);
/// Floats and complex numbers.
Scalar operator/(const Scalar &a, const Scalar &b);
Scalar operator<(const Scalar &a, const Scalar &b);
Scalar operator<=(const Scalar &a, const Scalar &b);
Scalar operator>(const Scalar &a, const Scalar &b);
Scalar operator>=(const Scalar &a, const Scalar &b);
Scalar operator==(const Scalar &a, const Scalar &b);
Scalar operator!=(const Scalar &a, const Scalar &b);
/// Bitwise; on bool, logical.
Scalar operator&(const Scalar &a, const Scalar &b);
Scalar operator|(const Scalar &a, const Scalar &b);
Scalar operator^(const Scalar &a, const Scalar &b);
Scalar operator~(const Scalar &a);

#define INTARSIA_SCALAR_WITH_NUMBER(op)                                        \
  inline Scalar operator op(const Scalar &a, double b) {                       \
    return a op a.constant(b);                                                 \
  }                                                                            \
  inline Scalar operator op(double a, const Scalar &b) {                       \
    return b.constant(a) op b;                                                 \
  }
INTARSIA_SCALAR_WITH_NUMBER(+)
INTARSIA_SCALAR_WITH_NUMBER(-)
INTARSIA_SCALAR_WITH_NUMBER(*)
INTARSIA_SCALAR_WITH_NUMBER(/)
INTARSIA_SCALAR_WITH_NUMBER(<)
INTARSIA_SCALAR_WITH_NUMBER(<=)
INTARSIA_SCALAR_WITH_NUMBER(>)
INTARSIA_SCALAR_WITH_NUMBER(>=)
INTARSIA_SCALAR_WITH_NUMBER(==)
INTARSIA_SCALAR_WITH_NUMBER(!=)
#undef INTARSIA_SCALAR_WITH_NUMBER

Scalar select(const Scalar &condition, const Scalar &a, const Scalar &b);
Scalar max(const Scalar &a, const Scalar &b);
Scalar min(const Scalar &a, const Scalar &b);
/// The other one if one is NaN.
Scalar fmax(const Scalar &a, const Scalar &b);
Scalar fmin(const Scalar &a, const Scalar &b);
/// `a < b ? b : a` and its mirror: what C++'s std::max(a, b) does with NaN and
/// with zeros of either sign.
Scalar stdMax(const Scalar &a, const Scalar &b);
Scalar stdMin(const Scalar &a, const Scalar &b);
Scalar isNaN(const Scalar &a);
Scalar isInf(const Scalar &a);

/// Of two floats of one dtype.
Scalar complexNumber(const Scalar &real, const Scalar &imaginary);
Scalar conjugate(const Scalar &a);

/// Integers only; the caller knows that the divisor is neither 0 nor -1.
Scalar truncDiv(const Scalar &a, const Scalar &b);
Scalar truncMod(const Scalar &a, const Scalar &b);
/// Shifts by 0 to width - 1.
Scalar shiftLeft(const Scalar &a, const Scalar &b);
Scalar shiftRight(const Scalar &a, const Scalar &b);

/// Exact on every dtype; integers and bool return themselves where that is what
/// PyTorch does.
Scalar abs(const Scalar &a);
Scalar ceil(const Scalar &a);
Scalar floor(const Scalar &a);
Scalar trunc(const Scalar &a);
Scalar roundEven(const Scalar &a);
Scalar sqrt(const Scalar &a);
/// The length of a vector, of at most 2 ulp, without overflow on the way.
Scalar hypot(const Scalar &a, const Scalar &b);
/// a * b + c, rounded once; on integers, computed plainly.
Scalar fma(const Scalar &a, const Scalar &b, const Scalar &c);
Scalar copysign(const Scalar &magnitude, const Scalar &sign);
/// The exact remainder of a division rounded towards zero. Floats only.
Scalar fmod(const Scalar &a, const Scalar &b);

// Of at most 2 ulp. The call is declined where there is no emitter.
Scalar acos(const Scalar &a);
Scalar acosh(const Scalar &a);
Scalar asin(const Scalar &a);
Scalar asinh(const Scalar &a);
Scalar atan(const Scalar &a);
Scalar atanh(const Scalar &a);
Scalar atan2(const Scalar &a, const Scalar &b);
Scalar cos(const Scalar &a);
Scalar cosh(const Scalar &a);
Scalar erf(const Scalar &a);
Scalar erfc(const Scalar &a);
Scalar exp(const Scalar &a);
Scalar exp2(const Scalar &a);
Scalar expm1(const Scalar &a);
Scalar log(const Scalar &a);
Scalar log10(const Scalar &a);
Scalar log1p(const Scalar &a);
Scalar log2(const Scalar &a);
/// Floats only.
Scalar pow(const Scalar &a, const Scalar &b);
Scalar sin(const Scalar &a);
Scalar sinh(const Scalar &a);
Scalar tan(const Scalar &a);
Scalar tanh(const Scalar &a);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_SCALAR_H
