//===- AliasSets.cpp - Which values may share written storage -------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sets are joined by the facts on the calls. Every call that touches a written
// set is marked `aliasing`, which keeps its place in the order; all other calls
// stay pure.
//
//===----------------------------------------------------------------------===//

#include "passes/Normalise/AliasSets.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace intarsia {

bool isHigherOrder(graph::CallOp call) {
  return call.getCallee().starts_with("higher_order::");
}

SmallVector<func::FuncOp> subgraphsOf(graph::CallOp call) {
  SmallVector<func::FuncOp> functions;
  auto module = call->getParentOfType<ModuleOp>();
  std::function<void(Attribute)> visit = [&](Attribute attribute) {
    if (auto list = dyn_cast<ArrayAttr>(attribute))
      llvm::for_each(list, visit);
    auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute);
    if (symbol && module)
      if (auto function = module.lookupSymbol<func::FuncOp>(symbol))
        functions.push_back(function);
  };
  llvm::for_each(call.getArgs(), visit);
  return functions;
}

static bool isTensor(Value value) {
  return isa<graph::TensorType>(value.getType());
}

/// Whether a function may return one of its arguments, or a view of one. The
/// new value of an argument is no result of its own.
static bool mayReturnArgument(func::FuncOp function) {
  AliasSets sets(function, /*inputsMayAlias=*/false);
  Operation *results = function.getBody().front().getTerminator();
  return llvm::any_of(results->getOpOperands(), [&](OpOperand &operand) {
    Value result = operand.get();
    auto kind = function.getResultAttrOfType<StringAttr>(
        operand.getOperandNumber(), "intarsia.output");
    return isTensor(result) &&
           !(kind && kind.getValue().ends_with("_mutation")) &&
           llvm::any_of(function.getArguments(), [&](Value argument) {
             return isTensor(argument) &&
                    sets.setOf(argument) == sets.setOf(result);
           });
  });
}

bool mayReturnOperand(graph::CallOp call) {
  if (!isHigherOrder(call))
    return false;
  SmallVector<func::FuncOp> subgraphs = subgraphsOf(call);
  enum { Always, BySubgraph, Never };
  int kind = llvm::StringSwitch<int>(call.getCallee().split("::").second)
                 // Their results are new tensors.
                 .Cases({"while_loop", "map", "map_impl"}, Never)
                 .Cases({"cond", "invoke_subgraph", "wrap"}, BySubgraph)
                 .Cases({"wrap_with_set_grad_enabled", "wrap_with_autocast"},
                        BySubgraph)
                 .Cases({"wrap_activation_checkpoint",
                         "tag_activation_checkpoint", "hints_wrapper"},
                        BySubgraph)
                 .Default(Always);
  if (kind == Never)
    return false;
  return kind == Always || subgraphs.empty() ||
         llvm::any_of(subgraphs, mayReturnArgument);
}

void AliasSets::join(Value a, Value b) {
  sets.unionSets(a.getAsOpaquePointer(), b.getAsOpaquePointer());
}

AliasSets::Key AliasSets::setOf(Value value) const {
  void *key = value.getAsOpaquePointer();
  auto leader = sets.findLeader(key);
  return leader == sets.member_end() ? key : *leader;
}

bool AliasSets::isWritten(Value value) const {
  return isTensor(value) && written.contains(setOf(value));
}

AliasSets::AliasSets(func::FuncOp function, bool inputsMayAlias) {
  Value firstUser;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (!isTensor(argument))
      continue;
    if (auto other =
            function.getArgAttrOfType<IntegerAttr>(index, sameStorageAttrName))
      join(function.getArgument(other.getInt()), argument);
    auto kind = function.getArgAttrOfType<StringAttr>(index, "intarsia.kind");
    if (function.isPrivate() || (kind && kind.getValue() != "user"))
      continue;
    if (firstUser && inputsMayAlias)
      join(firstUser, argument);
    firstUser = argument;
  }

  function.walk([&](graph::CallOp call) {
    auto inputs = call.getInputs();
    for (auto [index, updated] :
         llvm::zip(call.getMutates(), call.getUpdated()))
      join(inputs[index], updated);
    if (auto views = call.getViews())
      for (auto [output, view] : llvm::zip(call.getOutputs(), *views))
        if (view >= 0)
          join(inputs[view], output);
    if (mayReturnOperand(call)) {
      SmallVector<Value> tensors;
      llvm::copy_if(inputs, std::back_inserter(tensors), isTensor);
      llvm::copy_if(call.getOutputs(), std::back_inserter(tensors), isTensor);
      for (Value tensor : tensors)
        join(tensors.front(), tensor);
    }
  });

  function.walk([&](graph::CallOp call) {
    for (int64_t index : call.getMutates())
      written.insert(setOf(call.getInputs()[index]));
    bool writes = llvm::any_of(subgraphsOf(call), [](func::FuncOp subgraph) {
      return subgraph->hasAttr(aliasingAttrName);
    });
    if (isHigherOrder(call) && writes)
      for (Value input : call.getInputs())
        written.insert(setOf(input));
  });
}

SmallVector<unsigned> markAliasing(func::FuncOp function) {
  SmallVector<unsigned> arguments;
  AliasSets certain(function, /*inputsMayAlias=*/false);
  if (!certain.anyWritten())
    return arguments;
  for (BlockArgument argument : function.getArguments())
    if (certain.isWritten(argument))
      arguments.push_back(argument.getArgNumber());

  AliasSets possible(function, /*inputsMayAlias=*/true);
  auto touches = [&](Value value) { return possible.isWritten(value); };
  function.walk([&](graph::CallOp call) {
    if (llvm::any_of(call.getInputs(), touches) ||
        llvm::any_of(call.getOutputs(), touches))
      call.setAliasing(true);
  });
  function->setAttr(aliasingAttrName, UnitAttr::get(function.getContext()));
  return arguments;
}

} // namespace intarsia
