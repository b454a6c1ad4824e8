//===- Aliasing.cpp - Programs whose storage is shared and written
//---------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// In a program that was not functionalised, an in-place operator changes every
// value that shares the storage. Values that may share storage are gathered
// into classes; every call that touches a class in which something is written
// is marked `aliasing`, which keeps its place in the order. All other calls
// stay pure.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;

static bool isHigherOrder(graph::CallOp call) {
  return call.getCallee().starts_with("higher_order::");
}

static bool isTensor(Value value) {
  return isa<graph::TensorType>(value.getType());
}

namespace {

/// Classes of values that may share storage, and which of them are written.
class Storages {
public:
  /// `inputsMayAlias`: the user may pass one tensor several times.
  Storages(func::FuncOp function, const Program &program, bool isMain,
           bool inputsMayAlias);
  bool isWritten(Value value) const {
    return isTensor(value) && written.contains(classOf(value));
  }
  bool anyWritten() const { return !written.empty(); }

private:
  static void *key(Value value) { return value.getAsOpaquePointer(); }
  void join(Value a, Value b) { classes.unionSets(key(a), key(b)); }
  void *classOf(Value value) const {
    auto leader = classes.findLeader(key(value));
    return leader == classes.member_end() ? key(value) : *leader;
  }

  llvm::EquivalenceClasses<void *> classes;
  llvm::DenseSet<void *> written;
};

} // namespace

Storages::Storages(func::FuncOp function, const Program &program, bool isMain,
                   bool inputsMayAlias) {
  // The user may pass the same tensor, or views of one, as several arguments;
  // weights share storage when their bytes are the same record or object.
  Value firstUser;
  std::map<std::pair<std::string, int64_t>, Value> firstOfRecord;
  if (isMain)
    for (auto [argument, spec] :
         llvm::zip(function.getArguments(), program.inputs)) {
      if (!isTensor(argument))
        continue;
      if (spec.kind == InputSpec::Kind::UserInput) {
        if (firstUser && inputsMayAlias)
          join(firstUser, argument);
        firstUser = argument;
        continue;
      }
      for (const Weight &weight : program.weights)
        if (weight.target == spec.target)
          if (auto [entry, isNew] = firstOfRecord.try_emplace(
                  {weight.record, weight.object}, argument);
              !isNew)
            join(entry->second, argument);
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
    // A subgraph may return what it was given, and views of it.
    if (isHigherOrder(call)) {
      SmallVector<Value> tensors;
      llvm::copy_if(inputs, std::back_inserter(tensors), isTensor);
      llvm::copy_if(call.getOutputs(), std::back_inserter(tensors), isTensor);
      for (Value tensor : tensors)
        join(tensors.front(), tensor);
    }
  });

  auto module = function->getParentOfType<ModuleOp>();
  std::function<bool(Attribute)> writes = [&](Attribute attribute) {
    if (auto list = dyn_cast<ArrayAttr>(attribute))
      return llvm::any_of(list, writes);
    auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute);
    auto subgraph =
        symbol && module ? module.lookupSymbol<func::FuncOp>(symbol) : nullptr;
    return subgraph && subgraph->hasAttr("intarsia.aliasing");
  };
  function.walk([&](graph::CallOp call) {
    for (int64_t index : call.getMutates())
      written.insert(classOf(call.getInputs()[index]));
    if (isHigherOrder(call) && llvm::any_of(call.getArgs(), writes))
      for (Value input : call.getInputs())
        written.insert(classOf(input));
  });
}

SmallVector<unsigned> importer::markAliasing(func::FuncOp function,
                                             const Program &program,
                                             bool isMain) {
  SmallVector<unsigned> arguments;
  Storages certain(function, program, isMain, /*inputsMayAlias=*/false);
  if (!certain.anyWritten())
    return arguments;
  for (BlockArgument argument : function.getArguments())
    if (certain.isWritten(argument))
      arguments.push_back(argument.getArgNumber());

  Storages possible(function, program, isMain, /*inputsMayAlias=*/true);
  auto touches = [&](Value value) { return possible.isWritten(value); };
  function.walk([&](graph::CallOp call) {
    if (llvm::any_of(call.getInputs(), touches) ||
        llvm::any_of(call.getOutputs(), touches))
      call.setAliasing(true);
  });
  function->setAttr("intarsia.aliasing", UnitAttr::get(function.getContext()));
  return arguments;
}
