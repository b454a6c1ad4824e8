//===- RestoreUpdates.cpp - Updates of parts, where they lie --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `restore-updates`. Functionalisation makes of a write into a view
// of a buffer a new value of the view, which is put into a new value of what
// it is a view of, and so on up to the buffer. This pass follows the *versions*
// of each argument that the program writes: an update of a part of the latest
// version becomes a call that writes the part (`view<...>`) and makes the next
// version; what put the part back is then that version.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/InPlace.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Passes.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Storage.h"
#include "passes/Plan/Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace intarsia {
#define GEN_PASS_DEF_RESTOREUPDATES
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

namespace {

/// A part of an argument: how it lies in the argument's memory.
struct Part {
  SymExpr offset;
  SmallVector<SymExpr> sizes, strides;

  bool operator==(const Part &other) const {
    return offset == other.offset && sizes == other.sizes &&
           strides == other.strides;
  }
};

/// A value as a view of a version of an argument.
struct Place {
  BlockArgument argument;
  unsigned version;
  /// What makes it from the version, one view after the other, and what part
  /// each is; the last is the place's own. Empty for the version itself.
  SmallVector<Value> views;
  SmallVector<Part> parts;
  Part part;
};

class Restorer {
public:
  explicit Restorer(func::FuncOp function)
      : function(function), builder(function.getContext()) {}

  unsigned run() {
    for (unsigned i = 0, e = function.getNumResults(); i != e; ++i)
      if (BlockArgument argument = mutatedArgument(function, i))
        if (isa<graph::TensorType>(argument.getType())) {
          versions[argument] = {argument, 0};
          history[argument].values.push_back(argument);
        }
    if (versions.empty())
      return 0;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
      if (auto call = dyn_cast<graph::CallOp>(op)) {
        builder.setInsertionPoint(call);
        if (!putsBack(call) && !update(call))
          follow(call);
      }
    for (Operation *op : llvm::reverse(replaced))
      op->erase();
    return count;
  }

private:
  struct History {
    SmallVector<Value> values; // by version
    /// For each version but the first, the parts that its write was within.
    SmallVector<SmallVector<Part>> writes;
  };

  static Part partOf(Value value, const SymExpr &offset) {
    auto type = cast<graph::TensorType>(value.getType());
    return {offset, type.getSizeExprs(), type.getStrideExprs()};
  }

  std::optional<Place> placeOf(Value value) const {
    SmallVector<std::pair<Value, SymExpr>> chain;
    while (!versions.contains(value)) {
      auto call = value.getDefiningOp<graph::CallOp>();
      std::optional<StridedView> view =
          call ? stridedView(call) : std::optional<StridedView>();
      if (!view)
        return std::nullopt;
      chain.emplace_back(
          value, view->offsets[cast<OpResult>(value).getResultNumber()]);
      value = view->source;
    }
    auto [argument, version] = versions.lookup(value);
    Place place{argument, version, {}, {}, partOf(value, SymExpr(0))};
    SymExpr offset;
    for (auto &[view, step] : llvm::reverse(chain)) {
      offset = offset + step;
      place.views.push_back(view);
      place.part = partOf(view, offset);
      place.parts.push_back(place.part);
    }
    return place;
  }

  /// The part of its argument `self` that a functional update changes.
  static Part changedPart(const Place &self, const Update &update) {
    if (!update.twin.empty())
      return self.part;
    return {self.part.offset + update.offset, update.sizes, update.strides};
  }

  /// The same views, of another version.
  Value viewAgain(const Place &place, Value version) {
    Value source = version;
    for (Value view : place.views) {
      auto old = view.getDefiningOp<graph::CallOp>();
      Value before = stridedView(old)->source;
      graph::CallOp copy = old.clone();
      builder.insert(copy);
      for (OpOperand &operand : copy->getOpOperands())
        if (operand.get() == before)
          operand.set(source);
      source = copy->getResult(cast<OpResult>(view).getResultNumber());
    }
    return source;
  }

  /// Strides that nobody asks for may differ.
  static bool mayReplace(Value value, Value self) {
    return value.getType() == self.getType() ||
           llvm::all_of(value.getUses(), [](OpOperand &use) {
             auto call = dyn_cast<graph::CallOp>(use.getOwner());
             return call && partialUpdateOf(call) &&
                    call.operand("src") == use.get();
           });
  }

  /// A call that puts back, where it was, a part that was updated there.
  bool putsBack(graph::CallOp call) {
    std::optional<Update> update = partialUpdateOf(call);
    Value source =
        update && update->twin.empty() ? call.operand("src") : Value();
    std::optional<Place> self, part;
    if (!source || !(self = placeOf(call.operand("self"))) ||
        !(part = placeOf(source)) || part->argument != self->argument)
      return false;
    const History &past = history[self->argument];
    Part changed = changedPart(*self, *update);
    if (part->version + 1 != past.values.size() || !(part->part == changed))
      return false;
    for (unsigned i = self->version; i != part->version; ++i)
      if (!llvm::is_contained(past.writes[i], changed))
        return false;
    if (!mayReplace(call.getOutputs().front(), call.operand("self")))
      return false;
    call.getOutputs().front().replaceAllUsesWith(
        viewAgain(*self, past.values.back()));
    replaced.push_back(call);
    return true;
  }

  /// A copy in place, of which a kernel would be made that stores it elsewhere.
  static bool isCopyInto(graph::CallOp call) {
    return call.getCallee() == "aten::copy_" && call.operand("self") &&
           call.operand("src") && call.getMutates().size() == 1 &&
           !call.getAliasing() && !overwrittenArgument(call);
  }

  /// An update of the latest version that becomes a write.
  bool update(graph::CallOp call) {
    std::optional<Update> update = partialUpdateOf(call);
    bool isCopy = isCopyInto(call);
    if (!update && !isCopy)
      return false;
    Value self = call.operand("self"), result = call->getResult(0);
    std::optional<Place> place = placeOf(self);
    if (!place ||
        place->version + 1 != history[place->argument].values.size() ||
        !mayReplace(result, self) || !reaches(result, place->argument))
      return false;
    // Of the whole, `plan-inplace` sees it without help.
    Part changed = isCopy ? place->part : changedPart(*place, *update);
    if (place->views.empty() && changed == place->part)
      return false;
    if (llvm::any_of(call.getInputs(), [&](Value input) {
          return input != self && mayLieIn(input, place->argument) &&
                 !isNewValueOf(input, changed);
        }))
      return false;
    SmallVector<Attribute> args(call.getArgs().getValue()),
        names(call.getArgNames().getValue());
    SmallVector<Value> inputs(call.getInputs());
    std::string callee = isCopy ? "" : update->twin;
    if (callee.empty()) {
      callee = "aten::copy_";
      // Nothing else of the call remains: an index is part of the view.
      inputs = {self, call.operand("src")};
      args = {graph::OperandAttr::get(builder.getContext(), 0),
              graph::OperandAttr::get(builder.getContext(), 1),
              builder.getBoolAttr(false)};
      names.clear();
      for (StringRef name : {"self", "src", "non_blocking"})
        names.push_back(builder.getStringAttr(name));
    }
    write(call, *place, changed, inputs, self, callee, args, names);
    return true;
  }

  void write(graph::CallOp call, const Place &place, const Part &changed,
             SmallVector<Value> inputs, Value self, StringRef callee,
             ArrayRef<Attribute> callArgs, ArrayRef<Attribute> names) {
    History &past = history[place.argument];
    Value base = past.values.back();
    int64_t number = llvm::find(inputs, self) - inputs.begin();
    inputs[number] = base;
    Attribute target = graph::ViewAttr::get(
        builder.getContext(), number, attributes(changed.sizes),
        attributes(changed.strides),
        graph::ExprAttr::get(builder.getContext(), changed.offset));
    SmallVector<Attribute> args;
    for (Attribute arg : callArgs) {
      auto operand = dyn_cast<graph::OperandAttr>(arg);
      args.push_back(operand && operand.getIndex() == number ? target : arg);
    }
    auto written = graph::CallOp::create(
        builder, call.getLoc(), TypeRange(), base.getType(),
        builder.getStringAttr(callee), inputs, builder.getArrayAttr(args),
        builder.getArrayAttr(names),
        call.getMutates().empty() ? builder.getArrayAttr(builder.getUnitAttr())
                                  : call.getReturns(),
        builder.getDenseI64ArrayAttr(number), /*effectful=*/UnitAttr(),
        call.getRandomAttr(), /*aliasing=*/UnitAttr(),
        /*views=*/DenseI64ArrayAttr(), /*binds=*/ArrayAttr(),
        call.getMutates().empty() ? ArrayAttr() : call.getTagsAttr(),
        call.getMutates().empty() ? StringAttr() : call.getSchemaAttr());
    Value next = written.getUpdated().front();
    versions[next] = {place.argument, unsigned(past.values.size())};
    past.values.push_back(next);
    past.writes.push_back(place.parts);
    past.writes.back().push_back(changed);
    call->getResult(0).replaceAllUsesWith(viewAgain(place, next));
    replaced.push_back(call);
    ++count;
  }

  /// What any other call makes of the latest version is the next one.
  void follow(graph::CallOp call) {
    auto next = [&](Value before, Value after) {
      auto known = versions.find(before);
      if (known == versions.end() || after.getType() != before.getType())
        return;
      auto [argument, version] = known->second;
      History &past = history[argument];
      if (version + 1 != past.values.size())
        return;
      versions[after] = {argument, version + 1};
      past.values.push_back(after);
      past.writes.emplace_back();
    };
    for (auto [operand, updated] :
         llvm::zip(call.getMutates(), call.getUpdated()))
      next(call.getInputs()[operand], updated);
    if (updateOf(call))
      next(call.operand("self"), call.getOutputs().front());
  }

  SmallVector<graph::ExprAttr> attributes(ArrayRef<SymExpr> exprs) {
    SmallVector<graph::ExprAttr> attrs;
    for (const SymExpr &expr : exprs)
      attrs.push_back(graph::ExprAttr::get(builder.getContext(), expr));
    return attrs;
  }

  /// Whether the argument gets the value, or one that it is put into.
  bool reaches(Value value, BlockArgument argument) const {
    llvm::DenseSet<Value> seen;
    SmallVector<Value> stack = {value};
    while (!stack.empty()) {
      Value next = stack.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      for (OpOperand &use : next.getUses()) {
        if (isa<func::ReturnOp>(use.getOwner())) {
          if (mutatedArgument(function, use.getOperandNumber()) == argument)
            return true;
          continue;
        }
        auto call = dyn_cast<graph::CallOp>(use.getOwner());
        if (!call)
          continue;
        if (overwrittenArgument(call) == argument &&
            call.operand("src") == next)
          return true;
        if (partialUpdateOf(call) || stridedView(call))
          llvm::append_range(stack, call.getOutputs());
        llvm::append_range(stack, call.getUpdated());
      }
    }
    return false;
  }

  /// Whether the value is what operators in place, of which kernels are made,
  /// store in this part: in the part itself, or in new memory.
  bool isNewValueOf(Value value, const Part &part) const {
    auto call = value.getDefiningOp<graph::CallOp>();
    if (!call || lower::functionalTwin(call).empty())
      return false;
    std::optional<Place> place = placeOf(call.operand("self"));
    return place ? place->part == part
                 : isNewValueOf(call.operand("self"), part);
  }

  /// Whether the value may share memory with the argument's.
  bool mayLieIn(Value value, BlockArgument argument) const {
    while (true) {
      if (auto known = versions.find(value); known != versions.end())
        return known->second.first == argument;
      auto call = value.getDefiningOp<graph::CallOp>();
      if (!call)
        return value == argument;
      unsigned number = cast<OpResult>(value).getResultNumber();
      std::optional<ArrayRef<int64_t>> views = call.getViews();
      if (number >= call.getOutputs().size())
        value = call.getInputs()[call.getMutates()[number -
                                                   call.getOutputs().size()]];
      else if (views && (*views)[number] >= 0)
        value = call.getInputs()[(*views)[number]];
      else
        return mayReturnOperand(call) &&
               llvm::any_of(call.getInputs(), [&](Value input) {
                 return mayLieIn(input, argument);
               });
    }
  }

  func::FuncOp function;
  OpBuilder builder;
  llvm::DenseMap<Value, std::pair<BlockArgument, unsigned>> versions;
  llvm::DenseMap<BlockArgument, History> history;
  SmallVector<Operation *> replaced;
  unsigned count = 0;
};

struct RestoreUpdates final
    : intarsia::impl::RestoreUpdatesBase<RestoreUpdates> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && !function->hasAttr(aliasingAttrName))
        numRestored += Restorer(function).run();
  }
};

} // namespace
