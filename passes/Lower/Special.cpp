//===- Special.cpp - Functions made of others ---------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The gamma function's logarithm and its derivative, in f64 for f32: a
// polynomial between 1 and 2.5, with the function's zeros as factors,
// Stirling's series above, one step of the recurrence below, and the reflection
// at 0.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Special.h"
#include "passes/CPU/MathCoefficients.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>
#include <numbers>

using namespace mlir;

namespace intarsia::lower {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
/// Up to here the polynomial, from here on the series.
constexpr double seriesFrom = 2.5;

Scalar polynomial(const Scalar &x, ArrayRef<double> coefficients) {
  Scalar result = x.constant(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    result = result * x + coefficient;
  return result;
}

/// What a formula needs of x > 0, and of pi*x for the reflection.
struct Parts {
  explicit Parts(const Scalar &x)
      : a(abs(x)), isSmall(a < 1.0), isSeries(a >= seriesFrom),
        middle(select(isSmall, a + 1.0, a)),
        inverse(1.0 / select(isSeries, a, a.constant(seriesFrom))),
        logarithm(log(a)), fraction(a - roundEven(a)) {}

  Scalar a, isSmall, isSeries, middle, inverse, logarithm;
  Scalar fraction; // exact, in [-1/2, 1/2]
};

/// In double, where rounding errors don't matter to an f32.
template <typename Formula>
Scalar inDouble(const Scalar &x, Formula formula) {
  if (x.dtype() != DType::F32) {
    x.getContext().kernel.decline();
    return x;
  }
  return formula(x.to(DType::F64)).to(DType::F32);
}

} // namespace

Scalar cbrt(const Scalar &x) {
  const ScalarContext &context = x.getContext();
  if (x.dtype() != DType::F32) {
    context.kernel.decline();
    return x;
  }
  return x.with(
      math::CbrtOp::create(context.builder, context.loc, x.getValue()));
}

Scalar logGamma(const Scalar &x) {
  return inDouble(x, [](const Scalar &x) {
    Parts parts(x);
    const Scalar &a = parts.a, &m = parts.middle;
    Scalar near = (m - 1.0) * (m - 2.0) *
                  polynomial(m - 1.75, coefficients::lgammaShortF64);
    // Less -0.0, the zero at 1 has no sign.
    near = near - select(parts.isSmall, parts.logarithm, a.constant(-0.0));
    // log(2*pi)/2.
    constexpr double halfLogTwoPi = 0x1.d67f1c864beb5p-1;
    Scalar square = parts.inverse * parts.inverse;
    Scalar far =
        (a - 0.5) * parts.logarithm - a + halfLogTwoPi +
        parts.inverse * polynomial(square, coefficients::lgammaTailShortF64);
    Scalar positive = select(parts.isSeries, far, near);
    // gamma(x)*gamma(-x) = -pi/(x*sin(pi*x)).
    Scalar sine = abs(sin(parts.fraction * std::numbers::pi));
    Scalar negative = log(std::numbers::pi / (a * sine)) - positive;
    Scalar isPole = (x <= 0.0) & (parts.fraction == 0.0);
    Scalar result = select(x < 0.0, negative, positive);
    return select(isPole | isInf(x), x.constant(inf), result);
  });
}

Scalar digamma(const Scalar &x) {
  return inDouble(x, [](const Scalar &x) {
    Parts parts(x);
    const Scalar &a = parts.a, &m = parts.middle;
    // The zero between 1 and 2.
    constexpr double root = 0x1.762d86356be3fp+0;
    constexpr double rootRest = 0x1.b86a722197829p-54;
    Scalar near = (m - root - rootRest) *
                  polynomial(m - 1.75, coefficients::digammaShortF64);
    near = near - select(parts.isSmall, 1.0 / a, a.constant(0));
    Scalar square = parts.inverse * parts.inverse;
    Scalar far = parts.logarithm - parts.inverse * 0.5 +
                 square * polynomial(square, coefficients::digammaTailShortF64);
    Scalar positive = select(parts.isSeries, far, near);
    // psi(-x) = psi(x) + 1/x + pi/tan(pi*x).
    Scalar angle = parts.fraction * std::numbers::pi;
    Scalar negative =
        positive + 1.0 / a + std::numbers::pi * cos(angle) / sin(angle);
    Scalar isPole = (x < 0.0) & (parts.fraction == 0.0);
    Scalar result = select(x < 0.0, negative, positive);
    result = select(isPole, x.constant(nan), result);
    result = select(x == inf, x, result);
    return select(x == 0.0, copysign(x.constant(inf), -x), result);
  });
}

} // namespace intarsia::lower
