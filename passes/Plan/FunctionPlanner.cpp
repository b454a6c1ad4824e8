//===- FunctionPlanner.cpp - The plan of one function ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Translates the operations of one function, in their order, to steps. What
// happens in place was decided by `plan-inplace`; here a new value that is
// written in place simply keeps the slot of the old one.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/FunctionPlanner.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Views.h"

#include "intarsia/Import/Import.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;

namespace intarsia {

FunctionPlanner::FunctionPlanner(ModulePlanner &planner, func::FuncOp function,
                                 bool isEntry)
    : planner(planner), function(function), isEntry(isEntry),
      storage(function) {
  out.name = function.getName().str();
}

FailureOr<plan::Function> FunctionPlanner::run() {
  if (!function.getBody().hasOneBlock())
    return function.emitError("expected a function of one block");
  if (failed(planInputs()))
    return failure();
  for (Operation &op : function.getBody().front()) {
    if (failed(planOperation(op)))
      return failure();
    storage.visit(&op);
  }
  planArena();
  // Last of what makes expressions: it rewrites those with symbols that only
  // follow from others.
  if (failed(planGuards()) || failed(bindSymbols()))
    return failure();
  insertFrees();
  return std::move(out);
}

//===----------------------------------------------------------------------===//
// Values and expressions
//===----------------------------------------------------------------------===//

int32_t FunctionPlanner::symbol(const std::string &name) {
  auto [it, isNew] = symbolIds.try_emplace(name, out.symbols.size());
  if (!isNew)
    return it->second;
  plan::Symbol symbol;
  symbol.name = name;
  symbol.isFloat = SymExpr::symbol(name).mayBeReal();
  if (auto ranges = function->getAttrOfType<DictionaryAttr>("intarsia.symbols"))
    if (auto range = ranges.getAs<ArrayAttr>(name);
        range && range.size() == 2) {
      if (auto min = dyn_cast<IntegerAttr>(range[0]))
        symbol.min = min.getInt();
      if (auto max = dyn_cast<IntegerAttr>(range[1]))
        symbol.max = max.getInt();
    }
  out.symbols.push_back(std::move(symbol));
  return it->second;
}

plan::ExprId FunctionPlanner::expr(const SymExpr &expression) {
  auto [it, isNew] = exprIds.try_emplace(expression.str(), out.exprs.size());
  if (isNew) {
    std::set<std::string> names;
    expression.collectSymbols(names);
    for (const std::string &name : names)
      symbol(name);
    out.exprs.push_back(expression);
  }
  return it->second;
}

plan::TensorSpec FunctionPlanner::spec(graph::TensorType type) {
  plan::TensorSpec spec;
  spec.dtype = type.getDtype();
  spec.device = type.getDevice().str();
  for (const SymExpr &size : type.getSizeExprs())
    spec.sizes.push_back(expr(size));
  for (const SymExpr &stride : type.getStrideExprs())
    spec.strides.push_back(expr(stride));
  return spec;
}

plan::Step FunctionPlanner::newStep(Kind kind, Location location) {
  plan::Step step;
  step.kind = kind;
  step.location = importer::describeLocation(location);
  return step;
}

static plan::Arg slotArg(plan::Slot slot) {
  plan::Arg arg;
  arg.kind = plan::Arg::Kind::Slot;
  arg.slot = slot;
  return arg;
}

plan::Arg FunctionPlanner::argOf(Value value) {
  if (auto number = numbers.find(value); number != numbers.end())
    return number->second;
  return slotArg(slotOf(value));
}

/// An argument that is known now.
plan::Arg FunctionPlanner::constant(Attribute attribute) {
  using ArgKind = plan::Arg::Kind;
  plan::Arg arg;
  if (auto flag = dyn_cast<BoolAttr>(attribute)) {
    arg.kind = ArgKind::Bool;
    arg.boolean = flag.getValue();
  } else if (auto integer = dyn_cast<IntegerAttr>(attribute)) {
    arg.kind = ArgKind::Int;
    arg.integer = integer.getInt();
  } else if (auto real = dyn_cast<FloatAttr>(attribute)) {
    arg.kind = ArgKind::Float;
    arg.real = real.getValueAsDouble();
  } else if (auto text = dyn_cast<StringAttr>(attribute)) {
    arg.kind = ArgKind::String;
    arg.text = text.str();
  } else if (auto complex = dyn_cast<graph::ComplexAttr>(attribute)) {
    arg.kind = ArgKind::Complex;
    arg.real = complex.getReal().convertToDouble();
    arg.imaginary = complex.getImaginary().convertToDouble();
  } else if (auto dtype = dyn_cast<graph::DTypeAttr>(attribute)) {
    arg.kind = ArgKind::DType;
    arg.dtype = dtype.getValue();
  } else if (auto device = dyn_cast<graph::DeviceAttr>(attribute)) {
    arg.kind = ArgKind::Device;
    arg.text = device.getValue().str();
  } else if (auto layout = dyn_cast<graph::LayoutAttr>(attribute)) {
    arg.kind = ArgKind::Layout;
    arg.text = layout.getValue().str();
  } else if (auto format = dyn_cast<graph::MemoryFormatAttr>(attribute)) {
    arg.kind = ArgKind::MemoryFormat;
    arg.text = format.getValue().str();
  } else if (auto object = dyn_cast<graph::ObjectAttr>(attribute)) {
    arg.kind = ArgKind::Object;
    arg.integer = object.getIndex();
  } else if (auto name = dyn_cast<FlatSymbolRefAttr>(attribute)) {
    arg.kind = ArgKind::Function;
    arg.text = name.getValue().str();
  } else if (auto expression = dyn_cast<graph::ExprAttr>(attribute)) {
    arg.kind = ArgKind::Expr;
    arg.expr = expr(expression.getExpr());
  } else if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    arg.kind = ArgKind::List;
    for (Attribute member : list)
      arg.list.push_back(constant(member));
  }
  return arg; // `none` and unit: None
}

plan::Arg
FunctionPlanner::argument(graph::CallOp call, Attribute attribute,
                          const llvm::DenseMap<int64_t, plan::Slot> &replaced) {
  auto slotOfOperand = [&](int64_t index) {
    auto it = replaced.find(index);
    return it == replaced.end() ? slotOf(call.getInputs()[index]) : it->second;
  };
  if (auto operand = dyn_cast<graph::OperandAttr>(attribute)) {
    Value value = call.getInputs()[operand.getIndex()];
    return numbers.contains(value) ? numbers.lookup(value)
                                   : slotArg(slotOfOperand(operand.getIndex()));
  }
  if (auto view = dyn_cast<graph::ViewAttr>(attribute)) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::View;
    arg.slot = slotOfOperand(view.getIndex());
    for (graph::ExprAttr size : view.getSizes())
      arg.sizes.push_back(expr(size.getExpr()));
    for (graph::ExprAttr stride : view.getStrides())
      arg.strides.push_back(expr(stride.getExpr()));
    arg.offset = expr(view.getOffset().getExpr());
    return arg;
  }
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::List;
    for (Attribute member : list)
      arg.list.push_back(argument(call, member, replaced));
    return arg;
  }
  return constant(attribute);
}

//===----------------------------------------------------------------------===//
// Inputs and guards
//===----------------------------------------------------------------------===//

LogicalResult FunctionPlanner::planInput(BlockArgument argument) {
  using InputKind = plan::Input::Kind;
  unsigned index = argument.getArgNumber();
  auto text = [&](StringRef name) {
    auto attribute = function.getArgAttrOfType<StringAttr>(index, name);
    return attribute ? attribute.str() : std::string();
  };
  plan::Input input;
  input.name = text("intarsia.name");
  if (input.name.empty())
    input.name = "arg" + std::to_string(index);
  std::string kind = text("intarsia.kind"), target = text("intarsia.target");
  Type type = argument.getType();

  if (auto tensor = dyn_cast<graph::TensorType>(type)) {
    input.kind = InputKind::Tensor;
    input.slot = slots[argument] = newSlot();
    input.spec = spec(tensor);
    input.mutated = bool(function.getArgAttr(index, "intarsia.mutated"));
    if (isEntry && planner.weightType(target) &&
        (kind == "parameter" || kind == "buffer" || kind == "constant"))
      input.weight = target;
    for (auto [dim, size] : llvm::enumerate(tensor.getSizeExprs())) {
      if (size.isSymbol())
        boundSymbols.insert(size.name());
      inputSizes.push_back({out.inputs.size(), dim, size});
    }
    for (const SymExpr &stride : tensor.getStrideExprs())
      if (stride.isSymbol())
        boundSymbols.insert(stride.name());
  } else if (isa<IndexType>(type) || type.isF64() || type.isInteger(1)) {
    input.kind = isa<IndexType>(type) ? InputKind::SymInt
                 : type.isF64()       ? InputKind::SymFloat
                                      : InputKind::SymBool;
    if (auto attribute = function.getArgAttrOfType<graph::ExprAttr>(
            index, "intarsia.expr")) {
      SymExpr expression = attribute.getExpr();
      plan::Arg number;
      number.kind = plan::Arg::Kind::Expr;
      number.expr = expr(expression);
      if (expression.isSymbol()) {
        input.symbol = symbol(expression.name());
        boundSymbols.insert(expression.name());
        out.symbols[input.symbol].isFloat = type.isF64();
      } else {
        input.expr = number.expr;
      }
      numbers[argument] = number;
    } else {
      input.slot = slots[argument] = newSlot();
    }
  } else if (kind == "constant_input") {
    input.kind = InputKind::Constant;
    if (Attribute value = function.getArgAttr(index, "intarsia.constant"))
      input.constant = constant(value);
  } else if (kind == "token") {
    // Order is the order of the steps; PyTorch passes None for a token.
    input.kind = InputKind::None;
    input.slot = slots[argument] = newSlot();
  } else {
    input.kind = InputKind::Object;
    input.slot = slots[argument] = newSlot();
  }
  out.inputs.push_back(std::move(input));
  return success();
}

LogicalResult FunctionPlanner::planInputs() {
  for (BlockArgument argument : function.getArguments())
    if (failed(planInput(argument)))
      return failure();
  return success();
}

plan::Slot FunctionPlanner::weightInput(const std::string &name) {
  auto [it, isNew] = weightSlots.try_emplace(name, -1);
  if (isNew) {
    plan::Input input;
    input.name = name;
    input.slot = it->second = newSlot();
    input.spec = spec(planner.weightType(name));
    if (isEntry)
      input.weight = name;
    out.inputs.push_back(std::move(input));
    weightNames.push_back(name);
  }
  return it->second;
}

LogicalResult FunctionPlanner::planGuards() {
  auto guards = function->getAttrOfType<ArrayAttr>("intarsia.guards");
  auto texts = function->getAttrOfType<ArrayAttr>("intarsia.guard_texts");
  if (!guards)
    return success();
  for (auto [i, attribute] : llvm::enumerate(guards)) {
    StringRef text = cast<StringAttr>(attribute).getValue();
    std::string error;
    std::optional<SymExpr> condition = SymExpr::parse(text, &error);
    if (!condition)
      return function.emitError("malformed guard '") << text << "': " << error;
    if (condition->asBool() == true)
      continue;
    plan::Guard guard;
    guard.expr = expr(*condition);
    guard.text = texts && i < texts.size() ? cast<StringAttr>(texts[i]).str()
                                           : text.str();
    out.guards.push_back(std::move(guard));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

LogicalResult FunctionPlanner::planOperation(Operation &op) {
  if (auto call = dyn_cast<graph::CallOp>(op))
    return planCall(call);
  if (auto kernel = dyn_cast<graph::KernelOp>(op))
    return planKernel(kernel);
  if (auto size = dyn_cast<graph::SizeOp>(op)) {
    SymExpr expression = size.getExpr().getExpr();
    Builder builder(op.getContext());
    plan::Arg number;
    if (auto integer = expression.asInteger();
        integer && isa<IndexType>(size.getType()))
      number = constant(builder.getI64IntegerAttr(*integer));
    else
      number = constant(size.getExpr());
    numbers[size.getResult()] = number;
    return success();
  }
  if (auto weight = dyn_cast<graph::WeightOp>(op)) {
    if (!planner.weightType(weight.getName()))
      return weight.emitError("the module carries no weight of this name");
    slots[weight.getResult()] = weightInput(weight.getName().str());
    return success();
  }
  if (auto assertion = dyn_cast<graph::AssertOp>(op)) {
    plan::Step step = newStep(Kind::Assert, op.getLoc());
    step.expr = expr(assertion.getCondition().getExpr());
    step.text = assertion.getMessage().str();
    step.flag = assertion.getIndexError();
    out.steps.push_back(std::move(step));
    return success();
  }
  if (auto results = dyn_cast<func::ReturnOp>(op))
    return planReturn(results);
  return op.emitError("no step of a plan corresponds to '")
         << op.getName() << "'; it should have been lowered before";
}

plan::Slot FunctionPlanner::copyInto(plan::Slot source, plan::TensorSpec spec,
                                     Location location) {
  plan::Step alloc = newStep(Kind::Alloc, location);
  alloc.slot = newSlot();
  alloc.spec = std::move(spec);
  plan::Step copy = newStep(Kind::Copy, location);
  copy.source = source;
  copy.slot = alloc.slot;
  out.steps.push_back(std::move(alloc));
  out.steps.push_back(std::move(copy));
  return copy.slot;
}

static bool hasTag(graph::CallOp call, StringRef tag) {
  std::optional<ArrayAttr> tags = call.getTags();
  return tags && llvm::any_of(*tags, [&](Attribute attribute) {
           auto text = dyn_cast<StringAttr>(attribute);
           return text && text.getValue() == tag;
         });
}

/// Effects that PyTorch's operators do not have show one that only has a name
/// of PyTorch's.
static bool isCustom(graph::CallOp call) {
  StringRef space = call.getCallee().split("::").first;
  return ((space != "aten" && space != "prims") || call.getEffectful()) &&
         space != "prim" && space != "higher_order";
}

/// The order of a tensor's dimensions by falling stride, as far as it is
/// known; nullopt when two strides can't be compared.
static std::optional<SmallVector<int64_t>>
strideOrder(ArrayRef<SymExpr> sizes, ArrayRef<SymExpr> strides) {
  SmallVector<int64_t> order;
  for (int64_t dim = 0, e = sizes.size(); dim != e; ++dim)
    if (!sizes[dim].isInteger(1))
      order.push_back(dim);
  for (int64_t dim : order)
    if (!strides[dim].asInteger())
      return std::nullopt;
  llvm::stable_sort(order, [&](int64_t a, int64_t b) {
    return *strides[a].asInteger() > *strides[b].asInteger();
  });
  return order;
}

void FunctionPlanner::prepareLayouts(
    graph::CallOp call, llvm::DenseMap<int64_t, plan::Slot> &replaced) {
  if (!isCustom(call) || call.getAliasing())
    return;
  bool exact = hasTag(call, "needs_exact_strides");
  bool contiguous = !exact && hasTag(call, "needs_contiguous_strides");
  bool order =
      !exact && !contiguous && hasTag(call, "needs_fixed_stride_order");
  // Of several tags the strictest counts.
  if (!exact && !contiguous && !order && hasTag(call, "flexible_layout"))
    return;
  auto eager = call->getAttrOfType<ArrayAttr>("intarsia.eager_strides");
  if (!eager && !contiguous)
    return;
  for (auto [index, value] : llvm::enumerate(call.getInputs())) {
    auto type = dyn_cast<graph::TensorType>(value.getType());
    if (!type || llvm::is_contained(call.getMutates(), int64_t(index)))
      continue;
    SmallVector<SymExpr> sizes = type.getSizeExprs(), wanted;
    if (contiguous) {
      if (type.hasContiguousStrides())
        continue;
      wanted = graph::TensorType::get(call.getContext(), sizes, type.getDtype(),
                                      type.getDevice())
                   .getStrideExprs();
    } else {
      auto strides = index < eager.size() ? dyn_cast<ArrayAttr>(eager[index])
                                          : ArrayAttr();
      if (!strides)
        continue;
      for (Attribute stride : strides)
        wanted.push_back(cast<graph::ExprAttr>(stride).getExpr());
      auto now = strideOrder(sizes, type.getStrideExprs());
      if (order && now && now == strideOrder(sizes, wanted))
        continue;
    }
    plan::TensorSpec layout = spec(type);
    layout.strides.clear();
    for (const SymExpr &stride : wanted)
      layout.strides.push_back(expr(stride));
    replaced[index] = copyInto(slotOf(value), std::move(layout), call.getLoc());
  }
}

void FunctionPlanner::prepareMutation(
    graph::CallOp call, plan::Step &planned,
    llvm::DenseMap<int64_t, plan::Slot> &replaced) {
  for (auto [i, operand] : llvm::enumerate(call.getMutates())) {
    Value base = call.getInputs()[operand];
    plan::Slot written = slotOf(base);
    if (!isInplace(call, i)) {
      plan::Step clone = newStep(Kind::Clone, call.getLoc());
      clone.source = written;
      clone.slot = written = newSlot();
      out.steps.push_back(std::move(clone));
      // Whatever shares the base's storage among the arguments has to share
      // the copy's.
      for (auto [other, value] : llvm::enumerate(call.getInputs())) {
        if (value == base) {
          replaced[other] = written;
          continue;
        }
        auto type = dyn_cast<graph::TensorType>(value.getType());
        if (!type || llvm::is_contained(call.getMutates(), int64_t(other)) ||
            !storage.mayShare(value, base))
          continue;
        if (std::optional<SymExpr> offset = offsetWithin(value, base)) {
          plan::Step view = newStep(Kind::View, call.getLoc());
          view.source = written;
          view.slot = replaced[other] = newSlot();
          view.spec = spec(type);
          view.offset = expr(*offset);
          out.steps.push_back(std::move(view));
        }
      }
    }
    planned.mutates.push_back(written);
    slots[call.getUpdated()[i]] = written;
  }
}

plan::Result FunctionPlanner::result(graph::CallOp call, Attribute attribute) {
  using ResultKind = plan::Result::Kind;
  plan::Result result;
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    result.kind = ResultKind::List;
    for (Attribute member : list)
      result.list.push_back(this->result(call, member));
    return result;
  }
  auto number = dyn_cast<graph::OperandAttr>(attribute);
  if (!number) {
    result.kind =
        isa<graph::NoneAttr>(attribute) ? ResultKind::None : ResultKind::Tied;
    return result;
  }

  Value value = call.getOutputs()[number.getIndex()];
  bool used = !value.use_empty();
  if (std::optional<ArrayAttr> binds = call.getBinds()) {
    for (Attribute attribute : *binds) {
      auto bind = cast<graph::BindAttr>(attribute);
      if (bind.getResult() != number.getIndex())
        continue;
      used = true;
      std::string name = bind.getSymbol().str();
      int32_t id = symbol(name);
      boundSymbols.insert(name);
      auto [what, dimension] = bind.getPath().split(':');
      int32_t dim = 0;
      dimension.getAsInteger(10, dim);
      if (what == "size")
        result.bindsSize.emplace_back(id, dim);
      else if (what == "stride")
        result.bindsStride.emplace_back(id, dim);
      else
        result.bindsSymbol = id;
    }
  }
  auto type = dyn_cast<graph::TensorType>(value.getType());
  if (type)
    result.spec = spec(type);
  if (auto numbers = call->getAttrOfType<ArrayAttr>("intarsia.numbers"))
    if (auto known = dyn_cast<graph::ExprAttr>(numbers[number.getIndex()]))
      result.expect = expr(known.getExpr());
  if (!used)
    return result;
  result.kind = type || isa<graph::ObjectType>(value.getType())
                    ? ResultKind::Tensor
                    : ResultKind::Number;
  result.slot = slots[value] = newSlot();
  return result;
}

void FunctionPlanner::results(graph::CallOp call, plan::Step &planned) {
  for (Attribute attribute : call.getReturns())
    planned.results.push_back(result(call, attribute));
}

/// Views of a known form need no call, and a chain of them only one step.
bool FunctionPlanner::planView(graph::CallOp call) {
  if (!planner.options.stridedViews)
    return false;
  std::optional<StridedView> view = stridedView(call);
  if (!view)
    return false;
  PendingView source{view->source, SymExpr(0)};
  if (auto known = viewsOf.find(view->source); known != viewsOf.end())
    source = known->second;
  for (auto [output, offset] :
       llvm::zip_equal(call.getOutputs(), view->offsets))
    viewsOf[output] = {source.source, source.offset + offset};
  return true;
}

plan::Slot FunctionPlanner::slotOf(Value value) {
  if (auto known = slots.find(value); known != slots.end())
    return known->second;
  auto view = viewsOf.find(value);
  if (view == viewsOf.end())
    return -1;
  plan::Step step = newStep(Kind::View, value.getLoc());
  step.source = slotOf(view->second.source);
  step.slot = slots[value] = newSlot();
  step.spec = spec(cast<graph::TensorType>(value.getType()));
  step.offset = expr(view->second.offset);
  out.steps.push_back(std::move(step));
  return slots.lookup(value);
}

/// Copies `source` into the part of `base` that starts at `offset`.
void FunctionPlanner::planCopy(Location location, Value base, Value source,
                               ArrayRef<SymExpr> sizes,
                               ArrayRef<SymExpr> strides,
                               const SymExpr &offset) {
  auto type = cast<graph::TensorType>(base.getType());
  plan::Slot target = slotOf(base);
  if (sizes != ArrayRef(type.getSizeExprs()) ||
      strides != ArrayRef(type.getStrideExprs()) || offset != SymExpr(0)) {
    plan::Step view = newStep(Kind::View, location);
    view.source = target;
    view.slot = target = newSlot();
    view.spec =
        spec(graph::TensorType::get(location.getContext(), sizes, strides,
                                    type.getDtype(), type.getDevice()));
    view.offset = expr(offset);
    out.steps.push_back(std::move(view));
  }
  plan::Step copy = newStep(Kind::Copy, location);
  copy.source = slotOf(source);
  copy.slot = target;
  out.steps.push_back(std::move(copy));
}

/// A copy in place into a part of a tensor needs no call.
bool FunctionPlanner::planCopyOfPart(graph::CallOp call) {
  Value source = call.operand("src");
  if (call.getCallee() != "aten::copy_" || !source || call.getAliasing() ||
      call.getArgs().empty() || !isInplace(call, 0))
    return false;
  auto view = dyn_cast<graph::ViewAttr>(call.arg("self"));
  if (!view)
    return false;
  auto exprs = [](ArrayRef<graph::ExprAttr> attributes) {
    return llvm::map_to_vector(attributes, [](graph::ExprAttr attribute) {
      return attribute.getExpr();
    });
  };
  Value base = call.getInputs()[view.getIndex()];
  planCopy(call.getLoc(), base, source, exprs(view.getSizes()),
           exprs(view.getStrides()), view.getOffset().getExpr());
  slots[call.getUpdated().front()] = slotOf(base);
  return true;
}

/// Writes the part that changes into the storage of the old value.
void FunctionPlanner::planUpdate(graph::CallOp call) {
  Update update = *updateOf(call);
  plan::Slot self = slotOf(call.operand("self"));
  slots[call.getOutputs().front()] = self;
  if (!update.twin.empty()) {
    planner.useOperator(update.twin, /*schema=*/"");
    plan::Step step = newStep(Kind::Call, call.getLoc());
    step.op = update.twin;
    for (Attribute attribute : call.getArgs())
      step.args.push_back(
          argument(call, attribute, llvm::DenseMap<int64_t, plan::Slot>()));
    step.mutates.push_back(self);
    step.results.emplace_back().kind = plan::Result::Kind::Tied;
    out.steps.push_back(std::move(step));
    return;
  }
  planCopy(call.getLoc(), call.operand("self"), call.operand("src"),
           update.sizes, update.strides, update.offset);
}

LogicalResult FunctionPlanner::planCall(graph::CallOp call) {
  if (call.getCallee().starts_with("higher_order::"))
    return planHigherOrder(call);
  if (call->hasAttr(writebackAttrName)) {
    // The storage holds it already, or gets it at the end.
    slots[call.getUpdated().front()] =
        slotOf(isPostponed(call) ? call.operand("src")
                                 : call.getInputs()[call.getMutates().front()]);
    return success();
  }
  if (planView(call) || planCopyOfPart(call))
    return success();
  if (reusedOperand(call)) {
    planUpdate(call);
    return success();
  }

  if (call.getCallee() == importer::launchKernelOperator)
    return planForeignLaunch(call);
  planner.useOperator(call.getCallee(), call.getSchema().value_or(""));
  llvm::DenseMap<int64_t, plan::Slot> replaced;
  plan::Step step = newStep(Kind::Call, call.getLoc());
  step.op = call.getCallee().str();
  prepareLayouts(call, replaced);
  prepareMutation(call, step, replaced);
  for (Attribute attribute : call.getArgs())
    step.args.push_back(argument(call, attribute, replaced));
  results(call, step);
  bool views = call.getViews() &&
               llvm::any_of(*call.getViews(), [](int64_t v) { return v >= 0; });
  step.checkAlias = isCustom(call) && !views;
  if (auto autocast = call->getAttrOfType<StringAttr>("intarsia.autocast"))
    step.autocast = autocast.str();
  // A copy would cut the tie to the storage that the program works on.
  step.fixStrides = !call.getAliasing();
  step.flag = function->hasAttr(autocastAttrName);
  out.steps.push_back(std::move(step));
  return success();
}

LogicalResult FunctionPlanner::planKernel(graph::KernelOp kernel) {
  std::optional<DictionaryAttr> decisions = kernel.getDecisions();
  auto name = decisions ? decisions->getAs<StringAttr>("symbol") : StringAttr();
  auto number = [&](StringRef key) -> plan::ExprId {
    Attribute attribute = decisions->get(key);
    if (auto expression = dyn_cast_or_null<graph::ExprAttr>(attribute))
      return expr(expression.getExpr());
    if (auto integer = dyn_cast_or_null<IntegerAttr>(attribute))
      return expr(SymExpr(integer.getInt()));
    return -1;
  };
  if (!name)
    return kernel.emitError(
        "the kernel has no code: `decisions` lacks a `symbol`");
  if (!decisions->get("domain"))
    return kernel.emitError("`decisions` lacks the `domain` of kernel '")
           << name.getValue() << "'";

  plan::Step step = newStep(Kind::Launch, kernel.getLoc());
  step.kernel = planner.kernel(name.getValue(), kernel);
  for (Value input : kernel.getInputs())
    step.buffers.push_back(slotOf(input));
  auto over = kernel->getAttrOfType<DenseI64ArrayAttr>(overAttrName);
  for (OpResult output : kernel->getResults()) {
    if (BlockArgument argument = writtenArgument(output)) {
      slots[output] = slotOf(argument);
      step.mutates.push_back(slotOf(argument));
      step.buffers.push_back(slotOf(argument));
      continue;
    }
    auto type = cast<graph::TensorType>(output.getType());
    plan::Step alloc = newStep(Kind::Alloc, kernel.getLoc());
    alloc.slot = slots[output] = newSlot();
    alloc.spec = spec(type);
    if (belongsInArena(output))
      arenaSlots[alloc.slot] = type;
    else if (over && over[output.getResultNumber()] >= 0)
      alloc.source = slotOf(kernel.getInputs()[over[output.getResultNumber()]]);
    step.buffers.push_back(alloc.slot);
    out.steps.push_back(std::move(alloc));
  }
  for (Attribute symbol : kernel.getSymbols())
    step.symbols.push_back(expr(cast<graph::ExprAttr>(symbol).getExpr()));
  step.domain = number("domain");
  auto type = cast<graph::TensorType>(kernel.getOutputs().front().getType());
  if (type.getDevice().starts_with("cuda")) {
    step.threads = number("threads");
    step.blocks = number("grid");
    step.shared = number("shared");
    if (auto wide = decisions->getAs<DictionaryAttr>("wide"))
      step.extent = expr(wide.getAs<graph::ExprAttr>("extent").getExpr());
  } else {
    step.grain = number("grain");
    step.scratch = number("scratch");
  }
  if (auto apart = kernel->getAttrOfType<DenseI64ArrayAttr>(apartAttrName))
    for (ArrayRef<int64_t> rest = apart; !rest.empty();
         rest = rest.drop_front(3))
      step.apart.push_back({int32_t(rest[0]), int32_t(rest[1]), rest[2] != 0});
  out.steps.push_back(std::move(step));
  return success();
}

LogicalResult FunctionPlanner::planReturn(func::ReturnOp op) {
  // The arguments that are overwritten now, with what.
  struct WriteBack {
    BlockArgument argument;
    unsigned result;
  };
  SmallVector<WriteBack> copies;
  auto isSettled = [&](unsigned index) {
    auto decision =
        function.getResultAttrOfType<StringAttr>(index, writebackAttrName);
    return decision && decision.getValue() == "inplace";
  };
  for (unsigned i = 0, e = op.getNumOperands(); i != e; ++i)
    if (BlockArgument argument = mutatedArgument(function, i);
        argument && !isSettled(i))
      copies.push_back({argument, i});

  // Old values that are still wanted are saved from the overwriting.
  SmallVector<plan::Arg> values;
  for (auto [i, value] : llvm::enumerate(op.getOperands())) {
    plan::Arg arg = argOf(value);
    bool endangered = llvm::any_of(copies, [&](const WriteBack &copy) {
      return storage.mayShare(value, copy.argument);
    });
    if (endangered && !(mutatedArgument(function, i) && isSettled(i))) {
      plan::Step clone = newStep(Kind::Clone, op.getLoc());
      clone.source = arg.slot;
      clone.slot = arg.slot = newSlot();
      out.steps.push_back(std::move(clone));
    }
    values.push_back(arg);
  }
  for (const WriteBack &copy : copies) {
    plan::Step step = newStep(Kind::Copy, op.getLoc());
    step.source = values[copy.result].slot;
    step.slot = slotOf(copy.argument);
    out.steps.push_back(std::move(step));
    values[copy.result].slot = step.slot;
  }

  // The graph's outputs in order, then the mutations beside them.
  auto outputInfo = [&](unsigned index) {
    plan::OutputInfo info;
    auto kind =
        function.getResultAttrOfType<StringAttr>(index, "intarsia.output");
    auto target =
        function.getResultAttrOfType<StringAttr>(index, "intarsia.target");
    if (kind && kind.getValue() == "input_mutation")
      info.kind = plan::OutputInfo::Kind::InputMutation;
    else if (kind && kind.getValue().ends_with("_mutation"))
      info.kind = plan::OutputInfo::Kind::BufferMutation;
    if (target)
      info.target = target.str();
    return info;
  };
  llvm::SmallDenseSet<int64_t> placed;
  auto place = [&](int64_t index) {
    placed.insert(index);
    out.outputs.push_back(values[index]);
    if (isEntry)
      planner.plan.outputs.push_back(outputInfo(index));
  };
  if (auto returns = function->getAttrOfType<ArrayAttr>("intarsia.returns")) {
    for (Attribute attribute : returns) {
      if (auto number = dyn_cast<graph::OperandAttr>(attribute)) {
        place(number.getIndex());
        continue;
      }
      out.outputs.push_back(constant(attribute));
      if (isEntry)
        planner.plan.outputs.emplace_back();
    }
  }
  // A nested function has written what it mutates: its caller sees that.
  bool listed = function->hasAttr("intarsia.returns");
  for (int64_t i = 0, e = values.size(); i != e; ++i)
    if (!placed.contains(i) && (isEntry || !listed))
      place(i);
  return success();
}

} // namespace intarsia
