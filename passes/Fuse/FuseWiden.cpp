//===- FuseWiden.cpp - Keep f32 between the operators of a kernel ---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `fuse-widen`, which only `numerics="fused"` runs: a bf16 or f16
// value that stays inside a kernel is not rounded between the operator that
// makes it and those that use it. A cast that the user wrote still rounds.
//
//===----------------------------------------------------------------------===//

#include "passes/Fuse/FuseGraph.h"
#include "passes/Kernel/Body.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::fuse;

namespace intarsia {
#define GEN_PASS_DEF_FUSEWIDEN
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// The rounding at the end of a pointwise generic that the pass may take away;
/// null when there is none.
arith::TruncFOp implicitRounding(linalg::GenericOp op) {
  if (op->hasAttr(explicitCastAttrName) || op.getNumReductionLoops() != 0 ||
      op.getNumResults() != 1)
    return {};
  auto yielded = op.getBody()->getTerminator()->getOperand(0);
  auto rounding = yielded.getDefiningOp<arith::TruncFOp>();
  if (!rounding || !rounding.getIn().getType().isF32())
    return {};
  bool usersCanWiden = llvm::all_of(op->getUsers(), [](Operation *user) {
    auto generic = dyn_cast<linalg::GenericOp>(user);
    return isa<graph::YieldOp>(user) ||
           (generic && generic.getNumReductionLoops() == 0);
  });
  bool isReadInside = llvm::any_of(op->getUsers(), [](Operation *user) {
    return isa<linalg::GenericOp>(user);
  });
  return usersCanWiden && isReadInside ? rounding : arith::TruncFOp();
}

class FuseWiden final : public ::intarsia::impl::FuseWidenBase<FuseWiden> {
public:
  using FuseWidenBase::FuseWidenBase;

  void runOnOperation() override {
    SmallVector<linalg::GenericOp> work;
    getOperation().walk([&](graph::KernelOp kernelOp) {
      for (auto op : kernelOp.getBody().front().getOps<linalg::GenericOp>())
        work.push_back(op);
    });
    for (linalg::GenericOp op : work)
      if (arith::TruncFOp rounding = implicitRounding(op)) {
        widen(op, rounding);
        ++numWidened;
      }
  }

private:
  void widen(linalg::GenericOp op, arith::TruncFOp rounding) {
    OpBuilder builder(op);
    Location loc = op.getLoc();
    auto narrowType = cast<RankedTensorType>(op.getResult(0).getType());
    auto wideType = narrowType.clone(builder.getF32Type());
    auto empty = op.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>();
    auto emptyLike = [&](RankedTensorType type) -> Value {
      return tensor::EmptyOp::create(builder, loc, type.getShape(),
                                     type.getElementType(),
                                     empty.getDynamicSizes());
    };
    Value narrow = op.getResult(0);

    // The value in f32.
    op.getDpsInitsMutable()[0].set(emptyLike(wideType));
    op.getBody()->getArguments().back().setType(builder.getF32Type());
    op.getBody()->getTerminator()->setOperand(0, rounding.getIn());
    narrow.setType(wideType);
    if (rounding->use_empty())
      rounding.erase();

    // A user inside takes it as it is where it would have widened it.
    SmallVector<OpOperand *> stored;
    for (OpOperand &use : narrow.getUses()) {
      auto user = dyn_cast<linalg::GenericOp>(use.getOwner());
      if (!user) {
        stored.push_back(&use);
        continue;
      }
      BlockArgument argument = user.getMatchingBlockArgument(&use);
      argument.setType(builder.getF32Type());
      SmallVector<OpOperand *> others;
      for (OpOperand &inner : llvm::make_early_inc_range(argument.getUses())) {
        auto extension = dyn_cast<arith::ExtFOp>(inner.getOwner());
        if (extension && extension.getType().isF32()) {
          extension.getResult().replaceAllUsesWith(argument);
          extension.erase();
        } else {
          others.push_back(&inner);
        }
      }
      if (others.empty())
        continue;
      OpBuilder inside = OpBuilder::atBlockBegin(user.getBody());
      Value rounded = arith::TruncFOp::create(
          inside, loc, narrowType.getElementType(), argument);
      for (OpOperand *other : others)
        other->set(rounded);
    }

    // What leaves the kernel is rounded as before.
    if (stored.empty())
      return;
    builder.setInsertionPointAfter(op);
    AffineMap identity = builder.getMultiDimIdentityMap(narrowType.getRank());
    SmallVector<utils::IteratorType> parallel(narrowType.getRank(),
                                              utils::IteratorType::parallel);
    auto rounded = linalg::GenericOp::create(
        builder, loc, narrowType, narrow, emptyLike(narrowType),
        ArrayRef<AffineMap>{identity, identity}, parallel,
        [&](OpBuilder &inner, Location at, ValueRange values) {
          Value value = arith::TruncFOp::create(
              inner, at, narrowType.getElementType(), values[0]);
          linalg::YieldOp::create(inner, at, value);
        });
    for (OpOperand *use : stored)
      use->set(rounded.getResult(0));
  }
};

} // namespace
