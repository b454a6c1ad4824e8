//===- CPUExpandMath.cpp - The pass cpu-expand-math -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Replaces operations of the math dialect by vector code (MathEmitters.h),
// after vectorisation and before the conversion of scf.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathEmitters.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/Pass.h"

#include <numbers>

namespace intarsia {
#define GEN_PASS_DEF_CPUEXPANDMATH
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// x if `op` is the last multiplication of 0.5 * (1 + erf(x * sqrt(0.5))) in
/// f32 and what it is made of has no other use.
static Value matchNormalCdf(arith::MulFOp op) {
  if (!getElementTypeOrSelf(op.getType()).isF32())
    return {};
  // The operand of `user` that is not the constant.
  auto beside = [](Operation *user, float constant) -> Value {
    for (unsigned operand : {0, 1}) {
      // The emitter of kernels makes a vector's constants this way.
      Value number = user->getOperand(operand);
      if (auto broadcast = number.getDefiningOp<vector::BroadcastOp>())
        number = broadcast.getSource();
      APFloat value(0.0f);
      if (matchPattern(number, m_ConstantFloat(&value)) &&
          value.compare(APFloat(constant)) == APFloat::cmpEqual)
        return user->getOperand(1 - operand);
    }
    return {};
  };
  auto only = [](Value value) {
    return value && value.hasOneUse() ? value : Value();
  };
  Value sum = only(beside(op, 0.5f));
  auto add = sum ? sum.getDefiningOp<arith::AddFOp>() : nullptr;
  Value erf = add ? only(beside(add, 1.0f)) : Value();
  auto function = erf ? erf.getDefiningOp<math::ErfOp>() : nullptr;
  Value product = function ? only(function.getOperand()) : Value();
  auto scaled = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  return scaled ? beside(scaled, float(std::numbers::sqrt2 / 2)) : Value();
}

/// The integer that `divisor` converts, if it is the same in all iterations of
/// the loops around it.
static Value matchInvariantSize(Value divisor) {
  auto conversion = divisor.getDefiningOp<arith::SIToFPOp>();
  std::function<bool(Value)> isInvariant = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || isa<FunctionOpInterface>(op->getParentOp()))
      return isa<FunctionOpInterface>(value.getParentBlock()->getParentOp());
    return isPure(op) && llvm::all_of(op->getOperands(), isInvariant);
  };
  return conversion && isInvariant(conversion.getIn()) ? conversion.getIn()
                                                       : Value();
}

/// Divides by an integer in a loop: where it is a power of two, as most sizes
/// are, by a multiplication, whose latency is a third. Both are exact then.
static void divideBySize(arith::DivFOp op, Value size) {
  ImplicitLocOpBuilder builder(op.getLoc(), op);
  Type type = op.getType();
  auto constant = [&](int64_t value) {
    return arith::ConstantOp::create(
        builder, builder.getIntegerAttr(size.getType(), value));
  };
  Value bits = arith::AndIOp::create(
      builder, size, arith::SubIOp::create(builder, size, constant(1)));
  Value isPower = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, bits,
                                        constant(0));
  Value reciprocal = arith::DivFOp::create(
      builder,
      arith::ConstantOp::create(builder, builder.getFloatAttr(type, 1)),
      op.getRhs());
  auto branch = scf::IfOp::create(
      builder, isPower,
      [&](OpBuilder &inner, Location loc) {
        scf::YieldOp::create(
            inner, loc,
            arith::MulFOp::create(inner, loc, op.getLhs(), reciprocal)
                .getResult());
      },
      [&](OpBuilder &inner, Location loc) {
        scf::YieldOp::create(
            inner, loc,
            arith::DivFOp::create(inner, loc, op.getLhs(), op.getRhs())
                .getResult());
      });
  op.replaceAllUsesWith(branch.getResult(0));
  op.erase();
}

namespace {
struct ExpandMath final : intarsia::impl::CPUExpandMathBase<ExpandMath> {
  using CPUExpandMathBase::CPUExpandMathBase;

  void runOnOperation() override {
    MathOptions options;
    options.fma = fma;
    options.avx512 = avx512;
    // Only a table makes the whole cheaper than its parts.
    getOperation()->walk([&](arith::MulFOp op) {
      Value x = fma && avx512 ? matchNormalCdf(op) : Value();
      if (!x)
        return;
      OpBuilder builder(op);
      op.getResult().replaceAllUsesWith(
          emitMath(builder, op.getLoc(), MathFunction::NormalCdf, x, options));
      SmallVector<Operation *> dead = {op};
      while (!dead.empty()) {
        Operation *next = dead.pop_back_val();
        if (!isOpTriviallyDead(next))
          continue;
        for (Value operand : next->getOperands())
          if (operand != x && operand.getDefiningOp())
            dead.push_back(operand.getDefiningOp());
        next->erase();
      }
      ++numExpanded;
    });
    getOperation()->walk([&](arith::DivFOp op) {
      if (!op->getParentOfType<LoopLikeOpInterface>() ||
          !(op.getType().isF32() || op.getType().isF64()))
        return;
      if (Value size = matchInvariantSize(op.getRhs())) {
        divideBySize(op, size);
        ++numExpanded;
      }
    });
    getOperation()->walk([&](Operation *op) {
      std::optional<MathFunction> function = getMathFunction(op);
      if (!function ||
          !canEmitMath(*function, getElementTypeOrSelf(op->getResult(0))))
        return;
      OpBuilder builder(op);
      Value result = emitMath(builder, op->getLoc(), *function,
                              op->getOperands(), options);
      op->getResult(0).replaceAllUsesWith(result);
      op->erase();
      ++numExpanded;
    });
    if (!fma)
      getOperation()->walk([&](math::FmaOp op) {
        // As eager's vectors do on such a CPU.
        OpBuilder builder(op);
        Value product =
            arith::MulFOp::create(builder, op.getLoc(), op.getA(), op.getB());
        op.replaceAllUsesWith(
            arith::AddFOp::create(builder, op.getLoc(), product, op.getC())
                .getResult());
        op.erase();
      });
  }
};
} // namespace
