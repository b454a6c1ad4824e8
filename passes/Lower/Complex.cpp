//===- Complex.cpp - Operators on complex numbers -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Which operators have kernels for complex tensors. Most are the entries that
// real tensors have, since the formulas of arithmetic are the same and a move
// of elements is one of their bits; those that give a real result, or are
// another function, have formulas here.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Arguments.h"

#include <cmath>
#include <limits>
#include <numbers>

using namespace mlir;

namespace intarsia::lower {
namespace {

using ScalarFormula = Scalar (*)(const Scalar &);

/// A function of each element, of the call's argument `self`.
template <ScalarFormula formula>
Lowered lowerUnary(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Argument> self = argument(call, kernel, "self");
  if (!self)
    return failure();
  return lowerPointwise(
      call, kernel, *self, self->dtype, NumberPrecision::Rounded,
      [](ArrayRef<Scalar> scalars) { return formula(scalars[0]); });
}

/// A complex result of two real arguments.
template <auto formula>
Lowered lowerOfParts(graph::CallOp call, KernelBuilder &kernel, StringRef first,
                     StringRef second) {
  std::optional<Argument> a = argument(call, kernel, first);
  std::optional<Argument> b = argument(call, kernel, second);
  if (!a || !b)
    return failure();
  return lowerPointwise(call, kernel, {*a, *b}, realDType(resultDType(call)),
                        NumberPrecision::Rounded, [](ArrayRef<Scalar> scalars) {
                          return formula(scalars[0], scalars[1]);
                        });
}

Lowered lowerComplex(graph::CallOp call, KernelBuilder &kernel) {
  return lowerOfParts<complexNumber>(call, kernel, "real", "imag");
}

Scalar fromPolar(const Scalar &length, const Scalar &angle) {
  return complexNumber(length * cos(angle), length * sin(angle));
}

Lowered lowerPolar(graph::CallOp call, KernelBuilder &kernel) {
  return lowerOfParts<fromPolar>(call, kernel, "abs", "angle");
}

Scalar length(const Scalar &z) { return hypot(z.real(), z.imaginary()); }
Scalar angle(const Scalar &z) { return atan2(z.imaginary(), z.real()); }

/// The number of length 1 in the same direction; 0 has none.
Scalar direction(const Scalar &z) {
  Scalar by = length(z);
  Scalar isZero = by == 0.0, zero = by.constant(0);
  return complexNumber(select(isZero, zero, z.real() / by),
                       select(isZero, zero, z.imaginary() / by));
}

Scalar conjugated(const Scalar &z) { return conjugate(z); }

//===----------------------------------------------------------------------===//
// Functions of complex numbers, computed in f64
//===----------------------------------------------------------------------===//
//
// Of f32, in which no square overflows or vanishes; of f64, with a scale where
// one would and with what a product loses where terms cancel.

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A complex number in f64.
struct Wide {
  Scalar x, y;
  /// Whether it came from f32.
  bool isShort;
};

Wide widened(const Scalar &z) {
  return {z.real().to(DType::F64), z.imaginary().to(DType::F64),
          z.dtype() == DType::C64};
}

Scalar narrowed(const Wide &z) {
  DType part = z.isShort ? DType::F32 : DType::F64;
  return complexNumber(z.x.to(part), z.y.to(part));
}

template <Wide (*function)(const Wide &)>
Scalar inDouble(const Scalar &z) {
  return narrowed(function(widened(z)));
}

/// Where there is a formula for f32 alone.
template <Wide (*function)(const Wide &)>
Scalar ofShort(const Scalar &z) {
  if (z.dtype() != DType::C64)
    z.getContext().kernel.decline();
  return inDouble<function>(z);
}

Scalar isFinite(const Scalar &x) { return abs(x) < infinity; }

/// A power of two that brings numbers of this size away from where squares
/// overflow or vanish.
struct Scale {
  Scalar isLarge, isSmall, up;

  explicit Scale(const Scalar &size)
      : isLarge(size > 0x1p500), isSmall(size < 0x1p-400),
        up(choose(0x1p-600, 0x1p600, 1)) {}
  Scalar choose(double ifLarge, double ifSmall, double otherwise) const {
    auto number = [&](double x) {
      return Scalar(isLarge.getContext(), nullptr, DType::F64).constant(x);
    };
    return select(isLarge, number(ifLarge),
                  select(isSmall, number(ifSmall), number(otherwise)));
  }
};

/// As C's cexp has it.
Wide exponential(const Wide &z) {
  const Scalar &x = z.x, &y = z.y;
  Scalar cosine = cos(y), sine = sin(y), power = exp(x);
  if (z.isShort) {
    cosine = power * cosine;
    sine = power * sine;
  } else {
    // A cosine may make small enough what would overflow alone.
    constexpr double most = 700;
    Scalar isLarge = x > most;
    power = exp(select(isLarge, x - most, x));
    Scalar rest = select(isLarge, x.constant(std::exp(most)), x.constant(1));
    cosine = power * cosine * rest;
    sine = power * sine * rest;
  }
  // An angle that is none has no direction, but 0 and infinity their length.
  Scalar isAngle = isFinite(y), zero = x.constant(0);
  Scalar isZero = ~isAngle & (x == -infinity);
  Scalar isInfinite = ~isAngle & (x == infinity), isReal = y == 0.0;
  Scalar real =
      select(isReal | isInfinite, exp(x), select(isZero, zero, cosine));
  return {real, select(isReal, y, select(isZero, copysign(zero, y), sine)),
          z.isShort};
}

/// The logarithm of the length.
Scalar logarithmOfLength(const Scalar &x, const Scalar &y, bool isShort) {
  Scalar a = abs(x), b = abs(y);
  Scalar large = max(a, b), small = min(a, b);
  Scalar first = large * large, second = small * small;
  Scalar square = first + second;
  Scalar isNear = (square > 0.5) & (square < 2.0);
  Scalar excess = square, far = square;
  if (isShort) {
    // Squares of f32 are exact, and so is what is lost near a length of 1.
    excess = (large - 1.0) * (large + 1.0) + second;
    far = 0.5 * log(square);
  } else {
    Scalar lost = (second - (square - first)) + fma(large, large, -first) +
                  fma(small, small, -second);
    excess = (square - 1.0) + lost;
    Scale scale(large);
    far = log(hypot(large * scale.up, small * scale.up)) +
          scale.choose(600 * std::numbers::ln2, -600 * std::numbers::ln2, 0);
  }
  Scalar isInfinite = (a == infinity) | (b == infinity);
  return select(isInfinite, a.constant(infinity),
                select(isNear, 0.5 * log1p(excess), far));
}

Wide logarithm(const Wide &z) {
  return {logarithmOfLength(z.x, z.y, z.isShort), atan2(z.y, z.x), z.isShort};
}

Wide logarithmOf10(const Wide &z) {
  Wide log = logarithm(z);
  return {log.x / std::log(10.0), log.y / std::log(10.0), z.isShort};
}

Wide logarithmOf2(const Wide &z) {
  Wide log = logarithm(z);
  return {log.x / std::log(2.0), log.y / std::log(2.0), z.isShort};
}

Wide squareRoot(const Wide &z) {
  Scalar a = abs(z.x), b = abs(z.y), zero = a.constant(0), root = a;
  if (z.isShort) {
    root = sqrt((a + sqrt(a * a + b * b)) * 0.5);
  } else {
    Scale scale(max(a, b));
    Scalar scaled = a * scale.up;
    root = sqrt((scaled + hypot(scaled, b * scale.up)) * 0.5) *
           scale.choose(0x1p300, 0x1p-300, 1);
  }
  root = select(a == infinity, a, root);
  Scalar other = b / (root + root);
  // Nothing is divided by 0 and by infinity.
  other =
      select((root == 0.0) | ((a == infinity) & isFinite(z.y)), zero, other);
  Scalar isRight = z.x >= 0.0;
  Scalar real = select(isRight, root, other);
  Scalar imaginary = select(isRight, other, root);
  Scalar isInfinite = b == infinity;
  Scalar most = a.constant(infinity);
  return {select(isInfinite, most, real),
          copysign(select(isInfinite, most, imaginary), z.y), z.isShort};
}

/// sinh(x)*cos(y) and cosh(x)*sin(y), or with the angle's functions exchanged.
Wide hyperbolicProducts(const Wide &z, const Scalar &ofSinh,
                        const Scalar &ofCosh) {
  Scalar bySinh = sinh(z.x) * ofSinh, byCosh = cosh(z.x) * ofCosh;
  if (!z.isShort) {
    // What would overflow alone may not, times a small number.
    constexpr double most = 700;
    Scalar isLarge = abs(z.x) > most;
    Scalar half = exp(abs(z.x) - most) * 0.5;
    bySinh =
        select(isLarge, copysign(half, z.x) * ofSinh * std::exp(most), bySinh);
    byCosh = select(isLarge, half * ofCosh * std::exp(most), byCosh);
  }
  return {bySinh, byCosh, z.isShort};
}

/// As C's csinh and ccosh have the products that are 0 times what is no number.
Wide hyperbolicSine(const Wide &z) {
  auto [real, imaginary, isShort] = hyperbolicProducts(z, cos(z.y), sin(z.y));
  real = select((z.x == 0.0) & ~isFinite(z.y), z.x, real);
  imaginary = select(z.y == 0.0, z.y, imaginary);
  Scalar isOpen = (abs(z.x) == infinity) & ~isFinite(z.y);
  return {select(isOpen, real.constant(infinity), real), imaginary, isShort};
}

Wide hyperbolicCosine(const Wide &z) {
  auto [imaginary, real, isShort] = hyperbolicProducts(z, sin(z.y), cos(z.y));
  // The sign of a NaN is none.
  Scalar zero = select(isNaN(z.x), z.y, z.y * copysign(z.x.constant(1), z.x));
  imaginary = select(z.y == 0.0, zero, imaginary);
  imaginary = select((z.x == 0.0) & ~isFinite(z.y), z.x.constant(0), imaginary);
  Scalar isOpen = (abs(z.x) == infinity) & ~isFinite(z.y);
  return {select(isOpen, real.constant(infinity), real), imaginary, isShort};
}

/// (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y).
Wide hyperbolicTangent(const Wide &z) {
  // Beyond, the real part is 1 and the square in the divisor all of it.
  constexpr double most = 20;
  Scalar size = abs(z.x), isFar = size > most;
  Scalar x = select(isFar, copysign(z.x.constant(most), z.x), z.x);
  Scalar sine = sin(z.y), cosine = cos(z.y), growth = sinh(x);
  Scalar below = growth * growth + cosine * cosine;
  Scalar real = growth * cosh(x) / below, imaginary = sine * cosine / below;
  imaginary = select(isFar, 4.0 * sine * cosine * exp(-2.0 * size), imaginary);
  real = select(isFar, copysign(z.x.constant(1), z.x), real);
  // An angle that is none has no direction.
  Scalar isOne = (size == infinity) & ~isFinite(z.y);
  imaginary = select(isOne, copysign(z.x.constant(0), z.y), imaginary);
  real = select(isFar & ~isOne & ~isFinite(z.y), z.y - z.y, real);
  real = select(z.x == 0.0, z.x, real);
  return {real, select(z.y == 0.0, z.y, imaginary), z.isShort};
}

/// The angle asin(x/a) or acos(x/a) and log(a + sqrt(a^2 - 1)), of which the
/// four functions are made, of |x| and |y|; a is half the sum of the distances
/// from 1 and -1 (Hull, Fairgrieve and Tang, Implementing the complex arcsine
/// and arccosine functions using exception handling, 1997).
struct Arcs {
  Scalar fromSine, fromCosine, length;

  explicit Arcs(const Wide &z) : fromSine(z.x), fromCosine(z.x), length(z.x) {
    Scalar x = abs(z.x), y = abs(z.y), square = y * y;
    Scalar next = x + 1.0, less = x - 1.0;
    Scalar r = sqrt(next * next + square), s = sqrt(less * less + square);
    Scalar a = (r + s) * 0.5, b = x / a, sum = a + x;
    // Near 1, asin and acos are arc tangents of what does not cancel.
    Scalar isInside = x <= 1.0;
    Scalar inside = sqrt(0.5 * sum * (square / (r + next) + (s - less)));
    Scalar outside = y * sqrt(0.5 * (sum / (r + next) + sum / (s + less)));
    Scalar height = select(isInside, inside, outside);
    Scalar isSmall = b <= 0.6417;
    fromSine = select(isSmall, asin(b), atan2(x, height));
    fromCosine = select(isSmall, acos(b), atan2(height, x));
    Scalar excess = 0.5 * (square / (r + next) +
                           select(x < 1.0, square / (s - less), s + less));
    length = select(a <= 1.5, log1p(excess + sqrt(excess * (a + 1.0))),
                    log(a + sqrt(a * a - 1.0)));
    // Of infinity, the directions.
    Scalar zero = x.constant(0), one = x.constant(1);
    Scalar isWide = x == infinity, isHigh = y == infinity;
    Scalar isInfinite = isWide | isHigh, hasNaN = isNaN(x) | isNaN(y);
    Scalar across = select(isWide, one, zero), up = select(isHigh, one, zero);
    Scalar none = x.constant(std::numeric_limits<double>::quiet_NaN());
    auto direction = [&](const Scalar &angle, const Scalar &ofInfinity) {
      return select(hasNaN, none, select(isInfinite, ofInfinity, angle));
    };
    fromSine = direction(fromSine, atan2(across, up));
    fromCosine = direction(fromCosine, atan2(up, across));
    length =
        select(isInfinite, x.constant(infinity), select(hasNaN, none, length));
  }
};

Wide arcSine(const Wide &z) {
  Arcs arcs(z);
  Scalar real = select(z.x == 0.0, z.x, copysign(arcs.fromSine, z.x));
  return {real, copysign(arcs.length, z.y), z.isShort};
}

Wide arcCosine(const Wide &z) {
  Arcs arcs(z);
  Scalar isLeft = copysign(z.x.constant(1), z.x) < 0.0;
  Scalar real =
      select(isLeft, std::numbers::pi - arcs.fromCosine, arcs.fromCosine);
  real = select(z.x == 0.0, z.x.constant(std::numbers::pi / 2), real);
  return {real, -copysign(arcs.length, z.y), z.isShort};
}

Wide areaCosine(const Wide &z) {
  Wide arc = arcCosine(z);
  return {abs(arc.y), copysign(arc.x, z.y), z.isShort};
}

Wide areaTangent(const Wide &z) {
  Scalar x = abs(z.x), rest = 1.0 - x, square = z.y * z.y;
  Scalar real = 0.25 * log1p(4.0 * x / (rest * rest + square));
  Scalar imaginary = 0.5 * atan2(2.0 * z.y, rest * (1.0 + x) - square);
  Scalar isInfinite = (x == infinity) | (abs(z.y) == infinity);
  real = select(isInfinite | (x == 0.0), x.constant(0), real);
  imaginary =
      select(isInfinite & ~isNaN(z.y),
             copysign(x.constant(std::numbers::pi / 2), z.y), imaginary);
  return {copysign(real, z.x), imaginary, z.isShort};
}

// Those of an angle are those of the number turned by a right angle.

template <Wide (*function)(const Wide &)>
Wide turned(const Wide &z) {
  auto [y, x, isShort] = function({z.y, z.x, z.isShort});
  return {x, y, isShort};
}

Wide cosine(const Wide &z) { return hyperbolicCosine({-z.y, z.x, z.isShort}); }

//===----------------------------------------------------------------------===//
// Functions with eager's roundings on the way
//===----------------------------------------------------------------------===//

/// exp(z) - 1, as c10 has it.
Scalar exponentialLess1(const Scalar &z) {
  Scalar x = z.real(), y = z.imaginary(), half = sin(y * 0.5);
  return complexNumber(expm1(x) * cos(y) - 2.0 * half * half, exp(x) * sin(y));
}

/// log(1 + z), as c10 has it for a CPU: with the logarithm of the rounded sum,
/// times the ratio of what was asked for and what was added.
Scalar logarithmOf1And(const Scalar &z) {
  Scalar x = z.real(), y = z.imaginary(), next = x + 1.0;
  Scalar added = complexNumber(next - 1.0, y);
  Scalar log = inDouble<logarithm>(complexNumber(next, y));
  Scalar isNone = (next == 1.0) & (y == 0.0);
  return select(isNone, z, select(added == z, log, log * (z / added)));
}

/// The product as C's operator has it (ISO C, annex G): infinite where a factor
/// is infinite, or a product of parts, though both sums are no numbers.
Scalar productOfC(const Scalar &a, const Scalar &b) {
  Scalar ar = a.real(), ai = a.imaginary(), br = b.real(), bi = b.imaginary();
  Scalar product = a * b, zero = ar.constant(0), one = ar.constant(1);
  Scalar isNone = isNaN(product.real()) & isNaN(product.imaginary());
  Scalar isInfiniteA = isInf(ar) | isInf(ai);
  Scalar isInfiniteB = isInf(br) | isInf(bi);
  Scalar overflows =
      isInf(ar * br) | isInf(ai * bi) | isInf(ar * bi) | isInf(ai * br);
  // A part that is none is 0; beside an infinite one, so is a finite one.
  auto boxed = [&](const Scalar &x, const Scalar &isInfinite) {
    Scalar box = copysign(select(isInf(x), one, zero), x);
    return select(isInfinite | isNaN(x), box, x);
  };
  ar = boxed(ar, isInfiniteA);
  ai = boxed(ai, isInfiniteA);
  br = boxed(br, isInfiniteB);
  bi = boxed(bi, isInfiniteB);
  Scalar most = zero.constant(infinity);
  return select(
      isNone & (isInfiniteA | isInfiniteB | overflows),
      complexNumber(most * (ar * br - ai * bi), most * (ar * bi + ai * br)),
      product);
}

/// As C's cpow: what the logarithm and the product lose is as large as the
/// exponent makes it.
Scalar power(const Scalar &base, const Scalar &exponent) {
  return inDouble<exponential>(productOfC(exponent, inDouble<logarithm>(base)));
}

/// Exponents that eager has other kernels for are those of its pow of a tensor
/// and a number.
Lowered lowerPower(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Argument> self = argument(call, kernel, "self");
  std::optional<Argument> exponent = argument(call, kernel, "exponent");
  if (!self || !exponent)
    return failure();
  std::optional<double> number;
  if (exponent->isNumber())
    number = exponent->constantFloat();
  bool isOfOne = self->isNumber() && self->constantFloat() == 1.0;
  return lowerPointwise(call, kernel, {*self, *exponent}, resultDType(call),
                        NumberPrecision::Rounded,
                        [&](ArrayRef<Scalar> v) -> Scalar {
                          const Scalar &z = v[0];
                          if (isOfOne || number == 0.0)
                            return z.constant(1);
                          if (number == 1.0)
                            return z;
                          if (number == 2.0)
                            return z * z;
                          if (number == 3.0)
                            return z * z * z;
                          if (number == -1.0)
                            return 1.0 / z;
                          if (number == -2.0)
                            return 1.0 / (z * z);
                          if (number == 0.5)
                            return inDouble<squareRoot>(z);
                          if (number == -0.5)
                            return 1.0 / inDouble<squareRoot>(z);
                          return power(z, v[1]);
                        });
}

// Formulas that eager has of complex arithmetic.

Scalar sigmoidOf(const Scalar &z) {
  return 1.0 / (1.0 + inDouble<exponential>(-z));
}
Scalar reciprocalRoot(const Scalar &z) { return 1.0 / inDouble<squareRoot>(z); }
Scalar siluOf(const Scalar &z) { return z / (1.0 + inDouble<exponential>(-z)); }

/// Moves of elements, and arithmetic, by names of entries for real tensors.
constexpr StringLiteral asReal[] = {
    "_unsafe_index.Tensor",
    "add.Scalar",
    "add.Tensor",
    "addcdiv",
    "addcmul",
    "cat",
    "cumprod",
    "cumsum",
    "clone",
    "constant_pad_nd",
    "contiguous",
    "copy",
    "div.Scalar",
    "div.Tensor",
    "divide.Scalar",
    "divide.Tensor",
    "embedding",
    "eq.Scalar",
    "eq.Tensor",
    "eye",
    "eye.m",
    "fill.Scalar",
    "fill.Tensor",
    "flip",
    "full",
    "full_like",
    "gather",
    "index.Tensor",
    "index_put",
    "index_select",
    "isinf",
    "isnan",
    "lift_fresh_copy",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "masked_fill.Scalar",
    "masked_fill.Tensor",
    "mean",
    "mean.dim",
    "mul.Scalar",
    "mul.Tensor",
    "multiply.Scalar",
    "multiply.Tensor",
    "ne.Scalar",
    "ne.Tensor",
    "neg",
    "negative",
    "new_full",
    "new_ones",
    "new_zeros",
    "not_equal.Scalar",
    "not_equal.Tensor",
    "ones",
    "ones_like",
    "prod",
    "prod.dim_int",
    "reciprocal",
    "repeat",
    "roll",
    "rsub.Scalar",
    "rsub.Tensor",
    "scalar_tensor",
    "scatter.src",
    "scatter.value",
    "select_backward",
    "select_scatter",
    "slice_backward",
    "slice_scatter",
    "square",
    "stack",
    "sub.Scalar",
    "sub.Tensor",
    "subtract.Scalar",
    "subtract.Tensor",
    "sum",
    "sum.dim_IntList",
    "to.device",
    "to.dtype",
    "to.dtype_layout",
    "tril",
    "triu",
    "true_divide.Scalar",
    "true_divide.Tensor",
    "type_as",
    "where.Scalar",
    "where.ScalarOther",
    "where.ScalarSelf",
    "where.self",
    "zero",
    "zeros",
    "zeros_like",
    "_to_copy",
};
constexpr StringLiteral primsAsReal[] = {
    "add", "cat",        "clone", "convert_element_type",
    "div", "eq",         "fill",  "full",
    "mul", "full_like",  "ne",    "neg",
    "sub", "reciprocal", "where", "scalar_tensor",
    "sum",
};

} // namespace

void registerComplex(LoweringTable &table) {
  for (StringRef name : asReal) {
    std::string full = ("aten::" + name).str();
    table.addComplex(full, table.lookup(full));
  }
  for (StringRef name : primsAsReal) {
    std::string full = ("prims::" + name).str();
    table.addComplex(full, table.lookup(full));
  }
  table.addComplex("aten::abs", lowerUnary<length>);
  table.addComplex("aten::absolute", lowerUnary<length>);
  table.addComplex("aten::angle", lowerUnary<angle>);
  table.addComplex("aten::complex", lowerComplex);
  table.addComplex("aten::_conj_physical", lowerUnary<conjugated>);
  table.addComplex("prims::conj_physical", lowerUnary<conjugated>);
  table.addComplex("aten::polar", lowerPolar);
  for (StringRef name : {"Scalar", "Tensor_Scalar", "Tensor_Tensor"})
    table.addComplex(("aten::pow." + name).str(), lowerPower);
  table.addComplex("aten::sgn", lowerUnary<direction>);
  auto add = [&](StringRef name, Lowering lowering) {
    table.addComplex(("aten::" + name).str(), lowering);
    if (table.lookup(("prims::" + name).str()))
      table.addComplex(("prims::" + name).str(), lowering);
  };
  add("acos", lowerUnary<ofShort<arcCosine>>);
  add("acosh", lowerUnary<ofShort<areaCosine>>);
  add("asin", lowerUnary<ofShort<arcSine>>);
  add("asinh", lowerUnary<ofShort<turned<arcSine>>>);
  add("atan", lowerUnary<ofShort<turned<areaTangent>>>);
  add("atanh", lowerUnary<ofShort<areaTangent>>);
  add("cos", lowerUnary<inDouble<cosine>>);
  add("cosh", lowerUnary<inDouble<hyperbolicCosine>>);
  add("exp", lowerUnary<inDouble<exponential>>);
  add("expm1", lowerUnary<exponentialLess1>);
  add("log", lowerUnary<inDouble<logarithm>>);
  add("log10", lowerUnary<inDouble<logarithmOf10>>);
  add("log1p", lowerUnary<logarithmOf1And>);
  add("log2", lowerUnary<inDouble<logarithmOf2>>);
  add("rsqrt", lowerUnary<reciprocalRoot>);
  add("sigmoid", lowerUnary<sigmoidOf>);
  add("silu", lowerUnary<siluOf>);
  add("sin", lowerUnary<inDouble<turned<hyperbolicSine>>>);
  add("sinh", lowerUnary<inDouble<hyperbolicSine>>);
  add("sqrt", lowerUnary<inDouble<squareRoot>>);
  add("tan", lowerUnary<inDouble<turned<hyperbolicTangent>>>);
  add("tanh", lowerUnary<inDouble<hyperbolicTangent>>);
}

} // namespace intarsia::lower
