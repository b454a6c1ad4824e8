//===- CPUExpandConversions.cpp - The pass cpu-expand-conversions ---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Rounds to bf16 and f16 as PyTorch does. The instruction that LLVM would
// select for bf16, vcvtneps2bf16, takes denormals for zero, so integer
// arithmetic does it: the half of the last place that stays is added, less one
// if that place is even, and the low half is cut off. A NaN becomes 0x7fc0 as
// in c10::BFloat16. (Eager's vectorised loops give 0xffff, their scalar
// remainders 0x7fc0.)
//
// For f16 there are exact instructions (F16C) on every CPU with AVX2; on others
// integer arithmetic does that too. Between f64 and the two formats eager goes
// through f32, and so do we: LLVM has only library calls for the direct way,
// which round differently.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"

namespace intarsia {
#define GEN_PASS_DEF_CPUEXPANDCONVERSIONS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// A type of the same shape.
static Type withElement(Type shape, Type element) {
  auto vector = dyn_cast<VectorType>(shape);
  return vector ? Type(vector.clone(element)) : element;
}

namespace {
/// Writes one conversion of a scalar or vector.
class Conversion {
public:
  Conversion(OpBuilder &builder, Location loc, Type shape)
      : b(builder), loc(loc), shape(shape) {}

  Value bf16ToF32(Value x) {
    Value i = arith::BitcastOp::create(b, loc, like(b.getI16Type()), x);
    i = arith::ExtUIOp::create(b, loc, like(b.getI32Type()), i);
    return fromBits(shiftLeft(i, i32(16)));
  }

  Value f32ToBF16(Value x) {
    Value i = bits(x);
    Value odd = andI(shiftRight(i, i32(16)), i32(1));
    Value rounded = shiftRight(addI(i, addI(odd, i32(0x7fff))), i32(16));
    return fromI32(select(isNaN(x), i32(0x7fc0), rounded), b.getBF16Type());
  }

  /// Exact: the exponent's bias is put right by a multiplication, which makes
  /// numbers of denormals too.
  Value f16ToF32(Value x) {
    Value i = arith::BitcastOp::create(b, loc, like(b.getI16Type()), x);
    i = arith::ExtUIOp::create(b, loc, like(b.getI32Type()), i);
    Value magnitude = shiftLeft(andI(i, i32(0x7fff)), i32(13));
    Value scaled =
        bits(arith::MulFOp::create(b, loc, fromBits(magnitude), f32(0x1p112f)));
    Value finite = less(magnitude, i32(0x7c00 << 13));
    Value special = arith::OrIOp::create(b, loc, magnitude, i32(0x7f800000));
    Value sign = shiftLeft(andI(i, i32(0x8000)), i32(16));
    return fromBits(
        arith::OrIOp::create(b, loc, select(finite, scaled, special), sign));
  }

  Value f32ToF16(Value x) {
    Value i = bits(x);
    Value magnitude = andI(i, i32(0x7fffffff));
    // Normal numbers: as for bf16, with the exponent's bias put right. What is
    // too large arrives at infinity.
    Value odd = andI(shiftRight(magnitude, i32(13)), i32(1));
    Value normal = shiftRight(
        addI(magnitude, addI(odd, i32(0xfff - (112 << 23)))), i32(13));
    // Denormal ones: an addition whose last place is the denormals' rounds.
    Value sum = arith::AddFOp::create(b, loc, fromBits(magnitude), f32(0.5f));
    Value denormal = arith::SubIOp::create(b, loc, bits(sum), bits(f32(0.5f)));
    Value result = select(less(magnitude, i32(113 << 23)), denormal, normal);
    result = select(less(magnitude, i32(143 << 23)), result, i32(0x7c00));
    result = select(isNaN(x), i32(0x7e00), result);
    Value sign = andI(shiftRight(i, i32(16)), i32(0x8000));
    return fromI32(arith::OrIOp::create(b, loc, result, sign), b.getF16Type());
  }

  Type like(Type element) { return withElement(shape, element); }

private:
  Value bits(Value x) {
    return arith::BitcastOp::create(b, loc, like(b.getI32Type()), x);
  }
  Value fromBits(Value i) {
    return arith::BitcastOp::create(b, loc, like(b.getF32Type()), i);
  }
  Value fromI32(Value i, Type element) {
    i = arith::TruncIOp::create(b, loc, like(b.getI16Type()), i);
    return arith::BitcastOp::create(b, loc, like(element), i);
  }
  Value addI(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value andI(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value shiftLeft(Value x, Value y) {
    return arith::ShLIOp::create(b, loc, x, y);
  }
  Value shiftRight(Value x, Value y) {
    return arith::ShRUIOp::create(b, loc, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }
  Value less(Value x, Value y) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  Value isNaN(Value x) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  }
  Value i32(int32_t value) { return constant(b.getI32IntegerAttr(value)); }
  Value f32(float value) { return constant(b.getF32FloatAttr(value)); }
  Value constant(TypedAttr attribute) {
    if (auto vector = dyn_cast<VectorType>(shape))
      attribute = DenseElementsAttr::get(
          cast<VectorType>(vector.clone(attribute.getType())), attribute);
    return arith::ConstantOp::create(b, loc, attribute);
  }

  OpBuilder &b;
  Location loc;
  Type shape;
};

struct ExpandConversions final
    : intarsia::impl::CPUExpandConversionsBase<ExpandConversions> {
  using CPUExpandConversionsBase::CPUExpandConversionsBase;

  /// LLVM moves the conversion of a scalar, or of a vector of which it needs
  /// one lane, inside the copysign that it converts, and then has to convert a
  /// sign in f64 to f16, for which there is no instruction.
  static Value fenced(OpBuilder &b, Location loc, Value x) {
    return LLVM::CallIntrinsicOp::create(
               b, loc, x.getType(), b.getStringAttr("llvm.arithmetic.fence"),
               ValueRange{x})
        ->getResult(0);
  }

  /// i16 in the place of a format that the CPU can only store; any other type
  /// is itself.
  Type stored(Type type) const {
    Type element = getElementTypeOrSelf(type);
    if (!element.isBF16() && (!element.isF16() || f16c))
      return type;
    return withElement(type, IntegerType::get(type.getContext(), 16));
  }

  TypedAttr stored(TypedAttr attribute) const {
    Type type = stored(attribute.getType());
    if (auto number = dyn_cast<FloatAttr>(attribute))
      return IntegerAttr::get(type, number.getValue().bitcastToAPInt());
    auto elements = cast<DenseFPElementsAttr>(attribute);
    return elements.mapValues(
        getElementTypeOrSelf(type),
        [](const APFloat &value) { return value.bitcastToAPInt(); });
  }

  /// After the conversions nothing computes in these formats. LLVM would: a
  /// select of bf16 it converts to f32 and back, by a function of libgcc or by
  /// an instruction that takes denormals for zero.
  void storeAsIntegers() {
    SmallVector<arith::BitcastOp> casts;
    getOperation()->walk([&](Operation *op) {
      for (Value result : op->getResults())
        result.setType(stored(result.getType()));
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (BlockArgument argument : block.getArguments())
            argument.setType(stored(argument.getType()));
      if (auto constant = dyn_cast<arith::ConstantOp>(op);
          constant && constant.getValue().getType() != constant.getType())
        constant.setValueAttr(stored(constant.getValue()));
      if (auto cast = dyn_cast<arith::BitcastOp>(op))
        casts.push_back(cast);
    });
    for (arith::BitcastOp cast : casts)
      if (cast.getType() == cast.getIn().getType()) {
        cast.replaceAllUsesWith(cast.getIn());
        cast.erase();
      }
  }

  /// The exact operations that the emitter leaves in these formats (a
  /// comparison, a sign) are those of f32.
  void widenOperations() {
    SmallVector<Operation *> narrow;
    getOperation()->walk([&](Operation *op) {
      if (isa<arith::CmpFOp, arith::NegFOp, arith::MaximumFOp,
              arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp,
              math::AbsFOp, math::CopySignOp>(op) &&
          stored(op->getOperand(0).getType()) != op->getOperand(0).getType())
        narrow.push_back(op);
    });
    for (Operation *op : narrow) {
      OpBuilder b(op);
      Location loc = op->getLoc();
      auto wide = [&](Type type) { return withElement(type, b.getF32Type()); };
      for (OpOperand &operand : op->getOpOperands())
        operand.set(arith::ExtFOp::create(b, loc, wide(operand.get().getType()),
                                          operand.get()));
      if (isa<arith::CmpFOp>(op))
        continue;
      Value result = op->getResult(0);
      Type type = result.getType();
      result.setType(wide(type));
      b.setInsertionPointAfter(op);
      auto back = arith::TruncFOp::create(b, loc, type, result);
      result.replaceAllUsesExcept(back, back);
    }
  }

  void runOnOperation() override {
    if (integers)
      widenOperations();
    expand();
    if (integers)
      storeAsIntegers();
  }

  void expand() {
    SmallVector<Operation *> conversions;
    getOperation()->walk([&](Operation *op) {
      if (isa<arith::TruncFOp, arith::ExtFOp>(op))
        conversions.push_back(op);
    });
    for (Operation *op : conversions) {
      Value x = op->getOperand(0);
      Type from = getElementTypeOrSelf(x);
      Type to = getElementTypeOrSelf(op->getResult(0));
      bool half = from.isF16() || to.isF16();
      bool native = f16c && half && (from.isF32() || to.isF32());
      OpBuilder b(op);
      Location loc = op->getLoc();
      if (native && to.isF16())
        op->setOperand(0, fenced(b, loc, x));
      if (!(half || from.isBF16() || to.isBF16()) || native)
        continue;
      Conversion convert(b, loc, x.getType());
      Type f32 = convert.like(b.getF32Type());
      // To f32 ...
      if (from.isBF16())
        x = convert.bf16ToF32(x);
      else if (from.isF16() && !f16c)
        x = convert.f16ToF32(x);
      else if (from.isF16())
        x = arith::ExtFOp::create(b, loc, f32, x);
      else if (from.isF64())
        x = arith::TruncFOp::create(b, loc, f32, x);
      // ... and from it.
      if (to.isBF16() && bf16)
        x = arith::TruncFOp::create(b, loc, convert.like(to),
                                    fenced(b, loc, x));
      else if (to.isBF16())
        x = convert.f32ToBF16(x);
      else if (to.isF16() && !f16c)
        x = convert.f32ToF16(x);
      else if (to.isF16())
        x = arith::TruncFOp::create(b, loc, convert.like(to),
                                    fenced(b, loc, x));
      else if (to.isF64())
        x = arith::ExtFOp::create(b, loc, convert.like(to), x);
      op->getResult(0).replaceAllUsesWith(x);
      op->erase();
    }
  }
};
} // namespace
