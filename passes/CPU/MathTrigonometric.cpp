//===- MathTrigonometric.cpp - Sines, tangents and their inverses ---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The reduction of an angle to a quadrant, for every argument up to the
// largest, and the functions that rest on it; and the inverse functions.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathCoefficients.h"
#include "passes/CPU/MathEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::math_emitters;

//===----------------------------------------------------------------------===//
// Trigonometric functions
//===----------------------------------------------------------------------===//

/// Whether any element is true.
Value MathEmitter::any(Value condition) {
  auto vector = dyn_cast<VectorType>(condition.getType());
  if (!vector)
    return condition;
  if (vector.getRank() != 1)
    condition = vector::ShapeCastOp::create(
        b, loc, VectorType::get({vector.getNumElements()}, b.getI1Type()),
        condition);
  return vector::ReductionOp::create(b, loc, vector::CombiningKind::OR,
                                     condition);
}

/// The first bits of 2/pi after the binary point.
static constexpr uint64_t twoOverPi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
    0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab};

/// Payne and Hanek's reduction of the f32 number x, 2^17 < |x|: of the product
/// of x with 2/pi only the bits around the binary point matter, and they depend
/// on 96 bits of 2/pi.
MathEmitter::Quadrant MathEmitter::reduceLargeSingle(Value x) {
  if (width == 64)
    x = arith::TruncFOp::create(b, loc, withElement(b.getF32Type()), x);
  Type i64 = withElement(b.getI64Type());
  Value pattern =
      arith::BitcastOp::create(b, loc, withElement(b.getI32Type()), abs(x));
  pattern = arith::ExtUIOp::create(b, loc, i64, pattern);
  auto c = [&](int64_t value) { return integer(i64, value); };
  // |x| = m*2^(field-150). With a field from 144 on, the bits of 2/pi before
  // the position p = field-152 give multiples of 4 in m*2^(field-150)*2/pi.
  Value m = orI(andI(pattern, c(0x7fffff)), c(0x800000));
  Value position = subI(shiftRight(pattern, c(23)), c(144 - 32));
  // Four 32-bit words from the one in which the position lies. 40 zero bits
  // come before 2/pi, so that the position is never negative.
  Value index = shiftRight(position, c(5));
  Value offset = andI(position, c(31));
  auto word = [&](int i) -> uint32_t {
    auto bit = [&](int k) -> uint32_t {
      k -= 40;
      return k < 0 ? 0 : (twoOverPi[k / 64] >> (63 - k % 64)) & 1;
    };
    uint32_t value = 0;
    for (int k = 0; k < 32; ++k)
      value = value << 1 | bit(32 * i + k);
    return value;
  };
  Value words[4];
  for (int j = 0; j < 4; ++j) {
    words[j] = c(word(j));
    for (int i = 1; i < 5; ++i)
      words[j] = select(isEqual(index, c(i)), c(word(i + j)), words[j]);
  }
  Value mask = c(0xffffffff);
  auto window = [&](int j) {
    Value pair = orI(shiftLeft(words[j], c(32)), words[j + 1]);
    return andI(shiftRight(shiftLeft(pair, offset), c(32)), mask);
  };
  Value product = shiftLeft(mulI(m, window(0)), c(32));
  product = addI(product, mulI(m, window(1)));
  product = addI(product, shiftRight(mulI(m, window(2)), c(32)));
  // Two bits of quadrant, 62 of fraction; the nearest quadrant.
  Value number = shiftRight(addI(product, c(int64_t(1) << 61)), c(62));
  Value fraction = subI(product, shiftLeft(number, c(62)));
  Type f64 = withElement(b.getF64Type());
  Value r = arith::SIToFPOp::create(b, loc, f64, fraction);
  r = arith::MulFOp::create(
      b, loc, r,
      constant(f64, b.getF64FloatAttr(std::ldexp(halfPi.high, -62))));
  if (width == 32) {
    r = arith::TruncFOp::create(b, loc, type, r);
    number = arith::TruncIOp::create(b, loc, intType, number);
  } else {
    x = arith::ExtFOp::create(b, loc, type, x);
  }
  Value negative = less(x, real(0));
  r = select(negative, neg(r), r);
  number = select(negative, subI(integer(0), number), number);
  r = select(less(abs(x), real(infinity)), r, real(notANumber));
  return {number, r, {}};
}

/// The same for f64, with 192 bits of 2/pi and 128-bit products.
MathEmitter::Quadrant MathEmitter::reduceLargeDouble(Value x) {
  auto c = [&](int64_t value) { return integer(value); };
  Value pattern = bits(abs(x));
  // |x| = m*2^(field-1075), field >= 1023+19.
  Value m = orI(andI(pattern, c(0xfffffffffffff)), c(0x10000000000000));
  Value position = subI(shiftRight(pattern, c(52)), c(1042));
  // m*2^(field-1075)*2/pi: the bits of 2/pi before field-1077 give multiples of
  // 4; 35 zero bits before it make that position field-1042.
  Value index = shiftRight(position, c(6));
  Value offset = andI(position, c(63));
  auto word = [&](int i) -> int64_t {
    uint64_t value = 0;
    for (int k = 0; k < 64; ++k) {
      int bit = 64 * i + k - 35;
      bool set = bit >= 0 && bit < int(64 * std::size(twoOverPi)) &&
                 ((twoOverPi[bit / 64] >> (63 - bit % 64)) & 1);
      value = value << 1 | uint64_t(set);
    }
    return int64_t(value);
  };
  Value words[4];
  for (int j = 0; j < 4; ++j) {
    words[j] = c(word(j));
    for (int i = 1; i < 16; ++i)
      words[j] = select(isEqual(index, c(i)), c(word(i + j)), words[j]);
  }
  Type wide = withElement(b.getIntegerType(128));
  auto extend = [&](Value v) -> Value {
    return arith::ExtUIOp::create(b, loc, wide, v);
  };
  auto w = [&](int64_t value) { return integer(wide, value); };
  Value wideOffset = extend(offset);
  auto window = [&](int j) {
    Value pair = orI(shiftLeft(extend(words[j]), w(64)), extend(words[j + 1]));
    return shiftRight(shiftLeft(pair, wideOffset), w(64));
  };
  Value wideM = extend(m);
  Value product = shiftLeft(mulI(wideM, window(0)), w(64));
  product = addI(product, mulI(wideM, window(1)));
  product = addI(product, shiftRight(mulI(wideM, window(2)), w(64)));
  Value half = integer(wide, APInt(128, 1) << 125);
  Value number = shiftRight(addI(product, half), w(126));
  Value fraction = subI(product, shiftLeft(number, w(126)));
  number = arith::TruncIOp::create(b, loc, intType, number);
  // To f64 without losing the low bits of a small fraction.
  Value negative =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, fraction, w(0));
  Value magnitude = select(negative, subI(w(0), fraction), fraction);
  auto part = [&](int shift) -> Value {
    Value word = andI(shiftRight(magnitude, w(shift)), w(0xffffffff));
    word = arith::TruncIOp::create(b, loc, intType, word);
    return mul(arith::SIToFPOp::create(b, loc, type, word),
               real(std::ldexp(1.0, shift)));
  };
  Value top = part(96), next = part(64);
  Value sum = add(top, next);
  Value lost = sub(next, sub(sum, top));
  Value tail = add(add(part(32), part(0)), lost);
  top = sum;
  sum = add(top, tail);
  lost = sub(tail, sub(sum, top));
  // The product of the leading halves is exact, with or without FMA.
  double leading = leadingBits(halfPi.high, 26);
  auto factor = [&](double value) { return real(std::ldexp(value, -126)); };
  Value upper = fromBits(andI(bits(sum), integer(-(int64_t(1) << 27))));
  Value lower = add(sub(sum, upper), lost);
  Value rest = add(mul(upper, factor((halfPi.high - leading) + halfPi.low)),
                   mul(lower, factor(halfPi.high)));
  Pair r = twoSum(mul(upper, factor(leading)), rest);
  Value below = less(x, real(0));
  for (Value *part : {&r.high, &r.low}) {
    *part = select(negative, neg(*part), *part);
    *part = select(below, neg(*part), *part);
  }
  number = select(below, subI(integer(0), number), number);
  r.high = select(less(abs(x), real(infinity)), r.high, real(notANumber));
  return {number, r.high, r.low};
}

MathEmitter::Quadrant MathEmitter::reducePi(Value x, bool inPairs) {
  Rounded n = roundProduct(x, 1 / halfPi.high);
  std::array<double, 3> parts = threeParts(halfPi);
  Value r = fma(n.value, real(-parts[0]), x), low;
  for (double part : ArrayRef(parts).drop_front()) {
    if (part == 0)
      continue;
    if (!inPairs) {
      r = fma(n.value, real(-part), r);
      continue;
    }
    // What the difference loses, whichever of both is larger.
    Pair product = twoProduct(n.value, real(part));
    Value next = sub(r, product.high);
    Value taken = sub(next, r);
    Value lost = sub(sub(r, sub(next, taken)), add(product.high, taken));
    lost = sub(lost, product.low);
    low = low ? add(low, lost) : lost;
    r = next;
  }

  // The products above are exact, or fused, up to here.
  double limit = width == 32 ? 0x1p17 : hasFMA ? 0x1p30 : 0x1p19;
  Value large = less(real(limit), abs(x));
  auto branch = scf::IfOp::create(
      b, loc, any(large),
      [&](OpBuilder &inside, Location) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(inside.getInsertionBlock(),
                            inside.getInsertionPoint());
        Quadrant slow =
            shortResult ? reduceLargeSingle(x) : reduceLargeDouble(x);
        SmallVector<Value> results{select(large, slow.number, n.shifted),
                                   select(large, slow.r, r)};
        if (inPairs)
          results.push_back(select(large, slow.low, low));
        scf::YieldOp::create(b, loc, results);
      },
      [&](OpBuilder &inside, Location) {
        SmallVector<Value> results{n.shifted, r};
        if (inPairs)
          results.push_back(low);
        scf::YieldOp::create(inside, loc, results);
      });
  return {branch.getResult(0), branch.getResult(1),
          inPairs ? Value(branch.getResult(2)) : Value()};
}

Value MathEmitter::sinOfReduced(Value r) {
  Value square = mul(r, r);
  Value p =
      polynomial(square, pick(coefficients::sinF32, coefficients::sinShortF64,
                              coefficients::sinF64));
  return fma(mul(square, r), p, r);
}

Value MathEmitter::cosOfReduced(Value r) {
  Value square = mul(r, r);
  Value p =
      polynomial(square, pick(coefficients::cosF32, coefficients::cosShortF64,
                              coefficients::cosF64));
  // 1 - r*r/2 first, and what its rounding lost.
  Value half = mul(square, real(0.5));
  Value top = sub(real(1), half);
  Value lost = sub(sub(real(1), top), half);
  return add(top, fma(mul(square, square), p, lost));
}

Value MathEmitter::sinOrCos(const Quadrant &quadrant, bool cosine) {
  Value number = quadrant.number;
  if (cosine)
    number = addI(number, integer(1));
  Value odd = isEqual(andI(number, integer(1)), integer(1));
  Value result =
      select(odd, cosOfReduced(quadrant.r), sinOfReduced(quadrant.r));
  Value sign = shiftLeft(andI(number, integer(2)), integer(width - 2));
  return fromBits(xorI(bits(result), sign));
}

/// In f64 the errors of sine, cosine, quotient and reduction would add up.
Value MathEmitter::tanOfReduced(const Quadrant &quadrant) {
  Value r = quadrant.r;
  Pair square = twoProduct(r, r);
  Value tail =
      mul(mul(square.high, r), polynomial(square.high, coefficients::sinF64));
  Pair sine = twoSum(r, add(tail, quadrant.low));
  Value half = mul(square.high, real(0.5));
  Value top = sub(real(1), half);
  Value lost = sub(sub(real(1), top), half);
  lost = fma(square.low, real(-0.5), lost);
  lost = fma(mul(square.high, square.high),
             polynomial(square.high, coefficients::cosF64), lost);
  Pair cosine = twoSum(top, sub(lost, mul(r, quadrant.low)));

  Value odd = isEqual(andI(quadrant.number, integer(1)), integer(1));
  Pair above{select(odd, neg(cosine.high), sine.high),
             select(odd, neg(cosine.low), sine.low)};
  Pair below{select(odd, sine.high, cosine.high),
             select(odd, sine.low, cosine.low)};
  Value quotient = div(above.high, below.high);
  Pair back = twoProduct(quotient, below.high);
  Value rest = sub(sub(above.high, back.high), back.low);
  rest = add(rest, sub(above.low, mul(quotient, below.low)));
  return add(quotient, div(rest, below.high));
}

Value MathEmitter::emitTan(Value x) {
  if (!shortResult)
    return select(equal(x, real(0)), x, tanOfReduced(reducePi(x, true)));
  Quadrant quadrant = reducePi(x);
  Value odd = isEqual(andI(quadrant.number, integer(1)), integer(1));
  Value sine = sinOfReduced(quadrant.r), cosine = cosOfReduced(quadrant.r);
  Value result = div(select(odd, neg(cosine), sine), select(odd, sine, cosine));
  return select(equal(x, real(0)), x, result);
}

/// atan(y/x), x and y >= 0, both finite or one 1, not both 0: around 0, pi/4
/// and pi/2.
MathEmitter::Angle MathEmitter::atanOfQuotient(Value y, Value x) {
  // tan(pi/8) and tan(3*pi/8).
  Value isMiddle = less(mul(x, real(0x1.a827999fcef32p-2)), y);
  Value isLarge = less(mul(x, real(0x1.3504f333f9de6p+1)), y);
  Value above = select(isLarge, neg(x), select(isMiddle, sub(y, x), y));
  Value below = select(isLarge, y, select(isMiddle, add(y, x), x));
  Value z = div(above, below);
  auto base = [&](double of) {
    return select(isLarge, real(of), select(isMiddle, real(0.5 * of), real(0)));
  };
  Value square = mul(z, z);
  Value p = polynomial(square, coefficients::atanF64);
  Value rest = fma(mul(square, z), p, base(halfPi.low));
  return {base(halfPi.high), add(z, rest)};
}

/// atan(x), x >= 0.
Value MathEmitter::atanPositive(Value x) {
  if (!shortResult) {
    Angle angle = atanOfQuotient(x, real(1));
    return add(angle.high, angle.low);
  }
  Value large = less(real(1), x);
  Value z = select(large, div(real(1), x), x);
  Value square = mul(z, z);
  Value p = polynomial(square, coefficients::atanShortF64);
  Value angle = fma(mul(square, z), p, z);
  return select(large, sub(real(halfPi.high), angle), angle);
}

/// asin(x), |x| <= 1/2.
Value MathEmitter::asinSmall(Value x) {
  Value square = mul(x, x);
  Value p = shortResult ? polynomial(square, coefficients::asinShortF64)
                        : polynomial(square, coefficients::asinF64);
  return fma(mul(square, x), p, x);
}

/// asin(sqrt(half)), with what the root lost.
MathEmitter::Angle MathEmitter::asinOfRoot(Value half) {
  Value root = sqrt(half);
  if (shortResult)
    return {asinSmall(root), real(0)};
  Value top = fromBits(andI(bits(root), integer(-(int64_t(1) << 27))));
  Value lost =
      sub(sub(half, mul(top, top)), mul(sub(root, top), add(root, top)));
  Value low = div(lost, add(root, root));
  return {asinSmall(root), select(equal(root, real(0)), real(0), low)};
}

/// count*pi/2 less the angle.
Value MathEmitter::rightAngleLess(Angle angle, double count) {
  if (shortResult)
    return sub(real(count * halfPi.high), angle.high);
  Value low = sub(real(count * halfPi.low), angle.low);
  return add(sub(real(count * halfPi.high), angle.high), low);
}

/// asin(x) = pi/2 - 2*asin(sqrt((1-x)/2)) from 1/2 on.
Value MathEmitter::emitAsin(Value x) {
  Value a = abs(x);
  Value large = less(real(0.5), a);
  if (shortResult) {
    Value z = select(large, sqrt(mul(sub(real(1), a), real(0.5))), a);
    Value s = asinSmall(z);
    Value result = select(large, sub(real(halfPi.high), add(s, s)), s);
    return copySign(result, x);
  }
  Angle angle = asinOfRoot(mul(sub(real(1), a), real(0.5)));
  Value far = rightAngleLess(
      {add(angle.high, angle.high), add(angle.low, angle.low)}, 1);
  return copySign(select(large, far, asinSmall(a)), x);
}

Value MathEmitter::emitAcos(Value x) {
  Value a = abs(x);
  Value large = less(real(0.5), a);
  if (!shortResult) {
    Angle angle = asinOfRoot(mul(sub(real(1), a), real(0.5)));
    Angle twice = {add(angle.high, angle.high), add(angle.low, angle.low)};
    Value far = select(less(x, real(0)), rightAngleLess(twice, 2),
                       add(twice.high, twice.low));
    return select(large, far, rightAngleLess({asinSmall(x), real(0)}, 1));
  }
  Value z = select(large, sqrt(mul(sub(real(1), a), real(0.5))), x);
  Value s = asinSmall(z);
  Value twice = add(s, s);
  Value far =
      select(less(x, real(0)), sub(real(2 * halfPi.high), twice), twice);
  return select(large, far, sub(real(halfPi.high), s));
}

Value MathEmitter::emitAtan2(Value y, Value x) {
  Value ax = abs(x), ay = abs(y);
  Value steep = less(ax, ay);
  Value small = select(steep, ax, ay), large = select(steep, ay, ax);
  Angle angle;
  if (shortResult) {
    // The quotient of the smaller by the larger; equal infinities give 1, zeros
    // 0.
    Value quotient = div(small, large);
    quotient = select(equal(small, large), real(1), quotient);
    quotient = select(equal(large, real(0)), real(0), quotient);
    Value flat = atanPositive(quotient);
    angle.high = select(steep, sub(real(halfPi.high), flat), flat);
  } else {
    // Scaled, so that a sum of the two is a number.
    Value isHuge = less(real(0x1p1000), large);
    Value isTiny = less(large, real(0x1p-900));
    Value factor =
        select(isHuge, real(0x1p-100), select(isTiny, real(0x1p100), real(1)));
    // Infinities are as far from all else as one from the other's finite part.
    Value isInfinite = equal(large, real(infinity));
    auto scaled = [&](Value of) {
      Value alone = select(equal(of, real(infinity)), real(1), real(0));
      return select(isInfinite, alone, mul(of, factor));
    };
    Value isZero = equal(large, real(0));
    Value dividend = scaled(ay), divisor = scaled(ax);
    angle = atanOfQuotient(dividend, select(isZero, real(1), divisor));
  }
  // The sign bit of x, so that -0 counts as negative.
  Value isLeft = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                       bits(x), integer(0));
  Value onRight = shortResult ? angle.high : add(angle.high, angle.low);
  Value result = select(isLeft, rightAngleLess(angle, 2), onRight);
  // A NaN of either operand, which the comparisons may have passed over.
  Value isNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, y);
  return select(isNaN, real(notANumber), copySign(result, y));
}
