//===- FreezeWeights.cpp - Compute once what depends on weights alone -----===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `freeze-weights`. Calls of PyTorch's own operators whose operands
// are weights that the program never writes, or results of such calls, move to
// a program of their own, the nested module `@frozen`; what the main program
// used of their results becomes weights. Who compiles runs `@frozen` once and
// keeps its results; who replaces a weight runs it again.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Plan/Metadata.h"
#include "passes/Normalise/Weights.h"
#include "passes/Passes.h"
#include "passes/Plan/Storage.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace intarsia {
#define GEN_PASS_DEF_FREEZEWEIGHTS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// The bytes of a tensor on the CPU whose elements fill its memory; nothing for
/// another one.
static std::optional<uint64_t> denseBytes(Type type) {
  auto tensor = dyn_cast<graph::TensorType>(type);
  if (!tensor || tensor.getDevice() != "cpu")
    return std::nullopt;
  SmallVector<std::pair<int64_t, int64_t>> dims; // stride, size
  for (auto [size, stride] :
       llvm::zip_equal(tensor.getSizeExprs(), tensor.getStrideExprs())) {
    std::optional<int64_t> n = size.asInteger(), s = stride.asInteger();
    if (!n || !s || *n < 1)
      return std::nullopt;
    if (*n > 1)
      dims.emplace_back(*s, *n);
  }
  llvm::sort(dims);
  int64_t count = 1;
  for (auto [stride, size] : dims) {
    if (stride != count)
      return std::nullopt;
    count *= size;
  }
  return uint64_t(count) * uint64_t(dtypeSize(tensor.getDtype()));
}

namespace {

/// What a value that needs no input is made of.
struct Constant {
  llvm::SmallSetVector<Value, 4> weights; // arguments, WeightOps' results
  uint64_t bytes = 0;                     // of the weights
};

class Freezer {
public:
  explicit Freezer(ModuleOp module)
      : module(module), main(module.lookupSymbol<func::FuncOp>("main")) {}

  unsigned run() {
    if (!main || main.isExternal() || !llvm::hasSingleElement(main.getBody()))
      return 0;
    entries = findUnwrittenWeights(module, main);
    findWeights();
    Block &block = main.getBody().front();
    for (Operation &op : block)
      visit(op);
    findEscapes();
    for (Operation &op : llvm::reverse(block))
      decide(op);
    if (results.empty())
      return 0;
    std::reverse(results.begin(), results.end());
    makeFrozen();
    replaceResults();
    return results.size();
  }

private:
  void findWeights() {
    for (BlockArgument argument : main.getArguments())
      if (entries.contains(weightName(argument, main)))
        addWeight(argument);
  }

  void addWeight(Value value) {
    std::optional<uint64_t> bytes = denseBytes(value.getType());
    if (!bytes)
      return;
    Constant &constant = constants[value];
    constant.weights.insert(value);
    constant.bytes = *bytes;
  }

  void visit(Operation &op) {
    if (auto weight = dyn_cast<graph::WeightOp>(op)) {
      if (entries.contains(weight.getName()))
        addWeight(weight.getResult());
      return;
    }
    auto call = dyn_cast<graph::CallOp>(op);
    // Uninitialised memory would make each file another one.
    if (!call || call.isObservable() || call.getCallee().contains("empty") ||
        call->getNumResults() == 0)
      return;
    Constant sum;
    for (Value operand : call.getInputs()) {
      auto known = constants.find(operand);
      if (known == constants.end())
        return;
      for (Value weight : known->second.weights)
        if (sum.weights.insert(weight))
          sum.bytes += constants[weight].bytes;
    }
    bool isView = viewsOperand(call);
    for (Value result : call->getResults()) {
      auto tensor = dyn_cast<graph::TensorType>(result.getType());
      if (!tensor || tensor.getDevice() != "cpu")
        return;
      if (isView)
        continue;
      std::optional<uint64_t> bytes = denseBytes(tensor);
      if (!bytes || *bytes > std::max(smallBytes, 2 * sum.bytes))
        return;
    }
    for (Value result : call->getResults())
      constants[result] = sum;
  }

  static bool viewsOperand(graph::CallOp call) {
    std::optional<ArrayRef<int64_t>> views = call.getViews();
    return views &&
           llvm::any_of(*views, [](int64_t view) { return view >= 0; });
  }

  /// What may be returned must be the caller's own.
  void findEscapes() {
    Storage storage(main);
    for (Operation &op : main.getBody().front()) {
      if (op.hasTrait<OpTrait::IsTerminator>())
        for (Value value : op.getOperands())
          for (Value root : storage.roots(value))
            escaping.insert(root);
      storage.visit(&op);
    }
  }

  /// After all users of its results: whether the operation stays in the main
  /// program, and which of its results are weights there.
  void decide(Operation &op) {
    auto isUsed = [&](Value result) {
      return llvm::any_of(result.getUsers(),
                          [&](Operation *user) { return kept.contains(user); });
    };
    auto call = dyn_cast<graph::CallOp>(op);
    bool isConstant = call && call->getNumResults() > 0 &&
                      constants.contains(call->getResult(0));
    if (!isConstant) {
      kept.insert(&op);
      return;
    }
    bool isComputed =
        !viewsOperand(call) && !constants[call->getResult(0)].weights.empty() &&
        llvm::none_of(call->getResults(),
                      [&](Value result) { return escaping.contains(result); });
    for (Value result : llvm::reverse(call->getResults())) {
      if (!isUsed(result))
        continue;
      if (isComputed)
        results.push_back(result);
      else
        kept.insert(&op);
    }
  }

  void makeFrozen() {
    // What the results are made of, in program order.
    llvm::SetVector<Value> weights;
    DenseSet<Operation *> needed;
    SmallVector<Value> pending(results.begin(), results.end());
    while (!pending.empty()) {
      Value value = pending.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (isa<BlockArgument>(value))
        weights.insert(value);
      else if (needed.insert(op).second)
        llvm::append_range(pending, op->getOperands());
    }
    SmallVector<Value> arguments = weights.takeVector();
    llvm::sort(arguments, [](Value a, Value b) {
      return cast<BlockArgument>(a).getArgNumber() <
             cast<BlockArgument>(b).getArgNumber();
    });

    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto frozen = ModuleOp::create(builder, module.getLoc(), "frozen");
    builder.setInsertionPointToStart(frozen.getBody());
    auto function = func::FuncOp::create(
        builder, main.getLoc(), "main",
        builder.getFunctionType(TypeRange(ValueRange(arguments)),
                                TypeRange(ValueRange(results))));
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToStart(block);
    IRMapping mapping;
    llvm::SetVector<Attribute> used;
    for (auto [i, argument] : llvm::enumerate(arguments)) {
      mapping.map(argument, block->getArgument(i));
      unsigned number = cast<BlockArgument>(argument).getArgNumber();
      for (StringRef name :
           {"intarsia.kind", "intarsia.name", "intarsia.target"})
        if (Attribute attribute = main.getArgAttr(number, name))
          function.setArgAttr(i, name, attribute);
      used.insert(entries.lookup(weightName(argument, main)));
    }
    for (Operation &op : main.getBody().front()) {
      if (!needed.contains(&op))
        continue;
      builder.clone(op, mapping);
      if (auto weight = dyn_cast<graph::WeightOp>(op))
        used.insert(entries.lookup(weight.getName()));
    }
    SmallVector<Value> returned;
    for (Value result : results)
      returned.push_back(mapping.lookup(result));
    func::ReturnOp::create(builder, main.getLoc(), returned);
    frozen->setAttr("intarsia.weights",
                    builder.getArrayAttr(used.getArrayRef()));
  }

  void replaceResults() {
    Builder attributes(module.getContext());
    SmallVector<Attribute> all;
    for (auto [i, result] : llvm::enumerate(results)) {
      std::string number = std::to_string(i), name = "frozen:" + number;
      OpBuilder builder(result.getDefiningOp());
      auto weight = graph::WeightOp::create(builder, result.getLoc(),
                                            result.getType(), name);
      result.replaceAllUsesWith(weight.getResult());
      NamedAttrList fields;
      fields.append("name", weight.getNameAttr());
      fields.append("type", TypeAttr::get(result.getType()));
      fields.append("offset", attributes.getI64IntegerAttr(0));
      fields.append("record", attributes.getStringAttr(
                                  StringRef(plan::frozenRecords) + number));
      all.push_back(fields.getDictionary(module.getContext()));
    }
    addWeights(module, all);
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(main.getBody().front())))
      if (isa<graph::CallOp, graph::WeightOp>(op) && op.use_empty() &&
          op.getNumResults() > 0 && constants.contains(op.getResult(0)))
        op.erase();
  }

  /// What is no larger is worth keeping whatever it was made of.
  static constexpr uint64_t smallBytes = 1 << 20;

  ModuleOp module;
  func::FuncOp main;
  llvm::StringMap<DictionaryAttr> entries; // of weights that nothing writes
  DenseMap<Value, Constant> constants;
  DenseSet<Value> escaping;
  DenseSet<Operation *> kept;
  SmallVector<Value> results;
};

struct FreezeWeights final : intarsia::impl::FreezeWeightsBase<FreezeWeights> {
  void runOnOperation() override { numFrozen += Freezer(getOperation()).run(); }
};

} // namespace
