//===- MathRemainder.cpp - The remainder of a division --------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// fmod, exactly: it takes off multiples of the divisor whose factors have few
// enough bits for every product and difference to be exact in f64. A divisor in
// f64 is a sum of two halves for that.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::math_emitters;

Value MathEmitter::emitFmod(Value x, Value y) {
  assert(width == 64 && "for both formats it is done in f64");
  Value a = abs(x), divisor = abs(y);
  // What has no remainder gives NaN. An infinite divisor is taken off nothing;
  // for an f32 any that is larger than all of them is as good.
  Value isValid = andI(less(a, real(infinity)), less(real(0), divisor));
  a = select(isValid, a, real(0));
  divisor = select(isValid, divisor, real(1));
  Value isInfinite;
  Value start = a;
  if (shortResult) {
    divisor = atMost(divisor, 0x1p200);
  } else {
    isInfinite = equal(divisor, real(infinity));
    divisor = select(isInfinite, real(1), divisor);
    start = select(isInfinite, real(0), a);
  }

  // A quotient of few bits is cut off to a whole number, and may have been
  // rounded up to one. Of a longer one the leading bits are taken, from a
  // little below it; the next step takes more.
  int few = shortResult ? 28 : 24;
  double limit = std::ldexp(1.0, few);
  Value leading = integer(int64_t(~uint64_t(0) << (53 - few)));
  Value all = divisor;
  auto step = [&](Value rest) {
    Value divisor = all;
    if (!shortResult) {
      // A quotient may be too large for a number, by up to 2^1074: first by a
      // multiple.
      for (double multiple : {0x1p1000, 0x1p100}) {
        Value isFar =
            less(mul(divisor, real(0x1p500)), mul(rest, real(0x1p-500)));
        divisor = select(isFar, mul(divisor, real(multiple)), divisor);
      }
    }
    Value quotient = div(rest, divisor);
    Value isShort = less(quotient, real(limit));
    Value whole = math::TruncOp::create(b, loc, quotient);
    if (shortResult) {
      Value below = mul(quotient, real(1 - 0x1p-29));
      Value factor =
          select(isShort, whole, fromBits(andI(bits(below), leading)));
      Value difference = sub(rest, mul(factor, divisor));
      return select(less(difference, real(0)), add(difference, divisor),
                    difference);
    }
    // No bits are to spare: exactly the leading ones, and where the quotient
    // was rounded up to them, one unit back.
    Value i = bits(quotient);
    Value nearest = fromBits(andI(i, leading));
    Value factor = select(isShort, whole, nearest);
    Value power = fromBits(andI(i, integer(int64_t(2047) << 52)));
    Value unit = select(isShort, real(1), mul(power, real(0x1p-23)));
    Value top = fromBits(andI(bits(divisor), integer(-(int64_t(1) << 27))));
    Value difference =
        sub(sub(rest, mul(factor, top)), mul(factor, sub(divisor, top)));
    return select(less(difference, real(0)),
                  add(difference, mul(divisor, unit)), difference);
  };
  auto isLarge = [&](Value rest) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, rest,
                                 divisor);
  };
  auto within = [&](OpBuilder &inside, llvm::function_ref<void()> emit) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(inside.getInsertionBlock(), inside.getInsertionPoint());
    emit();
  };
  auto loop = scf::WhileOp::create(
      b, loc, TypeRange(type), ValueRange(start),
      [&](OpBuilder &inside, Location, ValueRange rest) {
        within(inside, [&] {
          scf::ConditionOp::create(b, loc, any(isLarge(rest[0])), rest);
        });
      },
      [&](OpBuilder &inside, Location, ValueRange rest) {
        within(inside, [&] { scf::YieldOp::create(b, loc, step(rest[0])); });
      });
  Value result = loop.getResult(0);
  if (isInfinite)
    result = select(isInfinite, a, result);
  return select(isValid, copySign(result, x), real(notANumber));
}
