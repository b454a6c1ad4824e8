//===- InlineRegions.cpp - Regions that change nothing --------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `inline-regions`: what a region cannot tell from its surroundings
// is put there, where it can be fused with them.
//
//===----------------------------------------------------------------------===//

#include "passes/Normalise/AliasSets.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"

namespace intarsia {
#define GEN_PASS_DEF_INLINEREGIONS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// Whether nothing in the function depends on the grad mode: PyTorch's own
/// operators don't, below autograd.
static bool ignoresGradMode(func::FuncOp function) {
  return llvm::all_of(function.getOps<graph::CallOp>(), [](graph::CallOp call) {
    StringRef space = call.getCallee().split("::").first;
    return space == "aten" || space == "prims";
  });
}

/// The region that the call runs as it stands; null when it is no such call.
static func::FuncOp inlinableRegion(graph::CallOp call) {
  bool setsGrad =
      call.getCallee() == "higher_order::wrap_with_set_grad_enabled";
  bool isPlain =
      llvm::StringSwitch<bool>(call.getCallee())
          .Cases({"higher_order::wrap", "higher_order::strict_mode"}, true)
          .Cases({"higher_order::tag_activation_checkpoint",
                  "higher_order::wrap_activation_checkpoint"},
                 true)
          .Default(false);
  SmallVector<func::FuncOp> subgraphs = subgraphsOf(call);
  if ((!setsGrad && !isPlain) || subgraphs.size() != 1 ||
      !call.getMutates().empty() ||
      (setsGrad && !ignoresGradMode(subgraphs.front())))
    return {};
  return subgraphs.front();
}

namespace {

struct InlineRegions final : intarsia::impl::InlineRegionsBase<InlineRegions> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      bool changed = false;
      // A region may hold regions.
      for (bool again = true; again;) {
        again = false;
        SmallVector<graph::CallOp> calls(function.getOps<graph::CallOp>());
        for (graph::CallOp call : calls)
          if (func::FuncOp region = inlinableRegion(call))
            again |= inlineRegion(call, region, function);
        changed |= again;
      }
      if (changed && function->hasAttr(aliasingAttrName))
        markAgain(function);
    }
    for (func::FuncOp region : inlined)
      if (SymbolTable::symbolKnownUseEmpty(region, getOperation()))
        region.erase();
  }

  bool inlineRegion(graph::CallOp call, func::FuncOp region,
                    func::FuncOp function) {
    // What follows the function, in its arguments' order.
    auto list = dyn_cast_or_null<ArrayAttr>(call.arg("operands"));
    auto returns = region->getAttrOfType<ArrayAttr>("intarsia.returns");
    if (!list || !returns || list.size() < region.getNumArguments() ||
        call.getReturns().size() != returns.size())
      return false;
    IRMapping mapping;
    for (auto [argument, attribute] : llvm::zip(region.getArguments(), list)) {
      auto operand = dyn_cast<graph::OperandAttr>(attribute);
      Value value = operand ? call.getInputs()[operand.getIndex()] : Value();
      if (!value || value.getType() != argument.getType())
        return false;
      mapping.map(argument, value);
    }
    Operation *terminator = region.getBody().front().getTerminator();
    SmallVector<std::pair<Value, Value>> results; // the call's, the region's
    for (auto [output, result] : llvm::zip(call.getReturns(), returns)) {
      auto outer = dyn_cast<graph::OperandAttr>(output);
      auto inner = dyn_cast<graph::OperandAttr>(result);
      if (!outer)
        continue;
      if (!inner)
        return false;
      results.emplace_back(call.getOutputs()[outer.getIndex()],
                           terminator->getOperand(inner.getIndex()));
      if (results.back().first.getType() != results.back().second.getType())
        return false;
    }

    OpBuilder builder(call);
    for (Operation &op : region.getBody().front().without_terminator())
      builder.clone(op, mapping);
    for (auto [output, result] : results)
      output.replaceAllUsesWith(mapping.lookup(result));
    mergeSymbols(region, function);
    call.erase();
    inlined.insert(region);
    ++numInlined;
    return true;
  }

  llvm::SetVector<func::FuncOp> inlined;

  /// Symbols that the region's operators bind.
  static void mergeSymbols(func::FuncOp region, func::FuncOp function) {
    auto added = region->getAttrOfType<DictionaryAttr>("intarsia.symbols");
    if (!added)
      return;
    NamedAttrList symbols;
    if (auto own = function->getAttrOfType<DictionaryAttr>("intarsia.symbols"))
      symbols = NamedAttrList(own);
    for (NamedAttribute symbol : added)
      if (!symbols.get(symbol.getName()))
        symbols.append(symbol);
    function->setAttr("intarsia.symbols",
                      symbols.getDictionary(function.getContext()));
  }

  static void markAgain(func::FuncOp function) {
    function->removeAttr(aliasingAttrName);
    function.walk([](graph::CallOp call) { call.setAliasing(false); });
    markAliasing(function);
  }
};

} // namespace
