//===- MathEmitters.cpp - Vector code for math functions ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Which function is computed how: the choice of format, the functions that are
// a line of others, and the operations of the math dialect that stand for them.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathEmitters.h"
#include "passes/CPU/MathCoefficients.h"
#include "passes/CPU/MathEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::math_emitters;

Value MathEmitter::emit(MathFunction function, ValueRange operands) {
  Value x = operands.front();
  switch (function) {
  case MathFunction::Acos:
    return emitAcos(x);
  case MathFunction::Acosh: {
    // log1p(t + sqrt(2t + t*t)), t = x-1: no cancellation near 1.
    Value t = sub(x, real(1));
    Value argument = add(t, sqrt(fma(t, t, add(t, t))));
    Value result = log1pOrTwice(t, argument);
    return select(less(x, real(1)), real(notANumber), result);
  }
  case MathFunction::Asin:
    return emitAsin(x);
  case MathFunction::Asinh: {
    // log1p(a + a*a/(1 + sqrt(1 + a*a))).
    Value a = abs(x), square = mul(a, a);
    Value root = sqrt(add(square, real(1)));
    Value argument = add(a, div(square, add(root, real(1))));
    Value result = log1pOrTwice(a, argument);
    return copySign(select(equal(a, real(infinity)), a, result), x);
  }
  case MathFunction::Atan:
    return copySign(atanPositive(abs(x)), x);
  case MathFunction::Atan2:
    return emitAtan2(x, operands[1]);
  case MathFunction::Atanh: {
    // log1p(2a/(1-a))/2.
    Value a = abs(x);
    Value result = emitLog1p(div(add(a, a), sub(real(1), a)));
    return copySign(mul(result, real(0.5)), x);
  }
  case MathFunction::Cbrt:
    return emitCbrt(x);
  case MathFunction::Cos:
    return sinOrCos(reducePi(x), /*cosine=*/true);
  case MathFunction::Cosh: {
    Value half = halfExp(abs(x));
    return add(half, div(real(0.25), half));
  }
  case MathFunction::Erf:
    return emitErf(x);
  case MathFunction::Erfc:
    return emitErfc(x);
  case MathFunction::Exp:
    return emitExp(x);
  case MathFunction::Exp2:
    return emitExp2(x);
  case MathFunction::Expm1:
    return emitExpm1(x);
  case MathFunction::Fmod:
    return emitFmod(x, operands[1]);
  case MathFunction::Log:
    return emitLog(x, ln2, Split{1, 0});
  case MathFunction::Log10:
    return emitLog(x, log10of2, log10e);
  case MathFunction::Log1p:
    return emitLog1p(x);
  case MathFunction::Log2:
    return emitLog(x, Split{1, 0}, log2e);
  case MathFunction::NormalCdf:
    return emitNormalCdf(x);
  case MathFunction::Pow:
    return emitPow(x, operands[1]);
  case MathFunction::Rsqrt:
    return div(real(1), sqrt(x));
  case MathFunction::Sin:
    return select(equal(x, real(0)), x, sinOrCos(reducePi(x), false));
  case MathFunction::Sinh: {
    Value a = abs(x);
    if (shortResult) {
      // With q = e^a - 1: (q + q/(q+1))/2.
      Value q = emitExpm1(a);
      Value result = mul(add(q, div(q, add(q, real(1)))), real(0.5));
      return copySign(select(equal(q, real(infinity)), q, result), x);
    }
    Value square = mul(a, a);
    Value near =
        fma(mul(square, a), polynomial(square, coefficients::sinhF64), a);
    Value half = halfExp(a);
    Value far = sub(half, div(real(0.25), half));
    return copySign(select(less(real(1), a), far, near), x);
  }
  case MathFunction::Tan:
    return emitTan(x);
  case MathFunction::Tanh:
    return emitTanh(x);
  }
  llvm_unreachable("unknown math function");
}

Value MathEmitter::byLanes(
    ValueRange operands,
    function_ref<Value(VectorType lanes, ValueRange)> instruction) {
  assert(hasLookup);
  auto vector = dyn_cast<VectorType>(type);
  auto lanes = VectorType::get(16, b.getF32Type());
  if (!vector) {
    SmallVector<Value> wide;
    for (Value operand : operands)
      wide.push_back(vector::BroadcastOp::create(
          b, loc, lanes.clone(operand.getType()), operand));
    return vector::ExtractOp::create(b, loc, instruction(lanes, wide), 0);
  }
  // A shuffle's operands need not be of the same size.
  int64_t count = vector.getNumElements();
  Value result;
  for (int64_t start = 0; start < count; start += 16) {
    SmallVector<int64_t> numbers;
    for (int64_t lane = start; lane < start + 16; ++lane)
      numbers.push_back(std::min(lane, count - 1));
    SmallVector<Value> parts;
    for (Value operand : operands)
      parts.push_back(
          vector::ShuffleOp::create(b, loc, operand, operand, numbers));
    Value next = instruction(lanes, parts);
    if (!result)
      result = next;
    numbers = llvm::to_vector(llvm::seq(std::min(start + 16, count)));
    result = vector::ShuffleOp::create(b, loc, result, next, numbers);
  }
  return result;
}

Value MathEmitter::lookup(ArrayRef<double> table, Value index) {
  assert(table.size() == 16);
  SmallVector<float> numbers(table);
  return byLanes(index, [&](VectorType lanes, ValueRange indices) {
    Value entries = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(lanes, ArrayRef<float>(numbers)));
    return LLVM::CallIntrinsicOp::create(
               b, loc, lanes, b.getStringAttr("llvm.x86.avx512.permvar.sf.512"),
               ValueRange{entries, indices.front()})
        .getResult(0);
  });
}

Value MathEmitter::scaleByFloor(Value p, Value n) {
  return byLanes({p, n}, [&](VectorType lanes, ValueRange parts) {
    Value all = arith::ConstantOp::create(b, loc, b.getI16IntegerAttr(-1));
    // The rounding that the thread has set.
    Value current = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(4));
    return LLVM::CallIntrinsicOp::create(
               b, loc, lanes,
               b.getStringAttr("llvm.x86.avx512.mask.scalef.ps.512"),
               ValueRange{parts[0], parts[1], parts[0], all, current})
        .getResult(0);
  });
}

/// The functions that are written for f32 in f32.
static bool isSingleFunction(MathFunction function) {
  switch (function) {
  case MathFunction::Cos:
  case MathFunction::Erf:
  case MathFunction::Exp:
  case MathFunction::Exp2:
  case MathFunction::Expm1:
  case MathFunction::Log:
  case MathFunction::Log10:
  case MathFunction::Log1p:
  case MathFunction::Log2:
  case MathFunction::NormalCdf:
  case MathFunction::Sin:
  case MathFunction::Tanh:
    return true;
  default:
    return false;
  }
}

std::optional<MathFunction> intarsia::getMathFunction(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<MathFunction>>(op)
      .Case([](math::AcosOp) { return MathFunction::Acos; })
      .Case([](math::AcoshOp) { return MathFunction::Acosh; })
      .Case([](math::AsinOp) { return MathFunction::Asin; })
      .Case([](math::AsinhOp) { return MathFunction::Asinh; })
      .Case([](math::AtanOp) { return MathFunction::Atan; })
      .Case([](math::Atan2Op) { return MathFunction::Atan2; })
      .Case([](math::AtanhOp) { return MathFunction::Atanh; })
      .Case([](math::CbrtOp) { return MathFunction::Cbrt; })
      .Case([](math::CosOp) { return MathFunction::Cos; })
      .Case([](math::CoshOp) { return MathFunction::Cosh; })
      .Case([](math::ErfOp) { return MathFunction::Erf; })
      .Case([](math::ErfcOp) { return MathFunction::Erfc; })
      .Case([](math::ExpOp) { return MathFunction::Exp; })
      .Case([](math::Exp2Op) { return MathFunction::Exp2; })
      .Case([](math::ExpM1Op) { return MathFunction::Expm1; })
      .Case([](arith::RemFOp) { return MathFunction::Fmod; })
      .Case([](math::LogOp) { return MathFunction::Log; })
      .Case([](math::Log10Op) { return MathFunction::Log10; })
      .Case([](math::Log1pOp) { return MathFunction::Log1p; })
      .Case([](math::Log2Op) { return MathFunction::Log2; })
      .Case([](math::PowFOp) { return MathFunction::Pow; })
      .Case([](math::RsqrtOp) { return MathFunction::Rsqrt; })
      .Case([](math::SinOp) { return MathFunction::Sin; })
      .Case([](math::SinhOp) { return MathFunction::Sinh; })
      .Case([](math::TanOp) { return MathFunction::Tan; })
      .Case([](math::TanhOp) { return MathFunction::Tanh; })
      .Default([](Operation *) { return std::nullopt; });
}

bool intarsia::canEmitMath(MathFunction function, Type elementType) {
  if (elementType.isF16() || elementType.isBF16() || elementType.isF32())
    return true;
  if (!elementType.isF64())
    return false;
  switch (function) {
  case MathFunction::Erfc:
  case MathFunction::NormalCdf:
    return false;
  default:
    return true;
  }
}

Value intarsia::emitMath(OpBuilder &builder, Location loc,
                         MathFunction function, ValueRange operands,
                         const MathOptions &options) {
  Type type = operands.front().getType();
  Type element = getElementTypeOrSelf(type);
  assert(canEmitMath(function, element) && "no emitter for this type");

  // What the operand is converted to, and back from.
  unsigned width = element.isF64()                   ? 64
                   : function == MathFunction::Rsqrt ? 32
                   : !isSingleFunction(function)     ? 64
                   : options.fma                     ? 32
                                                     : 64;
  Type work = builder.getF32Type();
  if (width == 64)
    work = builder.getF64Type();
  SmallVector<Value> converted(operands);
  Type workType = type;
  if (work != element) {
    if (auto vector = dyn_cast<VectorType>(type))
      workType = vector.clone(work);
    else
      workType = work;
    for (Value &operand : converted)
      operand = arith::ExtFOp::create(builder, loc, workType, operand);
  }
  MathEmitter emitter(builder, loc, workType, options,
                      /*shortResult=*/!element.isF64());
  Value result = emitter.emit(function, converted);
  if (work != element)
    result = arith::TruncFOp::create(builder, loc, type, result);
  return result;
}
