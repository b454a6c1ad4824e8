//===- Functionalise.cpp - Writes through shared storage as values --------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `functionalise`, for programs whose in-place operators mean what
// they mean in eager. With every node a call it does not run: the program is
// executed as it came, which is the oracle of what this pass does.
//
// A storage that is renamed has a *root*, the value that made it, and *places*:
// the root itself and views of it, by the operator that makes each from the
// one before. The current value of the root stands for all of the storage. To
// write a place gives each place on the way to the root its new value; to read
// one takes its views again from the root, unless that was done since the last
// write.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/InPlace.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Normalise/NewCall.h"
#include "passes/Passes.h"
#include "passes/Plan/Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"

namespace intarsia {
#define GEN_PASS_DEF_FUNCTIONALISE
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

static bool isTensor(Value value) {
  return isa<graph::TensorType>(value.getType());
}

static bool hasTag(graph::CallOp call, StringRef wanted) {
  std::optional<ArrayAttr> tags = call.getTags();
  return tags && llvm::any_of(*tags, [&](Attribute tag) {
           auto text = dyn_cast<StringAttr>(tag);
           return text && text.getValue() == wanted;
         });
}

/// The operand whose storage the value surely lies in, as a new value of it or
/// as a view of a known form; null when the value makes its own storage.
static Value sourceOf(Value value) {
  auto call = value.getDefiningOp<graph::CallOp>();
  if (!call)
    return {};
  unsigned number = cast<OpResult>(value).getResultNumber();
  unsigned outputs = call.getOutputs().size();
  if (number >= outputs)
    return call.getInputs()[call.getMutates()[number - outputs]];
  std::optional<ArrayRef<int64_t>> views = call.getViews();
  return views && (*views)[number] >= 0 ? call.getInputs()[(*views)[number]]
                                        : Value();
}

/// Whether the call, apart from its mark, is a view whose place in its source
/// is known.
static bool isKnownView(graph::CallOp call) {
  graph::CallOp plain = call.clone();
  plain.setAliasing(false);
  std::optional<StridedView> view = stridedView(plain);
  bool isKnown = view && llvm::all_of(call.getOutputs(), [&](Value output) {
                   return sourceOf(output) == view->source;
                 });
  plain.erase();
  return isKnown;
}

/// The same element of the storage first: a place and its value after a write.
static Value placeOf(Value value) {
  while (true) {
    auto call = value.getDefiningOp<graph::CallOp>();
    if (!call ||
        cast<OpResult>(value).getResultNumber() < call.getOutputs().size())
      return value;
    value = sourceOf(value);
  }
}

/// Whether two values surely are the same part of one storage: the same place,
/// or equal views of it.
static bool isSamePlace(Value a, Value b) {
  a = placeOf(a);
  b = placeOf(b);
  if (a == b)
    return true;
  auto first = a.getDefiningOp<graph::CallOp>();
  auto second = b.getDefiningOp<graph::CallOp>();
  Value source = sourceOf(a), other = sourceOf(b);
  if (!first || !second || !source || !other || a.getType() != b.getType() ||
      first.getCallee() != second.getCallee() ||
      first.getArgs() != second.getArgs() ||
      cast<OpResult>(a).getResultNumber() !=
          cast<OpResult>(b).getResultNumber())
    return false;
  return llvm::all_of(llvm::zip_equal(first.getInputs(), second.getInputs()),
                      [&](auto pair) {
                        auto [x, y] = pair;
                        return x == y || (x == source && y == other);
                      }) &&
         isSamePlace(source, other);
}

/// `x[0] += 1` copies what it has written onto itself.
static bool isSelfCopy(graph::CallOp call) {
  return call.getCallee() == "aten::copy_" && call.operand("self") &&
         call.operand("src") &&
         isSamePlace(call.operand("self"), call.operand("src"));
}

namespace {

//===----------------------------------------------------------------------===//
// Which storages are renamed
//===----------------------------------------------------------------------===//

class Analysis {
public:
  using Key = AliasSets::Key;

  explicit Analysis(func::FuncOp function)
      : function(function), sets(function, /*inputsMayAlias=*/true) {
    for (BlockArgument argument : function.getArguments())
      enter(argument);
    for (Operation &op : function.getBody().front())
      for (Value result : op.getResults())
        enter(result);
    for (Operation &op : function.getBody().front())
      examine(op);
    spread();
  }

  /// Written, and not to be renamed.
  bool isKept(Value value) const {
    return sets.isWritten(value) && kept.contains(sets.setOf(value));
  }
  bool isRenamed(Value value) const {
    return sets.isWritten(value) && !kept.contains(sets.setOf(value));
  }
  /// The roots of what is renamed, in order.
  ArrayRef<Value> getRoots() const { return roots.getArrayRef(); }
  unsigned keptCount() const { return kept.size(); }

  /// Drops the roots of what is kept.
  void finish() {
    roots.remove_if([&](Value root) { return !isRenamed(root); });
  }

private:
  void keep(Value value) {
    if (sets.isWritten(value))
      kept.insert(sets.setOf(value));
  }

  void enter(Value value) {
    if (!sets.isWritten(value) || sourceOf(value))
      return;
    Key key = sets.setOf(value);
    auto [known, isNew] = rootOf.try_emplace(key, value);
    if (!isNew) {
      kept.insert(key);
      return;
    }
    roots.insert(value);
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument ? !mayRename(argument) : !value.getDefiningOp<graph::CallOp>())
      kept.insert(key);
  }

  bool mayRename(BlockArgument argument) {
    unsigned index = argument.getArgNumber();
    auto kind = function.getArgAttrOfType<StringAttr>(index, "intarsia.kind");
    StringRef target =
        kind && kind.getValue() == "user" ? "intarsia.name" : "intarsia.target";
    return !function.isPrivate() && kind &&
           function.getArgAttrOfType<StringAttr>(index, target);
  }

  void examine(Operation &op) {
    if (isa<func::ReturnOp>(op)) {
      // The caller's tensor would no longer be the argument.
      for (Value value : op.getOperands())
        if (sets.isWritten(value) &&
            isa<BlockArgument>(rootOf.lookup(sets.setOf(value))))
          keep(value);
      return;
    }
    auto call = dyn_cast<graph::CallOp>(op);
    if (!call) {
      llvm::for_each(op.getOperands(), [&](Value value) { keep(value); });
      return;
    }
    for (Value output : call.getOutputs())
      if (sourceOf(output) && !isKnownView(call))
        keep(output);
    if (isHigherOrder(call)) {
      bool writes = llvm::any_of(subgraphsOf(call), [](func::FuncOp subgraph) {
        return subgraph->hasAttr(aliasingAttrName);
      });
      if (writes || mayReturnOperand(call))
        llvm::for_each(call.getInputs(), [&](Value value) { keep(value); });
      return;
    }
    for (int64_t operand : call.getMutates()) {
      Value written = call.getInputs()[operand];
      if (hasTag(call, "inplace_view") || !isTensor(written))
        keep(written);
      for (auto [other, input] : llvm::enumerate(call.getInputs()))
        if (static_cast<int64_t>(other) != operand && isTensor(input) &&
            sets.setOf(input) == sets.setOf(written) && !isSelfCopy(call))
          keep(written);
    }
  }

  /// What is written together with what is kept is kept.
  void spread() {
    for (bool changed = true; changed;) {
      changed = false;
      function.walk([&](graph::CallOp call) {
        if (call.getMutates().empty() ||
            llvm::none_of(call.getInputs(),
                          [&](Value input) { return isKept(input); }))
          return;
        for (int64_t operand : call.getMutates())
          if (Value written = call.getInputs()[operand]; isRenamed(written)) {
            keep(written);
            changed = true;
          }
      });
    }
  }

  func::FuncOp function;
  AliasSets sets;
  llvm::DenseMap<Key, Value> rootOf;
  llvm::SetVector<Value> roots;
  llvm::DenseSet<Key> kept;
};

//===----------------------------------------------------------------------===//
// Renaming
//===----------------------------------------------------------------------===//

class Renamer {
public:
  Renamer(func::FuncOp function, const Analysis &analysis)
      : function(function), analysis(analysis), builder(function.getContext()) {
  }

  void run() {
    for (Operation &op :
         llvm::make_early_inc_range(function.getBody().front())) {
      builder.setInsertionPoint(&op);
      location = op.getLoc();
      if (auto results = dyn_cast<func::ReturnOp>(op))
        finish(results);
      else if (auto call = dyn_cast<graph::CallOp>(op))
        rename(call);
    }
    // What made places and old values of them.
    for (Operation *op : llvm::reverse(replaced))
      op->erase();
  }

private:
  void rename(graph::CallOp call) {
    bool isView = llvm::any_of(call.getOutputs(), [&](Value output) {
      return analysis.isRenamed(output) && sourceOf(output);
    });
    if (isView) {
      replaced.push_back(call);
      return;
    }
    if (llvm::any_of(call.getMutates(), [&](int64_t operand) {
          return analysis.isRenamed(call.getInputs()[operand]);
        })) {
      write(call);
      return;
    }
    for (OpOperand &operand : call->getOpOperands())
      if (analysis.isRenamed(operand.get()))
        operand.set(read(operand.get()));
    updateMark(call);
    for (Value output : call.getOutputs())
      if (analysis.isRenamed(output))
        values[output] = {output, 0};
  }

  /// A call that touches nothing that is kept is free to move.
  void updateMark(graph::CallOp call) {
    auto isKept = [&](Value value) { return analysis.isKept(value); };
    call.setAliasing(llvm::any_of(call.getInputs(), isKept) ||
                     llvm::any_of(call.getOutputs(), isKept));
  }

  static Value rootOf(Value value) {
    while (Value source = sourceOf(value))
      value = source;
    return value;
  }

  /// The value of this place after all writes so far.
  Value read(Value value) {
    Value place = placeOf(value);
    Value root = rootOf(place);
    auto known = values.find(place);
    if (known != values.end() && known->second.version == versions[root])
      return known->second.value;
    auto view = place.getDefiningOp<graph::CallOp>();
    if (!view) { // an argument that was not written yet
      values[place] = {place, versions[root]};
      return place;
    }
    Value source = read(sourceOf(place));
    graph::CallOp copy = view.clone();
    builder.insert(copy);
    copy.setAliasing(false);
    for (OpOperand &operand : copy->getOpOperands())
      if (operand.get() == sourceOf(place))
        operand.set(source);
    for (auto [old, fresh] : llvm::zip(view.getOutputs(), copy.getOutputs()))
      values[old] = {fresh, versions[root]};
    return values[place].value;
  }

  /// Gives a place a new value, and every place on the way to the root.
  void assign(Value place, Value fresh) {
    Value root = rootOf(place);
    SmallVector<std::pair<Value, Value>> news;
    while (place != root) {
      news.emplace_back(place, fresh);
      Value source = placeOf(sourceOf(place));
      fresh =
          scatter(place.getDefiningOp<graph::CallOp>(), read(source), fresh);
      place = source;
    }
    news.emplace_back(root, fresh);
    unsigned version = ++versions[root];
    for (auto [each, value] : news)
      values[each] = {value, version};
  }

  void write(graph::CallOp call) {
    replaced.push_back(call);
    if (isSelfCopy(call))
      return;
    if (call.getCallee() == "aten::copy_" && call.operand("src")) {
      Value source = call.operand("src");
      Value place = placeOf(call.operand("self"));
      // What is copied as it is becomes the new value. Of what the program may
      // return it would not do: two results would be one tensor.
      if (isa<BlockArgument>(rootOf(place)) && mayScatter(place) &&
          source.getType() == place.getType())
        return assign(place,
                      analysis.isRenamed(source) ? read(source) : source);
    }

    SmallVector<Value> inputs;
    for (Value input : call.getInputs())
      inputs.push_back(analysis.isRenamed(input) ? read(input) : input);
    // A kernel makes the place's new value. What stays a call writes a part of
    // the root, which then need not be copied.
    SmallVector<Attribute> args(call.getArgs().getValue());
    llvm::DenseMap<int64_t, Value> targets; // operand number -> place
    for (int64_t operand : call.getMutates()) {
      Value place = placeOf(call.getInputs()[operand]);
      Value root = rootOf(place);
      targets[operand] = place;
      if (place == root || (mayScatter(place) && isLowered(call)))
        continue;
      auto view = viewOf(operand, place, root);
      inputs[operand] = read(root);
      targets[operand] = root;
      for (Attribute &arg : args)
        arg = replaceOperand(arg, operand, view);
    }

    graph::CallOp copy = call.clone();
    builder.insert(copy);
    copy->setOperands(inputs);
    copy.setArgsAttr(builder.getArrayAttr(args));
    updateMark(copy);
    // The base of a view has a type of its own.
    for (auto [operand, updated] :
         llvm::zip(copy.getMutates(), copy.getUpdated()))
      updated.setType(inputs[operand].getType());
    for (auto [old, fresh] : llvm::zip(call.getOutputs(), copy.getOutputs()))
      if (analysis.isRenamed(old))
        values[old] = {fresh, 0};
      else
        old.replaceAllUsesWith(fresh);
    for (auto [operand, updated] :
         llvm::zip(copy.getMutates(), copy.getUpdated()))
      assign(targets[operand], updated);
  }

  /// Whether a kernel may be made of what the call stores.
  bool isLowered(graph::CallOp call) {
    graph::CallOp plain = call.clone();
    plain.setAliasing(false);
    bool result = !lower::functionalTwin(plain).empty();
    plain.erase();
    return result;
  }

  /// Where the place lies in its root. A kernel may have made its value: that
  /// is a tensor of its own.
  graph::ViewAttr viewOf(int64_t operand, Value place, Value root) {
    auto type = cast<graph::TensorType>(place.getType());
    auto attributes = [&](ArrayRef<SymExpr> exprs) {
      SmallVector<graph::ExprAttr> attrs;
      for (const SymExpr &expr : exprs)
        attrs.push_back(graph::ExprAttr::get(builder.getContext(), expr));
      return attrs;
    };
    SymExpr offset;
    for (Value each = place; each != root; each = placeOf(sourceOf(each))) {
      graph::CallOp plain = each.getDefiningOp<graph::CallOp>().clone();
      plain.setAliasing(false);
      std::optional<StridedView> view = stridedView(plain);
      assert(view && "every view of a renamed storage is of a known form");
      offset = offset + view->offsets[cast<OpResult>(each).getResultNumber()];
      plain.erase();
    }
    return graph::ViewAttr::get(
        builder.getContext(), operand, attributes(type.getSizeExprs()),
        attributes(type.getStrideExprs()),
        graph::ExprAttr::get(builder.getContext(), offset));
  }

  Attribute replaceOperand(Attribute attribute, int64_t operand,
                           Attribute view) {
    if (auto list = dyn_cast<ArrayAttr>(attribute)) {
      SmallVector<Attribute> members;
      for (Attribute member : list)
        members.push_back(replaceOperand(member, operand, view));
      return builder.getArrayAttr(members);
    }
    auto number = dyn_cast<graph::OperandAttr>(attribute);
    return number && number.getIndex() == operand ? view : attribute;
  }

  //===--------------------------------------------------------------------===//
  // The inverse of views
  //===--------------------------------------------------------------------===//

  /// Whether `scatter` has a form for every view on the way to the root.
  static bool mayScatter(Value place) {
    for (; sourceOf(place); place = placeOf(sourceOf(place))) {
      auto view = place.getDefiningOp<graph::CallOp>();
      bool known = llvm::StringSwitch<bool>(view.getCallee())
                       .Cases({"aten::select.int", "aten::slice.Tensor"}, true)
                       .Cases({"aten::alias", "aten::detach"}, true)
                       .Cases({"aten::t", "aten::transpose.int"}, true)
                       .Cases({"aten::view", "aten::_unsafe_view"}, true)
                       .Cases({"aten::reshape", "aten::flatten.using_ints",
                               "aten::unflatten.int"},
                              true)
                       .Cases({"aten::squeeze", "aten::squeeze.dim",
                               "aten::squeeze.dims", "aten::unsqueeze"},
                              true)
                       .Default(false);
      if (!known)
        return false;
    }
    return true;
  }

  /// The value of a view's source in which the view's part is `fresh`.
  Value scatter(graph::CallOp view, Value source, Value fresh) {
    StringRef name = view.getCallee();
    Type type = source.getType();
    auto call = [&](StringRef callee) {
      return NewCall(builder, location, callee);
    };
    if (name == "aten::select.int")
      return call("aten::select_scatter")
          .value("self", source)
          .value("src", fresh)
          .from(view, "dim")
          .from(view, "index")
          .createOne(type);
    if (name == "aten::slice.Tensor")
      return call("aten::slice_scatter")
          .value("self", source)
          .value("src", fresh)
          .from(view, "dim")
          .from(view, "start")
          .from(view, "end")
          .from(view, "step")
          .createOne(type);
    if (name == "aten::alias" || name == "aten::detach")
      return fresh;
    // The elements are the same in another order: a view of the new value.
    if (name == "aten::t")
      return call(name).value("self", fresh).createOne(type, /*isView=*/true);
    if (name == "aten::transpose.int")
      return call(name)
          .value("self", fresh)
          .from(view, "dim0")
          .from(view, "dim1")
          .createOne(type, /*isView=*/true);
    assert(mayScatter(view.getOutputs().front()) && "asked for before");
    return call("aten::view")
        .value("self", fresh)
        .sizes("size", cast<graph::TensorType>(type).getSizeExprs())
        .createOne(type, /*isView=*/true);
  }

  //===--------------------------------------------------------------------===//
  // Results
  //===--------------------------------------------------------------------===//

  void finish(func::ReturnOp results) {
    for (OpOperand &operand : results->getOpOperands())
      if (analysis.isRenamed(operand.get()))
        operand.set(read(operand.get()));
    // The new values of arguments come after what the program returns.
    for (Value root : analysis.getRoots()) {
      auto argument = dyn_cast<BlockArgument>(root);
      if (!argument || versions[root] == 0)
        continue;
      unsigned index = argument.getArgNumber();
      auto kind = function.getArgAttrOfType<StringAttr>(index, "intarsia.kind");
      bool isUser = kind.getValue() == "user";
      NamedAttrList attributes;
      attributes.append("intarsia.output",
                        builder.getStringAttr(isUser ? "input_mutation"
                                              : kind.getValue() == "parameter"
                                                  ? "parameter_mutation"
                                                  : "buffer_mutation"));
      attributes.append("intarsia.target",
                        function.getArgAttr(index, isUser ? "intarsia.name"
                                                          : "intarsia.target"));
      Value value = read(root);
      if (failed(function.insertResult(
              function.getNumResults(), value.getType(),
              attributes.getDictionary(function.getContext()))))
        llvm_unreachable("a result can always be added at the end");
      results->insertOperands(results->getNumOperands(), value);
    }
  }

  struct Current {
    Value value;
    unsigned version = 0;
  };

  func::FuncOp function;
  const Analysis &analysis;
  OpBuilder builder;
  Location location = builder.getUnknownLoc();
  /// By place.
  llvm::DenseMap<Value, Current> values;
  /// By root: how often it was written.
  llvm::DenseMap<Value, unsigned> versions;
  SmallVector<Operation *> replaced;
};

struct Functionalise final : intarsia::impl::FunctionaliseBase<Functionalise> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || !function->hasAttr(aliasingAttrName))
        continue;
      Analysis analysis(function);
      analysis.finish();
      numRenamed += analysis.getRoots().size();
      numKept += analysis.keptCount();
      if (!analysis.getRoots().empty())
        Renamer(function, analysis).run();
      if (analysis.keptCount() == 0)
        function->removeAttr(aliasingAttrName);
    }
  }
};

} // namespace
