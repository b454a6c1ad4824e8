//===- MathExponential.cpp - Exponentials, logarithms and their kin -------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// exp, log, tanh, erf, pow and cbrt, which all rest on 2^n and its inverse.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathCoefficients.h"
#include "passes/CPU/MathEmitter.h"

using namespace intarsia;
using namespace intarsia::math_emitters;

//===----------------------------------------------------------------------===//
// Exponentials
//===----------------------------------------------------------------------===//

/// x = n*ln(2) + r, n a multiple of 2^-fraction, |r| <= 2^-fraction*ln(2)/2.
MathEmitter::Reduced MathEmitter::reduceExp(Value x, unsigned fraction) {
  Rounded n = roundProduct(x, log2e.high, fraction);
  std::array<double, 3> parts = threeParts(ln2);
  Value r = fma(n.value, real(-parts[0]), x);
  r = fma(n.value, real(-parts[1]), r);
  return {n, r};
}

/// e^r.
Value MathEmitter::expOfReduced(Value r) {
  Value p = polynomial(r, pick(coefficients::expF32, coefficients::expShortF64,
                               coefficients::expF64));
  return fma(fma(p, r, real(1)), r, real(1));
}

/// e^r - 1.
Value MathEmitter::expm1OfReduced(Value r) {
  Value p = polynomial(r, pick(coefficients::expF32, coefficients::expShortF64,
                               coefficients::expF64));
  return fma(mul(r, r), p, r);
}

/// p*2^n in two steps of half the exponent, so that the result may be denormal
/// (rounded once) or infinite.
Value MathEmitter::scale(Value p, Value shifted) {
  Value shift = integer(mantissa);
  Value whole = shiftLeft(shifted, shift);
  Value half = shiftLeft(shiftRightSigned(shifted, integer(1)), shift);
  Value one = integer(bitsOf(1.0));
  Value first = fromBits(addI(half, one));
  Value second = fromBits(addI(subI(whole, half), one));
  return mul(mul(p, first), second);
}

Value MathEmitter::emitExp(Value x) {
  // Beyond these the result is infinite or zero; in f64 for f32 it becomes so
  // when it is rounded, perhaps after being halved.
  if (width == 64 && shortResult) {
    Reduced reduced = reduceExp(atLeast(atMost(x, 150), -150));
    return mul(expOfReduced(reduced.r), powerOfTwo(reduced.n.shifted));
  }
  x = atLeast(atMost(x, width == 32 ? 89.0 : 710.0),
              width == 32 ? -104.0 : -746.0);
  if (hasLookup)
    return expByLookup(x);
  Reduced reduced = reduceExp(x);
  Value p = expOfReduced(reduced.r);
  return scale(p, reduced.n.shifted);
}

/// 2^n by halves of the table of 2^(i/16): what is left for the polynomial is
/// a 32nd of an octave.
Value MathEmitter::expByLookup(Value x) {
  auto [n, r] = reduceExp(x, /*fraction=*/4);
  Value power = lookup(coefficients::sixteenthsOfOctaveF32, n.shifted);
  Value p = polynomial(r, coefficients::expSixteenthF32);
  Value expm1 = fma(mul(r, r), p, r);
  return scaleByFloor(fma(power, expm1, power), n.value);
}

/// e^x/2, x >= 0: finite where e^x is not yet.
Value MathEmitter::halfExp(Value x) {
  if (shortResult)
    return mul(emitExp(x), real(0.5));
  Reduced reduced = reduceExp(atMost(x, 711.0));
  return scale(expOfReduced(reduced.r), subI(reduced.n.shifted, integer(1)));
}

/// 2^x; x in the range where 2^round(x) is a normal number.
Value MathEmitter::exp2Small(Value x) {
  Rounded n = roundProduct(x, 1.0);
  Value r = sub(x, n.value);
  Value p =
      polynomial(r, pick(coefficients::exp2F32, coefficients::exp2ShortF64,
                         coefficients::exp2F64));
  return mul(fma(p, r, real(1)), powerOfTwo(n.shifted));
}

Value MathEmitter::emitExp2(Value x) {
  bool small = width == 32 || shortResult;
  x = atLeast(atMost(x, small ? 129.0 : 1025.0), small ? -151.0 : -1076.0);
  if (width == 64 && shortResult)
    return exp2Small(x);
  Rounded n = roundProduct(x, 1.0);
  Value r = sub(x, n.value);
  Value p =
      polynomial(r, pick(coefficients::exp2F32, coefficients::exp2ShortF64,
                         coefficients::exp2F64));
  return scale(fma(p, r, real(1)), n.shifted);
}

/// (e^r - 1)*2^n + (2^n - 1), doubled at the end so that 2^n can be the largest
/// power of two.
Value MathEmitter::emitExpm1(Value x) {
  double limit = width == 32 ? 88.8 : shortResult ? 150 : 709.8;
  Value clamped = atLeast(atMost(x, limit), width == 32 ? -20.0 : -40.0);
  Reduced reduced = reduceExp(clamped);
  Value q = expm1OfReduced(reduced.r);
  Value half = powerOfTwo(subI(reduced.n.shifted, integer(1)));
  Value result = fma(q, half, sub(half, real(0.5)));
  result = add(result, result);
  if (width == 64 && shortResult)
    return copySign(result, x);
  // Half of a denormal number is rounded; and zeros keep their sign.
  return select(less(abs(x), real(width == 32 ? 0x1p-25 : 0x1p-54)), x, result);
}

//===----------------------------------------------------------------------===//
// Logarithms
//===----------------------------------------------------------------------===//

/// Splits x (positive and finite) around sqrt(1/2), or 2/3 where the polynomial
/// is one in f. `correction`, when not null, is a small number to add to x.
MathEmitter::LogReduced MathEmitter::reduceLog(Value x, Value correction) {
  double lower = width == 32 ? 2.0 / 3 : 0x1.6a09e667f3bcdp-1;
  Value extra;
  if (!correction && !(width == 64 && shortResult)) {
    // Denormal numbers are brought into the normal range.
    Value denormal = less(x, real(std::ldexp(1.0, width == 32 ? -126 : -1022)));
    x = select(denormal, mul(x, real(std::ldexp(1.0, mantissa))), x);
    extra = select(denormal, real(-double(mantissa)), real(0));
  }
  Value i = bits(x);
  Value shift = integer(mantissa);
  Value exponent = shiftRightSigned(subI(i, integer(bitsOf(lower))), shift);
  Value shifted = shiftLeft(exponent, shift);
  Value f = sub(fromBits(subI(i, shifted)), real(1));
  if (correction) {
    // From 2^mantissa on the correction no longer counts.
    Value limit = shiftLeft(integer(mantissa + 2), shift);
    Value bounded = arith::MinSIOp::create(b, loc, shifted, limit);
    f = fma(correction, fromBits(subI(integer(bitsOf(1.0)), bounded)), f);
  }
  // Not sitofp: from i64 it is no vector instruction before AVX-512.
  Value magic = real(std::ldexp(1.5, mantissa));
  Value number =
      sub(fromBits(addI(exponent, integer(bitsOf(std::ldexp(1.5, mantissa))))),
          magic);
  if (extra)
    number = add(number, extra);
  return {number, f};
}

/// log(1+f) in two parts.
MathEmitter::LogParts MathEmitter::logOfReduced(Value f) {
  if (width == 32) {
    Value p = polynomial(f, coefficients::logF32);
    return {f, mul(mul(f, f), fma(f, p, real(-0.5)))};
  }
  // With s = f/(2+f): log(1+f) = 2*atanh(s) = f - (h - s*(h + s*s*p)), h =
  // f*f/2.
  Value s = div(f, add(f, real(2)));
  Value s2 = mul(s, s);
  Value p = shortResult ? polynomial(s2, coefficients::logAtanhShortF64)
                        : polynomial(s2, coefficients::logAtanhF64);
  Value h = mul(mul(f, real(0.5)), f);
  Value tail = mul(s, fma(s2, p, h));
  return {f, sub(tail, h)};
}

/// exponent*perExponent + log(1+f)*factor.
Value MathEmitter::logWithBase(LogReduced reduced, Split perExponent,
                               Split factor) {
  auto [high, low] = logOfReduced(reduced.f);
  Value e = reduced.exponent;
  bool natural = factor.high == 1;
  if (width == 64 && shortResult) {
    Value sum = add(high, low);
    if (!natural)
      sum = mul(sum, real(factor.high));
    return fma(e, real(perExponent.high), sum);
  }
  // Products of an exponent of 11 bits with the first part are exact.
  double first = leadingBits(perExponent.high, width == 32 ? 13 : 40);
  double second = (perExponent.high - first) + perExponent.low;
  if (natural) {
    // The large terms last; with e = 0 this is high + low.
    Value tail = fma(e, real(second), low);
    return add(mul(e, real(first)), add(high, tail));
  }
  // high*factor exactly, as a sum, by leaving `high` and the factor few bits.
  unsigned few = width == 32 ? 11 : 26;
  int64_t mask = -(int64_t(1) << (width == 32 ? 12 : 27));
  Value top = fromBits(andI(bits(add(high, low)), integer(mask)));
  Value rest = add(sub(high, top), low);
  double factorTop = leadingBits(factor.high, few);
  double factorRest = (factor.high - factorTop) + factor.low;
  Value large = mul(top, real(factorTop));
  Value small =
      fma(add(top, rest), real(factorRest), mul(rest, real(factorTop)));
  small = fma(e, real(second), small);
  // e*first is zero or larger than `large`: the error of the sum is exact.
  Value base = mul(e, real(first));
  Value sum = add(base, large);
  Value error = add(sub(base, sum), large);
  return add(sum, add(small, error));
}

/// log's values where the computation has none: -inf where x is `zero`, NaN
/// below, and x itself if it is infinite or NaN.
Value MathEmitter::logSpecialCases(Value x, Value zero, Value result) {
  Value finite = less(x, real(infinity));
  result = select(finite, result, x);
  result = select(equal(x, zero), real(-infinity), result);
  return select(less(x, zero), real(notANumber), result);
}

Value MathEmitter::emitLog(Value x, Split perExponent, Split factor) {
  Value result = logWithBase(reduceLog(x, nullptr), perExponent, factor);
  return logSpecialCases(x, real(0), result);
}

/// log(u) with u = 1+x, and what rounding u lost put back into f.
Value MathEmitter::emitLog1p(Value x) {
  Value one = real(1);
  Value u = add(x, one);
  Value back = sub(u, one);
  Value lost = add(sub(one, sub(u, back)), sub(x, back));
  Value result = logWithBase(reduceLog(u, lost), ln2, Split{1, 0});
  result = copySign(result, x);
  return logSpecialCases(x, real(-1), result);
}

/// log1p(argument), and log(2x) where x is so large that the argument, which
/// comes from its square, is none.
Value MathEmitter::log1pOrTwice(Value x, Value argument) {
  if (shortResult)
    return emitLog1p(argument);
  Value isLarge = less(real(0x1p500), x);
  Value result = emitLog1p(select(isLarge, mul(x, real(0.5)), argument));
  return add(result, select(isLarge, real(2 * ln2.high), real(0)));
}

//===----------------------------------------------------------------------===//
// Hyperbolic tangent and the error function
//===----------------------------------------------------------------------===//

/// x + x**3*p(x*x) up to 1/2, from there 1 - 2/(e^(2|x|) + 1).
Value MathEmitter::emitTanh(Value x) {
  if (hasLookup)
    return tanhByLookup(x);
  Value a = abs(x), square = mul(x, x);
  Value p =
      polynomial(square, pick(coefficients::tanhF32, coefficients::tanhShortF64,
                              coefficients::tanhF64));
  Value near = fma(mul(square, a), p, a);
  // Beyond this bound the result is 1.
  Value bounded = atMost(a, width == 32 || shortResult ? 9.2 : 19.2);
  Reduced reduced = reduceExp(add(bounded, bounded));
  Value e = mul(expOfReduced(reduced.r), powerOfTwo(reduced.n.shifted));
  Value far = sub(real(1), div(real(2), add(e, real(1))));
  return copySign(select(less(a, real(0.5)), near, far), x);
}

/// The pieces get longer with |x|: they are named by the leading bits of 1 +
/// |x|*scale. Beyond the last, the result is 1.
Value MathEmitter::tanhByLookup(Value x) {
  Value a = atMost(abs(x), 14.999 / coefficients::tanhScaleF32);
  Value y = fma(a, real(coefficients::tanhScaleF32), real(1));
  Value index = shiftRight(bits(y), integer(mantissa - 2));
  ArrayRef table = coefficients::tanhPiecesF32;
  Value t = sub(a, lookup(table[0], index));
  Value p = polynomialByLookup(index, t, table.drop_front(2),
                               lookup(table[1], index));
  return copySign(p, x);
}

/// (1+2a)*exp(a*a)*erfc(a) is a polynomial in (a-3.75)/(a+3.75): Shepherd and
/// Laframboise, Chebyshev approximation of (1+2x)exp(x^2)erfc x.
Value MathEmitter::erfcPositive(Value a, ArrayRef<double> table) {
  Value t = div(sub(a, real(3.75)), add(a, real(3.75)));
  Value p = polynomial(t, table);
  // exp(-a*a), with the rounding error of a*a put back.
  Value square, error;
  if (shortResult) {
    square = mul(a, a);
  } else {
    Value top = fromBits(andI(bits(a), integer(-(int64_t(1) << 27))));
    Value rest = sub(a, top);
    square = mul(top, top);
    error = mul(rest, add(a, top));
  }
  Value e = emitExp(neg(square));
  if (error)
    e = fma(mul(e, error), fma(error, real(0.5), real(-1)), e);
  return div(mul(e, p), fma(a, real(2), real(1)));
}

/// The range of |x| is cut into 16 pieces around the multiples of a step, each
/// with a polynomial in the distance t from its middle. Beyond the last, the
/// result is the one at its end.
MathEmitter::Piece MathEmitter::findPiece(Value x, double step) {
  Value a = atMost(abs(x), 15.49 * step);
  Rounded n = roundProduct(a, 1 / step);
  return {n, fma(n.value, real(-step), a)};
}

Value MathEmitter::polynomialByLookup(Value index, Value t,
                                      ArrayRef<double[16]> table,
                                      Value constant) {
  Value p = lookup(table.back(), index);
  for (const auto &power : llvm::reverse(table.drop_back()))
    p = fma(p, t, lookup(power, index));
  return fma(p, t, constant);
}

/// Around 0 it is t + t*p(t), which keeps the relative error small there.
Value MathEmitter::erfByLookup(Value x) {
  Piece piece = findPiece(x, coefficients::erfStepF32);
  ArrayRef table = coefficients::erfPiecesF32;
  Value index = piece.n.shifted;
  Value middle = select(equal(piece.n.value, real(0)), piece.t,
                        lookup(table.front(), index));
  Value p = polynomialByLookup(index, piece.t, table.drop_front(), middle);
  return copySign(p, x);
}

/// What is added to 1/2 needs no small relative error, and so neither a first
/// piece of its own nor the rounding of x*sqrt(1/2).
Value MathEmitter::emitNormalCdf(Value x) {
  if (!hasLookup)
    return mul(real(0.5), add(real(1), emitErf(mul(x, real(std::sqrt(0.5))))));
  Piece piece = findPiece(x, coefficients::normalStepF32);
  ArrayRef table = coefficients::normalPiecesF32;
  Value index = piece.n.shifted;
  Value p = polynomialByLookup(index, piece.t, table.drop_front(),
                               lookup(table.front(), index));
  return add(copySign(p, x), real(0.5));
}

Value MathEmitter::emitErf(Value x) {
  if (hasLookup)
    return erfByLookup(x);
  Value a = abs(x);
  Value square = mul(x, x);
  Value near = fma(x,
                   polynomial(square, pick(coefficients::erfSmallF32,
                                           coefficients::erfSmallShortF64,
                                           coefficients::erfSmallF64)),
                   x);
  Value far;
  if (width == 32)
    far = exp2Small(polynomial(atMost(a, 3.95), coefficients::erfTailF32));
  else if (shortResult)
    far = erfcPositive(atMost(a, 6.0), coefficients::erfcShortF64);
  else
    far = erfcPositive(atMost(a, 6.0), coefficients::erfTailF64);
  far = copySign(sub(real(1), far), x);
  return select(less(a, real(1)), near, far);
}

Value MathEmitter::emitErfc(Value x) {
  Value positive =
      erfcPositive(atMost(abs(x), 10.3), coefficients::erfcShortF64);
  return select(less(x, real(0)), sub(real(2), positive), positive);
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// The product and what it lost, exactly or almost so.
MathEmitter::Pair MathEmitter::twoProduct(Value x, Value y) {
  Value product = mul(x, y);
  if (hasFMA)
    return {product, fma(x, y, neg(product))};
  auto top = [&](Value v) {
    return fromBits(andI(bits(v), integer(-(int64_t(1) << 27))));
  };
  Value xTop = top(x), yTop = top(y);
  Value xRest = sub(x, xTop), yRest = sub(y, yTop);
  Value low = add(sub(mul(xTop, yTop), product), mul(xTop, yRest));
  return {product, add(add(low, mul(xRest, yTop)), mul(xRest, yRest))};
}

/// log2(x) to 64 bits or so; x positive and finite. With s = f/(2+f) it is the
/// exponent and log2(e)*2*atanh(s), of whose series only the terms from the
/// third on are small enough to be single numbers.
MathEmitter::Pair MathEmitter::log2OfPositive(Value x) {
  auto [exponent, f] = reduceLog(x, nullptr);
  Value below = add(f, real(2));
  Value belowLow = sub(f, sub(below, real(2)));
  Value s = div(f, below);
  Pair back = twoProduct(s, below);
  Value rest = sub(sub(f, back.high), back.low);
  Value sLow = div(sub(rest, mul(s, belowLow)), below);

  Pair square = twoProduct(s, s);
  square.low = fma(add(s, s), sLow, square.low);
  // 2/5 + 2/7*s^2 + ...
  double series[12];
  for (int term = 0; term < 12; ++term)
    series[term] = 2.0 / (5 + 2 * term);
  Value small = mul(square.high, polynomial(square.high, series));
  Pair inner = twoSum(real(2.0 / 3), small);
  inner.low = add(inner.low, real(0x1.5555555555555p-55)); // 2/3 less a double
  Pair cubic = twoProduct(square.high, inner.high);
  cubic.low = fma(square.high, inner.low, cubic.low);
  cubic.low = fma(square.low, inner.high, cubic.low);
  Pair factor = twoSum(real(2), cubic.high);
  factor.low = add(factor.low, cubic.low);

  Pair log = twoProduct(s, factor.high);
  log.low = fma(s, factor.low, log.low);
  log.low = fma(sLow, factor.high, log.low);
  Pair scaled = twoProduct(log.high, real(log2e.high));
  scaled.low = fma(log.high, real(log2e.low), scaled.low);
  scaled.low = fma(log.low, real(log2e.high), scaled.low);
  Pair sum = twoSum(exponent, scaled.high);
  return twoSum(sum.high, add(sum.low, scaled.low));
}

/// x^y = 2^(y*log2(x)) in f64, x >= 0.
Value MathEmitter::powOfPositive(Value x, Value y) {
  Pair log = log2OfPositive(x);
  Pair exponent = twoProduct(y, log.high);
  exponent.low = fma(y, log.low, exponent.low);
  // Beyond these the result is infinite or zero.
  Value isInRange = less(abs(exponent.high), real(1100));
  Value high = atLeast(atMost(exponent.high, 1100), -1100);
  Value low = select(isInRange, exponent.low, real(0));
  Rounded n = roundProduct(high, 1.0);
  Value r = add(sub(high, n.value), low);
  Value p = polynomial(r, coefficients::exp2F64);
  Value result = scale(fma(p, r, real(1)), n.shifted);
  // 0 and infinity, on either side, give one of them.
  auto either = [&](Value one, Value other) -> Value {
    return arith::OrIOp::create(b, loc, one, other);
  };
  Value isEdge = either(either(equal(x, real(0)), equal(x, real(infinity))),
                        equal(abs(y), real(infinity)));
  Value isZero =
      arith::XOrIOp::create(b, loc, less(x, real(1)), less(y, real(0)));
  result = select(isEdge, select(isZero, real(0), real(infinity)), result);
  Value ordinary =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, x, y);
  return select(ordinary, result, real(notANumber));
}

/// The power of |x|, then the sign and C's special cases.
Value MathEmitter::emitPow(Value x, Value y) {
  Value a = abs(x), one = real(1), zero = real(0);
  Value result = shortResult ? emitExp2(mul(y, emitLog(a, Split{1, 0}, log2e)))
                             : powOfPositive(a, y);
  // 1^y and (-1)^inf; 0*inf came out as NaN.
  Value ordinary =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, y, y);
  Value unit = arith::AndIOp::create(b, loc, equal(a, one), ordinary);
  result = select(unit, one, result);
  // Whether y is an integer, and odd.
  Value isInteger, isOdd;
  if (shortResult) {
    // From 2^30 on every f32 is an even one.
    Value bounded = atLeast(atMost(y, 0x1p30), -0x1p30);
    bounded = select(ordinary, bounded, zero);
    Type i32 = withElement(b.getI32Type());
    Value whole = arith::FPToSIOp::create(b, loc, i32, bounded);
    isInteger = equal(arith::SIToFPOp::create(b, loc, type, whole), bounded);
    isOdd = isEqual(andI(whole, integer(i32, 1)), integer(i32, 1));
    isOdd = arith::AndIOp::create(b, loc, isOdd, isInteger);
  } else {
    // Adding 2^52 leaves no bits for a fraction; from there on there are none.
    auto rounded = [&](Value v) {
      return sub(add(v, real(0x1p52)), real(0x1p52));
    };
    Value size = abs(y), half = mul(size, real(0.5));
    Value isLarge = less(real(0x1p52), size);
    isInteger =
        arith::OrIOp::create(b, loc, isLarge, equal(rounded(size), size));
    Value isHalf = equal(abs(sub(half, rounded(half))), real(0.5));
    isOdd = arith::AndIOp::create(b, loc, isHalf, less(size, real(0x1p53)));
  }
  result = select(isOdd, copySign(result, x), result);
  // A negative finite number to a power that is no integer.
  Value negative =
      arith::AndIOp::create(b, loc, less(x, zero), less(real(-infinity), x));
  // One of two: a NaN is no integer, but it stays.
  Value fractional = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                           isInteger, ordinary);
  Value bad = arith::AndIOp::create(b, loc, negative, fractional);
  result = select(bad, real(notANumber), result);
  // x^0 and 1^y are 1 even for a NaN.
  Value trivial = arith::OrIOp::create(b, loc, equal(y, zero), equal(x, one));
  return select(trivial, one, result);
}

/// 2^(log2(|x|)/3), which in f64 has too few digits: Newton's step on it.
Value MathEmitter::emitCbrt(Value x) {
  Value a = abs(x), tiny;
  if (!shortResult) {
    tiny = less(a, real(0x1p-900));
    a = select(tiny, mul(a, real(0x1p162)), a);
  }
  Value log = emitLog(a, Split{1, 0}, log2e);
  Value root = emitExp2(mul(log, real(1.0 / 3)));
  if (shortResult)
    return copySign(root, x);
  Pair square = twoProduct(root, root);
  Pair cube = twoProduct(square.high, root);
  cube.low = fma(square.low, root, cube.low);
  Value excess = add(sub(cube.high, a), cube.low);
  Value better = sub(root, div(excess, mul(square.high, real(3))));
  better = select(tiny, mul(better, real(0x1p-54)), better);
  Value isPlain =
      arith::AndIOp::create(b, loc, less(real(0), a), less(a, real(infinity)));
  return copySign(select(isPlain, better, a), x);
}
