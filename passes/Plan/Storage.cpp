//===- Storage.cpp - Which values may share storage -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Roots flow from the facts on the calls: views share their operand's roots,
// an in-place update keeps the base's, subgraphs may return what they were
// given, and every other result has a storage of its own.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/Storage.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Views.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace intarsia {

static bool hasStorage(Value value) {
  return isa<graph::TensorType, graph::ObjectType>(value.getType());
}

bool isPostponed(graph::CallOp call) {
  auto decision = call->getAttrOfType<StringAttr>(writebackAttrName);
  return decision && decision.getValue() == "later";
}

bool isInplace(graph::CallOp call, unsigned index) {
  auto decisions = call->getAttrOfType<ArrayAttr>(inplaceAttrName);
  if (!decisions || index >= decisions.size())
    return false;
  auto decision = dyn_cast<StringAttr>(decisions[index]);
  return decision && decision.getValue() == "inplace";
}

BlockArgument mutatedArgument(func::FuncOp function, unsigned index) {
  auto kind =
      function.getResultAttrOfType<StringAttr>(index, "intarsia.output");
  auto target =
      function.getResultAttrOfType<StringAttr>(index, "intarsia.target");
  if (!kind || !target || !kind.getValue().ends_with("_mutation"))
    return {};
  bool byName = kind.getValue() == "input_mutation";
  for (BlockArgument argument : function.getArguments()) {
    auto name = function.getArgAttrOfType<StringAttr>(
        argument.getArgNumber(), byName ? "intarsia.name" : "intarsia.target");
    if (name && name.getValue() == target.getValue())
      return argument;
  }
  return {};
}

BlockArgument overwrittenArgument(graph::CallOp call) {
  if (call.getCallee() != "aten::copy_" || call.getMutates().size() != 1)
    return {};
  return dyn_cast<BlockArgument>(call.getInputs()[call.getMutates().front()]);
}

BlockArgument writtenArgument(OpResult result) {
  auto into = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(intoAttrName);
  if (!into || into[result.getResultNumber()] < 0)
    return {};
  return result.getOwner()->getBlock()->getArgument(
      into[result.getResultNumber()]);
}

Storage::Storage(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (hasStorage(argument))
      enter(argument, {argument});
}

void Storage::enter(Value value, Roots roots) {
  for (Value root : roots)
    membersOf[root].push_back(value);
  rootsOf[value] = std::move(roots);
}

const Storage::Roots &Storage::roots(Value value) const {
  auto it = rootsOf.find(value);
  return it == rootsOf.end() ? none : it->second;
}

bool Storage::mayShare(Value a, Value b) const {
  return llvm::any_of(
      roots(a), [&](Value root) { return llvm::is_contained(roots(b), root); });
}

ArrayRef<Value> Storage::members(Value root) const {
  auto it = membersOf.find(root);
  return it == membersOf.end() ? ArrayRef<Value>()
                               : ArrayRef<Value>(it->second);
}

void Storage::visit(Operation *op) {
  auto call = dyn_cast<graph::CallOp>(op);
  if (!call) {
    for (OpResult result : op->getResults())
      if (BlockArgument argument = writtenArgument(result))
        enter(result, {argument});
      else if (hasStorage(result))
        enter(result, {result});
    return;
  }

  if (Value reused = reusedOperand(call)) {
    enter(call.getOutputs().front(), roots(reused));
    return;
  }
  // A subgraph may return its arguments, or views of them.
  bool higherOrder = mayReturnOperand(call);
  std::optional<ArrayRef<int64_t>> views = call.getViews();
  for (auto [index, output] : llvm::enumerate(call.getOutputs())) {
    if (!hasStorage(output))
      continue;
    Roots own;
    auto share = [&](Value operand) {
      for (Value root : roots(operand))
        if (!llvm::is_contained(own, root))
          own.push_back(root);
    };
    if (higherOrder)
      llvm::for_each(call.getInputs(), share);
    else if (views && index < views->size() && (*views)[index] >= 0)
      share(call.getInputs()[(*views)[index]]);
    if (own.empty() || higherOrder)
      own.push_back(output);
    enter(output, std::move(own));
  }
  for (auto [index, updated] : llvm::enumerate(call.getUpdated())) {
    Value base = isPostponed(call) ? call.operand("src")
                                   : call.getInputs()[call.getMutates()[index]];
    enter(updated, isInplace(call, index) ? roots(base) : Roots{updated});
  }
}

Operation *Storage::laterReader(Operation *op, Value value) const {
  Operation *first = nullptr;
  for (Value root : roots(value)) {
    for (Value member : members(root)) {
      for (OpOperand &use : member.getUses()) {
        Operation *user = use.getOwner();
        if (user == op || user->getBlock() != op->getBlock() ||
            user->isBeforeInBlock(op))
          continue;
        auto call = dyn_cast<graph::CallOp>(user);
        if (call && overwrittenArgument(call) == member &&
            call.getMutates().front() ==
                static_cast<int64_t>(use.getOperandNumber()))
          continue;
        if (!first || user->isBeforeInBlock(first))
          first = user;
      }
    }
  }
  return first;
}

/// Whether two tensors with the same first element have all elements in common,
/// each at the same position.
static bool liesAlike(graph::TensorType a, graph::TensorType b) {
  SmallVector<SymExpr> sizes = a.getSizeExprs();
  if (a.getDtype() != b.getDtype() || sizes != b.getSizeExprs())
    return false;
  for (auto [size, x, y] :
       llvm::zip_equal(sizes, a.getStrideExprs(), b.getStrideExprs()))
    if (!size.isInteger(1) && x != y)
      return false;
  return true;
}

bool Storage::isCurrentValue(Value value, BlockArgument argument) const {
  auto type = dyn_cast<graph::TensorType>(value.getType());
  auto target = dyn_cast<graph::TensorType>(argument.getType());
  if (value != argument && !(type && target && liesAlike(type, target)))
    return false;
  // From the argument's first element: views of it may lead back to the whole.
  SymExpr offset;
  while (value != argument) {
    if (auto result = dyn_cast<OpResult>(value);
        result && writtenArgument(result) == argument)
      break;
    auto call = value.getDefiningOp<graph::CallOp>();
    if (!call)
      return false;
    if (Value reused = reusedOperand(call)) {
      value = reused;
      continue;
    }
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (std::optional<StridedView> view = stridedView(call)) {
      offset = offset + view->offsets[number];
      value = view->source;
      continue;
    }
    unsigned index = number - call.getOutputs().size();
    if (index >= call.getUpdated().size() || !isInplace(call, index) ||
        isPostponed(call))
      return false;
    value = call.getInputs()[call.getMutates()[index]];
  }
  return offset.isInteger(0);
}

} // namespace intarsia
