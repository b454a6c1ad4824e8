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

/// As C's cexp has it, in double.
Scalar exponential(const Scalar &z) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  Scalar x = z.real().to(DType::F64), y = z.imaginary().to(DType::F64);
  Scalar cosine = cos(y), sine = sin(y), power = exp(x);
  if (z.dtype() == DType::C128) {
    // A cosine may make small enough what would overflow alone.
    constexpr double most = 700;
    Scalar isLarge = x > most;
    power = exp(select(isLarge, x - most, x));
    Scalar rest = select(isLarge, x.constant(std::exp(most)), x.constant(1));
    cosine = power * cosine * rest;
    sine = power * sine * rest;
  } else {
    cosine = power * cosine;
    sine = power * sine;
  }
  // An angle that is none has no direction, but 0 and infinity their length.
  Scalar isAngle = abs(y) < inf, zero = x.constant(0);
  Scalar isZero = ~isAngle & (x == -inf), isInfinite = ~isAngle & (x == inf);
  Scalar isReal = y == 0.0;
  Scalar real =
      select(isReal | isInfinite, exp(x), select(isZero, zero, cosine));
  Scalar imaginary = select(isReal, y, select(isZero, copysign(zero, y), sine));
  DType part = realDType(z.dtype());
  return complexNumber(real.to(part), imaginary.to(part));
}

Scalar conjugated(const Scalar &z) { return conjugate(z); }

//===----------------------------------------------------------------------===//
// Functions of complex numbers in f32, computed in f64
//===----------------------------------------------------------------------===//
//
// Of numbers in f64 they would need more digits than f64 has where terms cancel
// each other.

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A complex number in f64.
struct Wide {
  Scalar x, y;
};

template <Wide (*function)(const Wide &)>
Scalar inDouble(const Scalar &z) {
  if (z.dtype() != DType::C64) {
    z.getContext().kernel.decline();
    return z;
  }
  auto [x, y] =
      function({z.real().to(DType::F64), z.imaginary().to(DType::F64)});
  return complexNumber(x.to(DType::F32), y.to(DType::F32));
}

Scalar isFinite(const Scalar &x) { return abs(x) < infinity; }

Wide logarithm(const Wide &z) {
  Scalar a = abs(z.x), b = abs(z.y);
  Scalar large = max(a, b), small = min(a, b);
  // Squares of f32 are exact in f64, and so is what is lost near a length of 1.
  Scalar square = large * large + small * small;
  Scalar isNear = (square > 0.5) & (square < 2.0);
  Scalar excess = (large - 1.0) * (large + 1.0) + small * small;
  Scalar length = 0.5 * select(isNear, log1p(excess), log(square));
  Scalar isInfinite = (a == infinity) | (b == infinity);
  return {select(isInfinite, a.constant(infinity), length), atan2(z.y, z.x)};
}

Wide logarithmOf10(const Wide &z) {
  auto [x, y] = logarithm(z);
  return {x / std::log(10.0), y / std::log(10.0)};
}

Wide logarithmOf2(const Wide &z) {
  auto [x, y] = logarithm(z);
  return {x / std::log(2.0), y / std::log(2.0)};
}

Wide squareRoot(const Wide &z) {
  Scalar a = abs(z.x), zero = a.constant(0);
  Scalar root = sqrt((a + sqrt(z.x * z.x + z.y * z.y)) * 0.5);
  root = select(a == infinity, a, root);
  Scalar other = abs(z.y) / (root + root);
  // Nothing is divided by 0 and by infinity.
  other =
      select((root == 0.0) | ((a == infinity) & isFinite(z.y)), zero, other);
  Scalar isRight = z.x >= 0.0;
  Scalar real = select(isRight, root, other);
  Scalar imaginary = select(isRight, other, root);
  Scalar isInfinite = abs(z.y) == infinity;
  Scalar most = a.constant(infinity);
  return {select(isInfinite, most, real),
          copysign(select(isInfinite, most, imaginary), z.y)};
}

/// As C's csinh and ccosh have the products that are 0 times what is no number.
Wide hyperbolicSine(const Wide &z) {
  Scalar real = sinh(z.x) * cos(z.y), imaginary = cosh(z.x) * sin(z.y);
  real = select((z.x == 0.0) & ~isFinite(z.y), z.x, real);
  imaginary = select(z.y == 0.0, z.y, imaginary);
  Scalar isOpen = (abs(z.x) == infinity) & ~isFinite(z.y);
  return {select(isOpen, real.constant(infinity), real), imaginary};
}

Wide hyperbolicCosine(const Wide &z) {
  Scalar real = cosh(z.x) * cos(z.y), imaginary = sinh(z.x) * sin(z.y);
  imaginary =
      select(z.y == 0.0, z.y * copysign(z.x.constant(1), z.x), imaginary);
  imaginary = select((z.x == 0.0) & ~isFinite(z.y), z.x, imaginary);
  Scalar isOpen = (abs(z.x) == infinity) & ~isFinite(z.y);
  return {select(isOpen, real.constant(infinity), real), imaginary};
}

/// (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y).
Wide hyperbolicTangent(const Wide &z) {
  // Beyond, the result is 1 in f32.
  Scalar x = max(z.x.constant(-100.0), min(z.x, z.x.constant(100.0)));
  Scalar sine = sin(z.y), cosine = cos(z.y), growth = sinh(x);
  Scalar below = growth * growth + cosine * cosine;
  Scalar real = growth * cosh(x) / below, imaginary = sine * cosine / below;
  // An angle that is none has no direction.
  Scalar isOne = (abs(z.x) == infinity) & ~isFinite(z.y);
  real = select(isOne, copysign(z.x.constant(1), z.x), real);
  imaginary = select(isOne, copysign(z.x.constant(0), z.y), imaginary);
  return {real, select(z.y == 0.0, z.y, imaginary)};
}

// Those of an angle are those of the number turned by a right angle.

Wide sine(const Wide &z) {
  auto [y, x] = hyperbolicSine({z.y, z.x});
  return {x, y};
}

Wide cosine(const Wide &z) {
  auto [x, y] = hyperbolicCosine({-z.y, z.x});
  return {x, y};
}

Wide tangent(const Wide &z) {
  auto [y, x] = hyperbolicTangent({z.y, z.x});
  return {x, y};
}

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
    "pow.Tensor_Scalar",
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
  table.addComplex("aten::exp", lowerUnary<exponential>);
  table.addComplex("aten::polar", lowerPolar);
  table.addComplex("aten::sgn", lowerUnary<direction>);
  auto add = [&](StringRef name, Lowering lowering) {
    table.addComplex(("aten::" + name).str(), lowering);
    if (table.lookup(("prims::" + name).str()))
      table.addComplex(("prims::" + name).str(), lowering);
  };
  add("cos", lowerUnary<inDouble<cosine>>);
  add("cosh", lowerUnary<inDouble<hyperbolicCosine>>);
  add("log", lowerUnary<inDouble<logarithm>>);
  add("log10", lowerUnary<inDouble<logarithmOf10>>);
  add("log2", lowerUnary<inDouble<logarithmOf2>>);
  add("sin", lowerUnary<inDouble<sine>>);
  add("sinh", lowerUnary<inDouble<hyperbolicSine>>);
  add("sqrt", lowerUnary<inDouble<squareRoot>>);
  add("tan", lowerUnary<inDouble<tangent>>);
  add("tanh", lowerUnary<inDouble<hyperbolicTangent>>);
}

} // namespace intarsia::lower
