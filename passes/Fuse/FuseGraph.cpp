//===- FuseGraph.cpp - The order that fusion must keep --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements FuseGraph.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Fuse/FuseGraph.h"

#include "passes/Lower/Lowering.h"

#include "llvm/ADT/StringMap.h"

#include <set>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::fuse;

/// The operand whose storage a result may lie in; null when it is its own.
static Value viewedOperand(OpResult result) {
  auto call = dyn_cast<graph::CallOp>(result.getOwner());
  if (!call)
    return {};
  std::optional<ArrayRef<int64_t>> views = call.getViews();
  unsigned number = result.getResultNumber();
  if (!views || number >= views->size() || (*views)[number] < 0)
    return {};
  return call.getInputs()[(*views)[number]];
}

Value fuse::viewSource(graph::CallOp call) {
  // One that binds a symbol must run: what it returns determines the symbol.
  if (call.getAliasing() || !lower::lookupView(call.getCallee()) ||
      call->getNumResults() != 1 ||
      (call.getBinds() && !call.getBinds()->empty()))
    return {};
  Value source = viewedOperand(call->getResult(0));
  if (!source || !isa<graph::TensorType>(source.getType()))
    return {};
  // The view must have an index map for this call's arguments; building one
  // aside tells.
  OpBuilder scrap(call.getContext());
  lower::KernelBuilder kernel(scrap, call.getLoc());
  FailureOr<lower::Tensor> view =
      lower::lookupView(call.getCallee())(call, kernel, kernel.input(source));
  return succeeded(view) ? source : Value();
}

graph::KernelOp fuse::producerOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto kernelOp = dyn_cast<graph::KernelOp>(op))
      return kernelOp;
    auto call = dyn_cast<graph::CallOp>(op);
    if (!call)
      return {};
    value = viewSource(call);
    if (!value)
      return {};
  }
  return {};
}

std::optional<SmallVector<SymExpr>>
fuse::viewedPosition(graph::CallOp view, ArrayRef<SymExpr> index,
                     const kernel::Ranges &ranges) {
  // The index map as a kernel of its own, aside.
  Block aside;
  OpBuilder builder(view.getContext());
  builder.setInsertionPointToEnd(&aside);
  lower::KernelBuilder kernel(builder, view.getLoc());
  FailureOr<lower::Tensor> result = lower::lookupView(view.getCallee())(
      view, kernel, kernel.input(viewSource(view)));
  if (failed(result))
    return std::nullopt;
  graph::KernelOp map = kernel.finish(
      *result, cast<graph::TensorType>(view->getResult(0).getType()), "");
  Value tensor = map.getBody().front().getTerminator()->getOperand(0);
  SmallVector<SymExpr> position(index);
  while (Operation *op = tensor.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (std::optional<SmallVector<SymExpr>> source =
            kernel::sourceIndex(op, position, ranges))
      position = std::move(*source);
    else if (generic && generic.getNumDpsInputs() == 1 &&
             llvm::hasSingleElement(*generic.getBody()))
      position = kernel::applyMap(
          generic.getMatchingIndexingMap(generic.getDpsInputOperand(0)),
          position);
    else
      return std::nullopt;
    tensor = op->getOperand(0);
  }
  return position;
}

bool fuse::neededOutside(Value result,
                         llvm::function_ref<bool(Operation *)> isMember) {
  return llvm::any_of(result.getUsers(), [&](Operation *user) {
    if (isMember(user))
      return false;
    auto call = dyn_cast<graph::CallOp>(user);
    if (!call || viewSource(call) != result)
      return true;
    return neededOutside(call.getOutputs()[0], isMember);
  });
}

Value fuse::baseOf(Value value) {
  while (auto result = dyn_cast<OpResult>(value)) {
    Value source = viewedOperand(result);
    if (!source)
      break;
    value = source;
  }
  return value;
}

OrderGraph::OrderGraph(Block &block) {
  for (Operation &op : block) {
    index[&op] = ops.size();
    ops.push_back(&op);
  }
  after.resize(ops.size());
  auto isPureOp = [](Operation *op) {
    if (auto call = dyn_cast<graph::CallOp>(op))
      return !call.isObservable();
    return isMemoryEffectFree(op);
  };
  int64_t lastEffect = -1;
  // Storage -> operations that have read it since it was last written.
  DenseMap<Value, SmallVector<int64_t>> readers;
  // What a symbol of the data is bound by comes before what has such a size.
  llvm::StringMap<int64_t> binders;
  for (auto [node, op] : llvm::enumerate(ops)) {
    int64_t number = node;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && producer->getBlock() == &block)
        after[index[producer]].push_back(number);
    if (!binders.empty())
      op->walk([&](Operation *inner) {
        auto use = [&](graph::ExprAttr expr) {
          std::set<std::string> names;
          expr.getExpr().collectSymbols(names);
          for (const std::string &name : names)
            if (auto binder = binders.find(name); binder != binders.end())
              after[binder->second].push_back(number);
        };
        for (NamedAttribute attribute : inner->getAttrs())
          attribute.getValue().walk(use);
        for (Type type : inner->getOperandTypes())
          type.walk(use);
        for (Type type : inner->getResultTypes())
          type.walk(use);
      });
    if (auto call = dyn_cast<graph::CallOp>(op); call && call.getBinds())
      for (auto bind : call.getBinds()->getAsRange<graph::BindAttr>())
        binders.try_emplace(bind.getSymbol(), number);
    if (!isPureOp(op) || op->hasTrait<OpTrait::IsTerminator>()) {
      if (lastEffect >= 0)
        after[lastEffect].push_back(number);
      lastEffect = number;
    }
    if (auto call = dyn_cast<graph::CallOp>(op))
      for (int64_t operand : call.getMutates()) {
        SmallVector<int64_t> &seen = readers[baseOf(call.getInputs()[operand])];
        for (int64_t reader : seen)
          if (reader != number)
            after[reader].push_back(number);
        seen.clear();
      }
    for (Value operand : op->getOperands())
      if (isa<graph::TensorType>(operand.getType()))
        readers[baseOf(operand)].push_back(number);
  }
  // Nothing may move behind the terminator.
  if (!ops.empty())
    for (int64_t node = 0; node + 1 < static_cast<int64_t>(ops.size()); ++node)
      after[node].push_back(ops.size() - 1);
}
