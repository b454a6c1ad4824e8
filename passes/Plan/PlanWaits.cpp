//===- PlanWaits.cpp - Wait for communication as late as possible ---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `plan-waits`: between the start of a collective and the wait for
// it, everything that does not need its result can run.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Storage.h"
#include "passes/Plan/Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace intarsia {
#define GEN_PASS_DEF_PLANWAITS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

static bool isWait(Operation *op) {
  auto call = dyn_cast<graph::CallOp>(op);
  return call && (call.getCallee() == "_c10d_functional::wait_tensor" ||
                  call.getCallee() == "_c10d_functional::wait_tensors");
}

/// A view of what is waited for does not need it yet.
static bool isViewOfWait(Operation *op) {
  auto call = dyn_cast<graph::CallOp>(op);
  std::optional<StridedView> view =
      call ? stridedView(call) : std::optional<StridedView>();
  if (!view)
    return false;
  Operation *source = view->source.getDefiningOp();
  return source && (isWait(source) || isViewOfWait(source));
}

/// Memory that a collective still reads or fills must not be written.
static bool writesMemory(Operation *op) {
  if (op->hasAttr(intoAttrName))
    return true;
  auto call = dyn_cast<graph::CallOp>(op);
  return call && (!call.getMutates().empty() || call.getAliasing() ||
                  reusedOperand(call));
}

namespace {

struct PlanWaits final : intarsia::impl::PlanWaitsBase<PlanWaits> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        // Upwards: what uses a wait is in its place before the wait is.
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
          if (isWait(&op) || isViewOfWait(&op))
            sink(&op);
  }

  void sink(Operation *op) {
    Operation *at = op->getNextNode();
    while (!at->hasTrait<OpTrait::IsTerminator>() && !writesMemory(at) &&
           llvm::none_of(op->getUsers(),
                         [&](Operation *user) { return user == at; }))
      at = at->getNextNode();
    if (at == op->getNextNode())
      return;
    op->moveBefore(at);
    if (isWait(op))
      ++numSunk;
  }
};

} // namespace
