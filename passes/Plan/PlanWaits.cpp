//===- PlanWaits.cpp - Wait for communication as late as possible ---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `plan-waits`: between the start of a collective and the wait for
// it, everything that does not need its result can run. Waits are held back,
// with what needs them and is not observed, until something needs these.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Storage.h"
#include "passes/Plan/Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

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

/// Memory that a collective still reads or fills must not be written.
static bool writesMemory(Operation *op) {
  if (op->hasAttr(intoAttrName))
    return true;
  auto call = dyn_cast<graph::CallOp>(op);
  return call && (!call.getMutates().empty() || call.getAliasing() ||
                  reusedOperand(call));
}

/// Whether nobody sees when it runs: a kernel, a view, an operator of
/// PyTorch's without effects.
static bool isUnobserved(Operation *op) {
  if (writesMemory(op) || !isMemoryEffectFree(op))
    return false;
  auto call = dyn_cast<graph::CallOp>(op);
  return call ? call.getCallee().starts_with("aten::") ||
                    call.getCallee().starts_with("prims::")
              : isa<graph::KernelOp>(op);
}

static bool isView(Operation *op) {
  auto call = dyn_cast<graph::CallOp>(op);
  return call && stridedView(call);
}

namespace {

struct PlanWaits final : intarsia::impl::PlanWaitsBase<PlanWaits> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        sinkIn(block);
  }

  void sinkIn(Block &block) {
    held.clear();
    for (Operation &op : llvm::make_early_inc_range(block)) {
      bool needs = needsHeld(&op);
      if (isWait(&op) || (needs && (isView(&op) || isUnobserved(&op)))) {
        held.insert(&op);
      } else if (op.hasTrait<OpTrait::IsTerminator>() || writesMemory(&op)) {
        while (!held.empty())
          release(held.front(), &op);
      } else if (needs) {
        releaseFor(&op);
      }
    }
  }

  static void forProducers(Operation *op,
                           llvm::function_ref<void(Operation *)> visit) {
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          visit(producer);
    });
  }

  bool needsHeld(Operation *op) {
    bool needs = false;
    forProducers(op, [&](Operation *made) { needs |= held.contains(made); });
    return needs;
  }

  /// What `op` needs of the held ones comes before it, in their order.
  void releaseFor(Operation *op) {
    llvm::SmallPtrSet<Operation *, 8> needed;
    auto need = [&](Operation *made) {
      if (held.contains(made))
        needed.insert(made);
    };
    forProducers(op, need);
    SmallVector<Operation *> order(held.begin(), held.end());
    for (Operation *other : llvm::reverse(order))
      if (needed.contains(other))
        forProducers(other, need);
    for (Operation *other : order)
      if (needed.contains(other))
        release(other, op);
  }

  void release(Operation *op, Operation *before) {
    held.remove(op);
    if (op->getNextNode() == before)
      return;
    op->moveBefore(before);
    if (isWait(op))
      ++numSunk;
  }

  /// Waits, and what needs them and may wait too, where they were.
  llvm::SetVector<Operation *> held;
};

} // namespace
