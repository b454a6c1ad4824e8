//===- MathRemainder.cpp - The remainder of a division --------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// fmod of f32, exactly: it takes off multiples of the divisor whose factors
// have few enough bits for every product and difference to be exact in f64.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::math_emitters;

Value MathEmitter::emitFmod(Value x, Value y) {
  assert(width == 64 && shortResult && "operands have 24 bits");
  Value a = abs(x), divisor = abs(y);
  // What has no remainder gives NaN. An infinite divisor, which is taken off
  // nothing, is as good as any that is larger than all numbers.
  Value isValid = andI(less(a, real(infinity)), less(real(0), divisor));
  a = select(isValid, a, real(0));
  divisor = atMost(select(isValid, divisor, real(1)), 0x1p200);

  // A quotient of less than 28 bits is cut off to a whole number, and may have
  // been rounded up to one. Of a longer one the leading 28 bits are taken, from
  // a little below it; the next step takes more.
  constexpr double limit = 0x1p28;
  Value leading = integer(int64_t(~uint64_t(0) << (52 - 27)));
  auto step = [&](Value rest) {
    Value quotient = div(rest, divisor);
    Value below = mul(quotient, real(1 - 0x1p-29));
    Value factor = select(less(quotient, real(limit)), quotient,
                          fromBits(andI(bits(below), leading)));
    factor = math::TruncOp::create(b, loc, factor);
    Value difference = sub(rest, mul(factor, divisor));
    return select(less(difference, real(0)), add(difference, divisor),
                  difference);
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
      b, loc, TypeRange(type), ValueRange(a),
      [&](OpBuilder &inside, Location, ValueRange rest) {
        within(inside, [&] {
          scf::ConditionOp::create(b, loc, any(isLarge(rest[0])), rest);
        });
      },
      [&](OpBuilder &inside, Location, ValueRange rest) {
        within(inside, [&] { scf::YieldOp::create(b, loc, step(rest[0])); });
      });
  return select(isValid, copySign(loop.getResult(0), x), real(notANumber));
}
