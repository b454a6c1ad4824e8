//===- CallBuilder.cpp - A node as a call
//----------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every operator node becomes one `intarsia.call`, with what is known of it in
// its attributes. The exceptions are nodes that compute with symbolic numbers,
// which are expressions already, assertions on them, and the wrappers that
// functionalisation and effect tokens put around a call.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"
#include "Location.h"
#include "passes/Normalise/AliasSets.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;
using Kind = Argument::Kind;

// --- Calls -------------------------------------------------------------------

void FunctionBuilder::addArgument(Call &call, StringRef name, Attribute value) {
  call.args.push_back(value);
  call.argNames.push_back(builder.getStringAttr(name));
}

void FunctionBuilder::beginCall(Call &call, const std::string &target,
                                const NamedArguments &arguments,
                                const std::map<std::string, Attribute> &given) {
  call.callee = target;
  call.schema = &module.schema(target);
  const std::vector<SchemaArgument> &expected = call.schema->arguments;

  // Positional arguments go to the schema's places, in order.
  std::vector<Argument> values(expected.size());
  std::vector<bool> isGiven(expected.size());
  size_t position = 0;
  for (const auto &[name, argument] : arguments) {
    size_t place = position;
    if (!name.empty()) {
      auto found = llvm::find_if(
          expected, [&, wanted = StringRef(name)](const SchemaArgument &a) {
            return a.name == wanted;
          });
      if (found == expected.end())
        throw BuildError("has no argument '" + name +
                         "' in its schema: " + call.schema->schema);
      place = found - expected.begin();
    } else {
      ++position;
    }
    if (place >= expected.size())
      throw BuildError("is given more arguments than its schema has: " +
                       call.schema->schema);
    if (isGiven[place])
      throw BuildError("is given the argument '" + expected[place].name +
                       "' twice");
    values[place] = argument;
    isGiven[place] = true;
  }
  for (auto [place, schemaArgument] : llvm::enumerate(expected)) {
    if (isGiven[place] || given.count(schemaArgument.name))
      continue;
    if (schemaArgument.defaultValue)
      values[place] = *schemaArgument.defaultValue;
    else if (!StringRef(schemaArgument.type).ends_with("?"))
      throw BuildError("is not given the argument '" + schemaArgument.name +
                       "' of its schema: " + call.schema->schema +
                       ". The operator may have changed since the program "
                       "was exported");
  }
  // Facts may depend on arguments; of one that is only known at run time they
  // see a value.
  for (const auto &[name, attribute] : given)
    for (auto [place, schemaArgument] : llvm::enumerate(expected))
      if (schemaArgument.name == name && !isa<graph::NoneAttr>(attribute))
        values[place].kind = Kind::Value;
  call.facts = operatorFacts(*call.schema, values);

  for (auto [schemaArgument, value] : llvm::zip_equal(expected, values)) {
    auto found = given.find(schemaArgument.name);
    addArgument(call, schemaArgument.name,
                found != given.end()
                    ? found->second
                    : convert(call, value, schemaArgument.type));
  }
}

/// Numbers the operands by their first appearance among the arguments.
void FunctionBuilder::numberOperands(Call &call) {
  SmallVector<Value> operands;
  llvm::DenseMap<int64_t, int64_t> places;
  auto place = [&](int64_t index) {
    auto [entry, isNew] = places.try_emplace(index, operands.size());
    if (isNew)
      operands.push_back(call.operands[index]);
    return entry->second;
  };
  std::function<Attribute(Attribute)> renumber =
      [&](Attribute attribute) -> Attribute {
    MLIRContext *context = builder.getContext();
    if (auto argument = dyn_cast<graph::OperandAttr>(attribute))
      return graph::OperandAttr::get(context, place(argument.getIndex()));
    if (auto view = dyn_cast<graph::ViewAttr>(attribute))
      return graph::ViewAttr::get(context, place(view.getIndex()),
                                  view.getSizes(), view.getStrides(),
                                  view.getOffset());
    auto list = dyn_cast<ArrayAttr>(attribute);
    if (!list)
      return attribute;
    SmallVector<Attribute> elements;
    for (Attribute element : list)
      elements.push_back(renumber(element));
    return builder.getArrayAttr(elements);
  };
  for (Attribute &argument : call.args)
    argument = renumber(argument);
  call.operands = std::move(operands);
  call.operandIndex.clear();
  for (auto [index, value] : llvm::enumerate(call.operands))
    call.operandIndex[value] = index;
}

graph::CallOp FunctionBuilder::createCall(const Call &call,
                                          TypeRange outputTypes,
                                          ArrayRef<Attribute> returnAttrs,
                                          ArrayRef<int64_t> views,
                                          ArrayRef<Attribute> binds) {
  MLIRContext *context = builder.getContext();
  SmallVector<Type> updatedTypes;
  for (int64_t index : call.mutates)
    updatedTypes.push_back(call.operands[index].getType());
  SmallVector<Attribute> tags, plainReturns;
  if (call.schema)
    for (const std::string &tag : call.schema->tags)
      tags.push_back(builder.getStringAttr(tag));
  if (returnAttrs.empty())
    for (size_t i = 0; i < outputTypes.size(); ++i)
      plainReturns.push_back(graph::OperandAttr::get(context, i));
  bool hasViews = llvm::any_of(views, [](int64_t view) { return view >= 0; });
  auto unitIf = [&](bool flag) {
    return flag ? UnitAttr::get(context) : UnitAttr();
  };
  auto op = graph::CallOp::create(
      builder, location, outputTypes, updatedTypes,
      builder.getStringAttr(call.callee), call.operands,
      builder.getArrayAttr(call.args), builder.getArrayAttr(call.argNames),
      builder.getArrayAttr(returnAttrs.empty() ? ArrayRef(plainReturns)
                                               : returnAttrs),
      builder.getDenseI64ArrayAttr(call.mutates),
      unitIf(call.effectful || call.facts.effectful), unitIf(call.facts.random),
      /*aliasing=*/UnitAttr(),
      hasViews ? builder.getDenseI64ArrayAttr(views) : DenseI64ArrayAttr(),
      binds.empty() ? ArrayAttr() : builder.getArrayAttr(binds),
      tags.empty() ? ArrayAttr() : builder.getArrayAttr(tags),
      call.schema ? builder.getStringAttr(call.schema->schema) : StringAttr());
  addPreconditions(op);
  return op;
}

/// The operands in an argument, in order.
static void collectOperands(Attribute attribute,
                            SmallVectorImpl<int64_t> &out) {
  if (auto operand = dyn_cast<graph::OperandAttr>(attribute))
    out.push_back(operand.getIndex());
  else if (auto view = dyn_cast<graph::ViewAttr>(attribute))
    out.push_back(view.getIndex());
  else if (auto list = dyn_cast<ArrayAttr>(attribute))
    for (Attribute element : list)
      collectOperands(element, out);
}

/// All values of an output, in order.
static void collectValues(const Output &output,
                          SmallVectorImpl<const Output *> &values) {
  if (output.kind == Output::Kind::Value)
    values.push_back(&output);
  for (const Output &element : output.list)
    collectValues(element, values);
}

namespace {

/// A call's outputs, numbered as results.
class OutputNumbering {
public:
  OutputNumbering(MLIRContext *context) : context(context) {}
  Attribute number(const Output &output) {
    switch (output.kind) {
    case Output::Kind::None:
      return graph::NoneAttr::get(context);
    case Output::Kind::Value:
      values.push_back(&output);
      return graph::OperandAttr::get(context, values.size() - 1);
    case Output::Kind::List: {
      SmallVector<Attribute> elements;
      for (const Output &element : output.list)
        elements.push_back(number(element));
      return ArrayAttr::get(context, elements);
    }
    }
    return {};
  }
  SmallVector<const Output *> values;

private:
  MLIRContext *context;
};

} // namespace

/// "item:2:size:0" -> the member's result and "size:0".
static std::string resolveBindingPath(StringRef path, const Output &output,
                                      ArrayRef<const Output *> values,
                                      int64_t &result) {
  const Output *member = &output;
  while (path.consume_front("item:")) {
    auto [number, rest] = path.split(':');
    size_t index = 0;
    if (number.getAsInteger(10, index) || index >= member->list.size())
      throw BuildError("an unbacked symbol is bound by a member that the "
                       "result does not have: " +
                       path);
    member = &member->list[index];
    path = rest;
  }
  // A boolean counts as 0 or 1 in any case.
  path.consume_back(":bool");
  if (path.contains('/'))
    throw BuildError("an unbacked symbol is bound as a quotient (" + path +
                     "), which is not supported");
  auto found = llvm::find(values, member);
  if (found == values.end())
    throw BuildError(
        "an unbacked symbol is bound by a result that is no value");
  result = found - values.begin();
  return path.str();
}

void FunctionBuilder::bindSymbols(Call &call, const Node &node,
                                  ArrayRef<Output> outputs,
                                  ArrayRef<const Output *> values,
                                  SmallVectorImpl<Attribute> &binds) {
  MLIRContext *context = builder.getContext();
  auto addBind = [&](StringRef symbol, int64_t result, StringRef path) {
    binds.push_back(graph::BindAttr::get(context, symbol, result, path));
    scope.insert(symbol.str());
  };

  for (const auto &[symbol, outputIndex, path] : node.unbackedBindings) {
    // Wrappers have outputs of their own before those of the operator.
    int64_t index = outputIndex - static_cast<int64_t>(node.outputs.size()) +
                    static_cast<int64_t>(outputs.size());
    if (&outputs.front() == &node.outputs.front())
      index = outputIndex;
    if (index < 0 || index >= static_cast<int64_t>(outputs.size()) ||
        scope.count(symbol))
      continue;
    int64_t result = 0;
    std::string place =
        resolveBindingPath(path, outputs[index], values, result);
    addBind(symbol, result, place);
  }

  // What the reader could not say: an exported program does not record where
  // symbols are bound. A symbol that is new here is bound where it is bare.
  SymbolSet missing;
  auto note = [&](const SymExpr &expr) {
    SymbolSet names;
    expr.collectSymbols(names);
    for (const std::string &name : names)
      if (!scope.count(name))
        missing.insert(name);
  };
  for (auto [result, output] : llvm::enumerate(values)) {
    const ValueMeta &meta = metaOf(output->name);
    auto bindBare = [&](const SymExpr &expr, const Twine &path) {
      if (expr.isSymbol() && !scope.count(expr.name()))
        addBind(expr.name(), result, path.str());
    };
    if (meta.kind == ValueMeta::Kind::Tensor) {
      for (auto [dim, size] : llvm::enumerate(meta.tensor.sizes))
        bindBare(size, "size:" + Twine(dim));
      for (auto [dim, stride] : llvm::enumerate(meta.tensor.strides))
        bindBare(stride, "stride:" + Twine(dim));
      // Where a slice from a number of the data begins: assertions use it.
      bindBare(meta.tensor.storageOffset, "offset");
    } else if (meta.kind == ValueMeta::Kind::SymBool) {
      // A boolean is traced as "its 0 or 1 equals 1".
      if (meta.expr.kind() == SymExpr::Kind::Eq)
        for (const SymExpr &side : meta.expr.operands())
          bindBare(side, "value");
      else
        bindBare(meta.expr, "value");
    } else if (meta.kind != ValueMeta::Kind::Object &&
               meta.kind != ValueMeta::Kind::None) {
      bindBare(meta.expr, "value");
    }
  }
  for (const Output *output : values) {
    const ValueMeta &meta = metaOf(output->name);
    if (meta.kind == ValueMeta::Kind::Tensor) {
      llvm::for_each(meta.tensor.sizes, note);
      llvm::for_each(meta.tensor.strides, note);
    } else if (meta.kind != ValueMeta::Kind::Object &&
               meta.kind != ValueMeta::Kind::None) {
      note(meta.expr);
    }
  }
  if (!missing.empty())
    throw BuildError("its result depends on the symbol '" + *missing.begin() +
                     "', whose value no input and no result determines");
}

/// Adds `intarsia.numbers`: what the fake implementation said of each output
/// that is a number. The program was traced with it, so it has to be true.
void FunctionBuilder::addNumbers(graph::CallOp op,
                                 ArrayRef<const Output *> outputs) {
  if (!op.isObservable())
    return; // PyTorch's own
  SmallVector<Attribute> numbers(outputs.size(), builder.getUnitAttr());
  bool any = false;
  for (auto [number, output] : llvm::zip_equal(numbers, outputs)) {
    const ValueMeta &meta = metaOf(output->name);
    bool isNumber = meta.kind == ValueMeta::Kind::SymInt ||
                    meta.kind == ValueMeta::Kind::SymFloat ||
                    meta.kind == ValueMeta::Kind::SymBool;
    // A bare symbol that the call binds is whatever it returns.
    if (!isNumber || meta.expr.isSymbol())
      continue;
    useSymbols(meta.expr);
    number = graph::ExprAttr::get(builder.getContext(), meta.expr);
    any = true;
  }
  if (any)
    op->setAttr("intarsia.numbers", builder.getArrayAttr(numbers));
}

FunctionBuilder::CallResults
FunctionBuilder::finishCall(Call &call, const Node &node,
                            ArrayRef<Output> outputs) {
  MLIRContext *context = builder.getContext();
  const OperatorFacts &facts = call.facts;
  if (call.schema && outputs.size() != call.schema->returns.size()) {
    // Readers may write "nothing is returned" as one None.
    if (outputs.size() == 1 && outputs[0].kind == Output::Kind::None)
      outputs = {};
    if (outputs.size() != call.schema->returns.size())
      throw BuildError("has " + Twine(outputs.size()) +
                       " outputs in the program and " +
                       Twine(call.schema->returns.size()) +
                       " in its schema: " + call.schema->schema);
  }

  numberOperands(call);
  for (size_t argument : facts.mutated) {
    SmallVector<int64_t> written;
    collectOperands(call.args[argument], written);
    for (int64_t index : written)
      if (!llvm::is_contained(call.mutates, index))
        call.mutates.push_back(index);
  }

  for (Value value : call.written)
    if (auto place = call.operandIndex.find(value);
        place != call.operandIndex.end() &&
        !llvm::is_contained(call.mutates, place->second))
      call.mutates.push_back(place->second);

  // Results. A return that is a mutated argument is no result of its own.
  OutputNumbering numbering(context);
  SmallVector<Attribute> returnAttrs;
  SmallVector<std::pair<const Output *, size_t>> tied;
  SmallVector<int64_t> views;
  for (auto [index, output] : llvm::enumerate(outputs)) {
    bool isTied = call.schema && facts.returns[index].tied &&
                  output.kind != Output::Kind::None;
    if (isTied) {
      tied.emplace_back(&output, *facts.returns[index].tied);
      returnAttrs.push_back(UnitAttr::get(context));
      continue;
    }
    returnAttrs.push_back(numbering.number(output));
    int64_t source = -1;
    if (call.schema)
      for (size_t argument : facts.returns[index].views) {
        SmallVector<int64_t> operands;
        collectOperands(call.args[argument], operands);
        if (!operands.empty() && source < 0)
          source = operands.front();
      }
    // Member i of a list of views of a list is a view of its member i.
    for (size_t i = views.size(); i < numbering.values.size(); ++i) {
      int64_t member = source;
      if (source >= 0 && output.kind == Output::Kind::List)
        for (size_t argument : facts.returns[index].views)
          if (auto list = dyn_cast<ArrayAttr>(call.args[argument]);
              list && list.size() == output.list.size()) {
            SmallVector<int64_t> operands;
            size_t place = i + output.list.size() - numbering.values.size();
            collectOperands(list[place], operands);
            if (operands.size() == 1)
              member = operands.front();
          }
      // It can only be the argument if it is of its kind.
      if (member >= 0 && facts.returns[index].isSame) {
        auto type =
            dyn_cast<graph::TensorType>(call.operands[member].getType());
        const TensorMeta &meta = metaOf(numbering.values[i]->name).tensor;
        if (!type || type.getDtype() != meta.dtype ||
            type.getDevice() != meta.device)
          member = -1;
      }
      views.push_back(member);
    }
  }
  SmallVector<Attribute> binds;
  if (!outputs.empty())
    bindSymbols(call, node, outputs, numbering.values, binds);

  SmallVector<Type> outputTypes;
  for (const Output *output : numbering.values)
    outputTypes.push_back(typeOf(metaOf(output->name)));
  CallResults results;
  results.op = createCall(call, outputTypes, returnAttrs, views, binds);
  if (!node.autocast.empty())
    results.op->setAttr("intarsia.autocast",
                        builder.getStringAttr(node.autocast));

  addNumbers(results.op, numbering.values);

  for (auto [index, updated] :
       llvm::zip_equal(call.mutates, results.op.getUpdated()))
    results.updated[index] = updated;
  for (auto [output, value] :
       llvm::zip_equal(numbering.values, results.op.getOutputs())) {
    const ValueMeta &meta = metaOf(output->name);
    Binding binding;
    binding.kind = meta.kind;
    if (meta.kind == ValueMeta::Kind::SymInt ||
        meta.kind == ValueMeta::Kind::SymFloat ||
        meta.kind == ValueMeta::Kind::SymBool)
      binding.expr = meta.expr;
    else
      binding.value = value;
    bind(output->name, binding);
  }
  for (auto [output, argument] : tied) {
    SmallVector<int64_t> operands;
    collectOperands(call.args[argument], operands);
    SmallVector<const Output *> members;
    collectValues(*output, members);
    if (operands.size() != members.size())
      throw BuildError("returns a mutated argument that it was not given");
    for (auto [member, index] : llvm::zip_equal(members, operands)) {
      Binding binding;
      binding.kind = ValueMeta::Kind::Tensor;
      binding.value = results.updated[index];
      if (isa<graph::ViewAttr>(call.args[argument]))
        continue; // AutoFunctionalized.cpp takes the view of the new base
      bind(member->name, binding);
    }
  }
  return results;
}

void FunctionBuilder::forwardUpdates(CallResults &results) {
  for (auto [index, updated] : results.updated)
    updates[results.op.getInputs()[index]] = updated;
}

/// Adds `intarsia.eager_strides` where the traced program gave an operand in
/// another layout than its value has in this graph.
static void addEagerStrides(graph::CallOp op,
                            const std::map<std::string, Value> &values,
                            ArrayRef<std::pair<std::string, size_t>> places,
                            const Node &node) {
  Builder builder(op.getContext());
  SmallVector<Attribute> strides(op.getInputs().size(), builder.getUnitAttr());
  bool differs = false;
  for (const auto &[name, place] : places) {
    auto found = values.find(name);
    if (found == values.end() || place >= node.eagerStrides.size())
      continue;
    auto type = dyn_cast<graph::TensorType>(found->second.getType());
    const std::vector<SymExpr> &eager = node.eagerStrides[place];
    if (!type || eager.size() != static_cast<size_t>(type.getRank()) ||
        llvm::equal(eager, type.getStrideExprs()))
      continue;
    for (auto [index, input] : llvm::enumerate(op.getInputs())) {
      if (input != found->second)
        continue;
      SmallVector<Attribute> exprs;
      for (const SymExpr &expr : eager)
        exprs.push_back(graph::ExprAttr::get(op.getContext(), expr));
      strides[index] = builder.getArrayAttr(exprs);
      differs = true;
    }
  }
  if (differs)
    op->setAttr("intarsia.eager_strides", builder.getArrayAttr(strides));
}

/// The names of the values in an argument, in order.
static void collectNames(const Argument &argument,
                         SmallVectorImpl<std::string> &names) {
  if (argument.kind == Kind::Value)
    names.push_back(argument.text);
  for (const Argument &element : argument.list)
    collectNames(element, names);
}

void FunctionBuilder::buildOperator(const Node &node) {
  NamedArguments arguments(node.args.begin(), node.args.end());
  // Before the call: a write changes what the names mean.
  std::map<std::string, Value> values;
  SmallVector<std::pair<std::string, size_t>> places;
  if (!node.eagerStrides.empty()) {
    SmallVector<std::string> names;
    for (const auto &[name, argument] : arguments)
      collectNames(argument, names);
    size_t place = 0;
    for (const std::string &name : names) {
      const Binding &binding = lookup(name);
      if (!binding.value || !isa<graph::TensorType>(binding.value.getType()))
        continue;
      values[name] = latest(binding.value);
      places.emplace_back(name, place++);
    }
    if (place != node.eagerStrides.size())
      places.clear();
  }
  Call call;
  beginCall(call, node.target, arguments);
  // A program that was not functionalised does not record which custom
  // operators were registered as having effects.
  StringRef space = StringRef(node.target).split("::").first;
  if (!program.functional && space != "aten" && space != "prims")
    call.effectful = true;
  CallResults results = finishCall(call, node, node.outputs);
  addEagerStrides(results.op, values, places, node);
  forwardUpdates(results);
}

// --- Higher-order operators --------------------------------------------------

static void collectGraphs(const Argument &argument,
                          SmallVectorImpl<std::string> &graphs) {
  if (argument.kind == Kind::Graph)
    graphs.push_back(argument.text);
  for (const Argument &element : argument.list)
    collectGraphs(element, graphs);
}

void FunctionBuilder::buildHigherOrder(const Node &node,
                                       const std::string &target,
                                       const NamedArguments &arguments,
                                       ArrayRef<Output> outputs,
                                       bool effectful) {
  Call call;
  call.effectful = effectful;
  beginHigherOrder(call, node, target, arguments);
  finishCall(call, node, outputs);
}

/// A strict export (torch.export.export(..., strict=True)) records the dtypes
/// of an autocast region as they are without autocast, and so of all that is
/// computed of it. These operators tell; of the others the runtime's check
/// does.
static void checkAutocast(graph::CallOp call) {
  bool isCast =
      llvm::StringSwitch<bool>(call.getCallee())
          .Cases({"aten::linear", "aten::matmul", "aten::mm", "aten::bmm",
                  "aten::addmm", "aten::baddbmm", "aten::addbmm",
                  "aten::conv1d", "aten::conv2d", "aten::conv3d",
                  "aten::conv_transpose1d", "aten::conv_transpose2d.input",
                  "aten::conv_transpose3d.input",
                  "aten::scaled_dot_product_attention"},
                 true)
          .Default(false);
  if (!isCast || call.getOutputs().empty())
    return;
  auto type = dyn_cast<graph::TensorType>(call.getOutputs()[0].getType());
  if (!type || type.getDtype() != DType::F32)
    return;
  std::string place = describeLocation(call.getLoc());
  throw BuildError(
      "'" + call.getCallee() + "'" + (place.empty() ? "" : " (" + place + ")") +
      " is recorded to return float32, but under autocast it returns another "
      "dtype: torch.export.export(..., strict=True) records dtypes as if there "
      "were no autocast. Export with strict=False");
}

/// Autocast acts on the calls of a subgraph and of those that it calls.
static void markAutocast(Attribute attribute, ModuleOp module) {
  if (auto list = dyn_cast<ArrayAttr>(attribute))
    for (Attribute member : list)
      markAutocast(member, module);
  auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute);
  if (!symbol)
    return;
  auto function = module.lookupSymbol<func::FuncOp>(symbol);
  function->setAttr(autocastAttrName, UnitAttr::get(function.getContext()));
  function.walk([&](graph::CallOp call) {
    checkAutocast(call);
    if (call.getCallee() != "higher_order::wrap_with_autocast")
      for (Attribute argument : call.getArgs())
        markAutocast(argument, module);
  });
}

/// `given`: arguments that are converted already.
void FunctionBuilder::beginHigherOrder(
    Call &call, const Node &node, const std::string &target,
    const NamedArguments &arguments,
    const std::map<std::string, Attribute> &given) {
  HigherOrderCall named = nameHigherOrderArguments(node, target, arguments);
  // All subgraphs of one call take the same arguments, so they also take the
  // same captured symbols.
  SmallVector<std::string> graphs;
  for (const auto &[name, argument] : named.arguments)
    collectGraphs(argument, graphs);
  SymbolSet symbols;
  for (const std::string &name : graphs) {
    const std::vector<std::string> &own = module.capturedSymbols(name, scope);
    symbols.insert(own.begin(), own.end());
  }
  std::vector<std::string> captured(symbols.begin(), symbols.end());
  for (const std::string &name : graphs)
    module.setCapturedSymbols(name, captured);
  if (!captured.empty()) {
    if (named.symbolsFor == named.arguments.size()) {
      Argument list;
      list.kind = Kind::List;
      named.arguments.emplace_back("symbols", list);
    }
    for (const std::string &symbol : captured) {
      Argument argument;
      argument.kind = Kind::SymInt;
      argument.expr = SymExpr::symbol(symbol);
      named.arguments[named.symbolsFor].second.list.push_back(argument);
    }
  }

  call.callee = target;
  for (const auto &[name, argument] : named.arguments) {
    auto views = given.find(name);
    if (views == given.end()) {
      addArgument(call, name, convert(call, argument, ""));
      continue;
    }
    // Symbols that the subgraphs capture come after what was given.
    SmallVector<Attribute> members(cast<ArrayAttr>(views->second).getValue());
    if (!argument.list.empty())
      llvm::append_range(members, cast<ArrayAttr>(convert(call, argument, "")));
    addArgument(call, name, builder.getArrayAttr(members));
  }
  if (target == "higher_order::wrap_with_autocast" && call.args.size() > 2 &&
      call.args[2] == builder.getBoolAttr(true))
    for (Attribute argument : call.args)
      markAutocast(argument, function->getParentOfType<ModuleOp>());
}

// --- Nodes that are no calls -------------------------------------------------

/// Arithmetic on symbolic numbers: its result is an expression already.
static bool isSymbolicArithmetic(StringRef target) {
  return llvm::StringSwitch<bool>(target)
             .Cases({"aten::sym_size", "aten::sym_size.int", "aten::sym_stride",
                     "aten::sym_stride.int", "aten::sym_numel",
                     "aten::sym_storage_offset"},
                    true)
             .Default(false) ||
         target.starts_with("_operator::") || target.starts_with("math::") ||
         target.starts_with("builtins::") ||
         target.starts_with("torch::sym_") ||
         target.starts_with("torch::_sym_");
}

/// As a condition: a number counts as "not zero".
static SymExpr asCondition(const SymExpr &expr) {
  if (expr.isBoolean() || expr.asBool())
    return expr;
  if (std::optional<int64_t> value = expr.asInteger())
    return SymExpr::boolean(*value != 0);
  return SymExpr::make(SymExpr::Kind::Ne, {expr, SymExpr(0)});
}

static const Argument *findArgument(const Node &node, StringRef name,
                                    size_t position) {
  for (const auto &[given, argument] : node.args)
    if (!given.empty() && given == name)
      return &argument;
  if (position < node.args.size() && node.args[position].first.empty())
    return &node.args[position].second;
  return nullptr;
}

bool FunctionBuilder::buildSpecial(const Node &node) {
  StringRef target = node.target;
  // One that binds a symbol asks at run time: it is a call.
  if (isSymbolicArithmetic(target) && node.unbackedBindings.empty()) {
    for (const Output &output : node.outputs) {
      if (output.kind != Output::Kind::Value)
        throw BuildError("is Python code that does not return a number");
      const ValueMeta &meta = metaOf(output.name);
      if (meta.kind != ValueMeta::Kind::SymInt &&
          meta.kind != ValueMeta::Kind::SymFloat &&
          meta.kind != ValueMeta::Kind::SymBool)
        throw BuildError("is Python code that does not return a number");
      Binding binding;
      binding.kind = meta.kind;
      binding.expr = meta.expr;
      bind(output.name, binding);
    }
    return true;
  }

  auto assertThat = [&](const SymExpr &condition, StringRef message) {
    demand(builder, location, condition, message, /*isIndexError=*/false);
  };
  if (target == "aten::_assert_scalar") {
    const Argument *condition = findArgument(node, "self", 0);
    const Argument *message = findArgument(node, "assert_msg", 1);
    if (!condition || !message)
      throw BuildError("is not given its condition and its message");
    assertThat(asCondition(exprOf(*condition)), message->text);
    return true;
  }
  if (target == "aten::sym_constrain_range" ||
      target == "aten::sym_constrain_range_for_size") {
    const Argument *size = findArgument(node, "size", 0);
    if (!size)
      throw BuildError("is not given its number");
    SymExpr value = exprOf(*size);
    auto bound = [&](StringRef name, size_t position, bool isLower) {
      const Argument *limit = findArgument(node, name, position);
      if (!limit || limit->kind == Kind::None)
        return;
      SymExpr other = exprOf(*limit);
      std::vector<SymExpr> sides{other, value};
      if (!isLower)
        std::swap(sides[0], sides[1]);
      assertThat(SymExpr::make(SymExpr::Kind::Le, sides),
                 (value.str() +
                  (isLower ? " must be at least " : " must be at most ") +
                  other.str()));
    };
    bound("min", 1, true);
    bound("max", 2, false);
    return true;
  }
  // What it asserts of a tensor is checked of every value against its type.
  if (target == "aten::_assert_tensor_metadata")
    return true;
  // Autograd's business, and no write: the value stays what it is.
  if (target == "aten::detach_") {
    const Argument *self = findArgument(node, "self", 0);
    if (!self || node.outputs.size() != 1 ||
        node.outputs[0].kind != Output::Kind::Value)
      throw BuildError("takes a tensor and returns it");
    Binding binding;
    binding.kind = ValueMeta::Kind::Tensor;
    binding.value = valueOf(*self);
    bind(node.outputs[0].name, binding);
    return true;
  }
  // Order is kept without tokens.
  if (target == "prims::_make_token" || target == "prims::_sink_tokens") {
    for (const Output &output : node.outputs)
      if (output.kind == Output::Kind::Value)
        bind(output.name, Binding());
    return true;
  }
  // Reader B passes a Python callable for what only Python can run.
  if (!node.args.empty() && node.args[0].first == "callable" &&
      target.starts_with("higher_order::")) {
    buildHigherOrder(node, node.target,
                     NamedArguments(node.args.begin(), node.args.end()),
                     node.outputs, /*effectful=*/true);
    return true;
  }
  if (target == "higher_order::auto_functionalized" ||
      target == "higher_order::auto_functionalized_v2") {
    buildAutoFunctionalized(node, target.ends_with("_v2"));
    return true;
  }
  if (target == launchKernelOperator) {
    // What auto_functionalized would say of a mutating operator.
    Node wrapped = node;
    size_t place = 0;
    for (auto &[name, argument] : wrapped.args)
      if (name.empty())
        name = module.schema(node.target).arguments.at(place++).name;
    Argument op;
    op.kind = Kind::Operator;
    op.text = node.target;
    wrapped.args.insert(wrapped.args.begin(), {"", op});
    buildAutoFunctionalized(wrapped, /*isSecondVersion=*/false);
    return true;
  }
  if (target == "higher_order::with_effects") {
    buildWithEffects(node);
    return true;
  }
  if (target.starts_with("higher_order::")) {
    buildHigherOrder(node, node.target,
                     NamedArguments(node.args.begin(), node.args.end()),
                     node.outputs, /*effectful=*/false);
    return true;
  }
  if (!target.contains("::") || target.starts_with("torch::") ||
      target.starts_with("torch."))
    throw BuildError(
        "is a Python function, not a registered operator. Export the program "
        "with intarsia.export or run_decompositions({}), or wrap the function "
        "with torch.library.custom_op");
  return false;
}

/// with_effects(token, operator, arguments...) -> token, results...
void FunctionBuilder::buildWithEffects(const Node &node) {
  const Argument *op = findArgument(node, "", 1);
  if (!op || op->kind != Kind::Operator || node.outputs.empty())
    throw BuildError("does not name the operator that it calls");
  NamedArguments arguments(node.args.begin() + 2, node.args.end());
  ArrayRef<Output> outputs = ArrayRef(node.outputs).drop_front();

  // The new token is the old one: order is the order of the calls.
  if (const Output &token = node.outputs.front();
      token.kind == Output::Kind::Value) {
    Binding binding;
    binding.kind = ValueMeta::Kind::Object;
    if (const Argument &old = node.args[0].second; old.kind == Kind::Value)
      if (auto found = bindings.find(old.text); found != bindings.end())
        binding.value = found->second.value;
    bind(token.name, binding);
  }
  if (StringRef(op->text).starts_with("higher_order::")) {
    buildHigherOrder(node, op->text, arguments, outputs, /*effectful=*/true);
    return;
  }
  Call call;
  call.effectful = true;
  beginCall(call, op->text, arguments);
  CallResults results = finishCall(call, node, outputs);
  forwardUpdates(results);
}
