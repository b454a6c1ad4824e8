//===- Normalise.cpp - Remove what carries no meaning ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `normalise`, the first pass of the path when kernels are made.
// With every node a call it does not run: the graph is executed as it came.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace intarsia {
#define GEN_PASS_DEF_NORMALISE
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

static bool isRemovable(graph::CallOp call) {
  return call->getNumResults() > 0 && !call.isObservable() && call->use_empty();
}

/// A view that starts where its operand starts: with equal sizes and strides
/// it is the same tensor.
static bool startsAtOperand(StringRef callee) {
  return llvm::StringSwitch<bool>(callee)
      .Cases({"aten::alias", "aten::contiguous", "aten::detach"}, true)
      .Cases({"aten::expand", "aten::flatten.using_ints", "aten::lift_fresh"},
             true)
      .Cases({"aten::permute", "aten::reshape", "aten::squeeze"}, true)
      .Cases({"aten::squeeze.dim", "aten::squeeze.dims", "aten::t"}, true)
      .Cases({"aten::transpose.int", "aten::view", "aten::_unsafe_view"}, true)
      .Default(false);
}

/// The argument that the call returns unchanged; null when it does more.
static Value unchangedArgument(graph::CallOp call) {
  if (!startsAtOperand(call.getCallee()) || call.getEffectful() ||
      call.getAliasing() || !call.getMutates().empty() ||
      call->getNumResults() != 1)
    return {};
  Value self = call.operand("self");
  if (!self || self.getType() != call->getResult(0).getType())
    return {};
  // A caller must get a tensor of its own, not the argument itself.
  bool leaves = llvm::any_of(call->getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>();
  });
  return leaves ? Value() : self;
}

namespace {

struct Normalise final : intarsia::impl::NormaliseBase<Normalise> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      mergeEqual(function);
      removeNoOps(function);
      removeDead(function);
    }
  }

  void mergeEqual(func::FuncOp function) {
    for (Block &block : function.getBody()) {
      llvm::DenseMap<std::pair<Attribute, Type>, Operation *> first;
      for (Operation &op : llvm::make_early_inc_range(block)) {
        Attribute key;
        if (auto size = dyn_cast<graph::SizeOp>(op))
          key = size.getExpr();
        else if (auto weight = dyn_cast<graph::WeightOp>(op))
          key = weight.getNameAttr();
        else
          continue;
        auto [it, isNew] =
            first.try_emplace(std::pair(key, op.getResult(0).getType()), &op);
        if (isNew)
          continue;
        op.replaceAllUsesWith(it->second);
        op.erase();
        ++numMerged;
      }
    }
  }

  void removeNoOps(func::FuncOp function) {
    for (graph::CallOp call :
         llvm::make_early_inc_range(function.getOps<graph::CallOp>())) {
      Value argument = unchangedArgument(call);
      if (!argument)
        continue;
      call->getResult(0).replaceAllUsesWith(argument);
      call.erase();
      ++numNoOps;
    }
  }

  void removeDead(func::FuncOp function) {
    for (Block &block : function.getBody()) {
      // Backwards: what only dead operations use is dead too.
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
        if (auto call = dyn_cast<graph::CallOp>(op)) {
          if (!isRemovable(call))
            continue;
          ++numDead;
          op.erase();
        } else if (isa<graph::SizeOp, graph::WeightOp>(op) && op.use_empty()) {
          op.erase();
        }
      }
    }
  }
};

} // namespace
