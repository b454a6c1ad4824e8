//===- CUDAPackArithmetic.cpp - Two numbers of 16 bits at once ------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cuda-pack-arithmetic`. Eager adds, subtracts and multiplies bf16
// and f16 in f32 and rounds each result. That is what one operation of the
// format makes, which a GPU does for two numbers at once: where the wider
// format has at least twice as many digits and two more, rounding to it first
// changes nothing (24 are enough for 8 and for 11). Near zero the digits become
// fewer, but there a sum is exact in f32, and of a product, which has at most
// 16 or 22 digits, those that f32 has no place for are below half of the least
// number of the format, or there are none.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace intarsia {
#define GEN_PASS_DEF_CUDAPACKARITHMETIC
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// The constant in the narrow type, if all of it has a value there.
TypedAttr narrowed(Attribute value, VectorType type) {
  auto elements = dyn_cast<DenseFPElementsAttr>(value);
  if (!elements)
    return {};
  const llvm::fltSemantics &semantics =
      cast<FloatType>(type.getElementType()).getFloatSemantics();
  SmallVector<APFloat> numbers;
  for (APFloat number : elements) {
    bool losesInfo = false;
    number.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
    if (losesInfo)
      return {};
    numbers.push_back(number);
  }
  return DenseElementsAttr::get(type, numbers);
}

/// A value in f32 as the one in `type` that it was made of; null: there is
/// none.
Value narrow(OpBuilder &builder, Value value, VectorType type) {
  Location loc = value.getLoc();
  if (auto extended = value.getDefiningOp<arith::ExtFOp>())
    return extended.getIn().getType() == type ? extended.getIn() : Value();
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant))) {
    TypedAttr number = narrowed(constant, type);
    return number ? arith::ConstantOp::create(builder, loc, number).getResult()
                  : Value();
  }
  auto broadcast = value.getDefiningOp<vector::BroadcastOp>();
  auto scalar = broadcast ? broadcast.getSource().getDefiningOp<arith::ExtFOp>()
                          : arith::ExtFOp();
  if (!scalar || scalar.getIn().getType() != type.getElementType())
    return {};
  return vector::BroadcastOp::create(builder, loc, type, scalar.getIn());
}

class CUDAPackArithmetic final
    : public ::intarsia::impl::CUDAPackArithmeticBase<CUDAPackArithmetic> {
public:
  void runOnOperation() override {
    // In order: what one operation rounds is the operand of the next.
    SmallVector<arith::TruncFOp> roundings;
    getOperation()->walk(
        [&](arith::TruncFOp rounding) { roundings.push_back(rounding); });
    for (arith::TruncFOp rounding : roundings) {
      auto type = dyn_cast<VectorType>(rounding.getType());
      if (!type || type.getNumElements() % 2 != 0 ||
          !(type.getElementType().isBF16() || type.getElementType().isF16()))
        continue;
      Operation *op = rounding.getIn().getDefiningOp();
      if (!op || !isa<arith::AddFOp, arith::SubFOp, arith::MulFOp>(op) ||
          !getElementTypeOrSelf(rounding.getIn()).isF32())
        continue;
      OpBuilder builder(rounding);
      Value x = narrow(builder, op->getOperand(0), type);
      Value y = x ? narrow(builder, op->getOperand(1), type) : Value();
      if (!y)
        continue;
      OperationState state(op->getLoc(), op->getName(), {x, y}, type);
      rounding.replaceAllUsesWith(builder.create(state)->getResult(0));
      rounding.erase();
      if (op->use_empty())
        op->erase();
      ++numPacked;
    }
  }
};

} // namespace
