//===- FunctionBuilder.cpp - A graph as a function
//-------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The frame of each function: its arguments, the order of its nodes, what it
// returns, and the attributes that describe both (Import.h lists them).
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"
#include "Location.h"
#include "PythonGuard.h"
#include "passes/Normalise/AliasSets.h"

#include <optional>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;

FunctionBuilder::FunctionBuilder(ModuleBuilder &module, const Graph &source,
                                 bool isMain, std::vector<std::string> symbols)
    : module(module), program(module.program), source(source), isMain(isMain),
      captured(std::move(symbols)), builder(module.context),
      location(UnknownLoc::get(module.context)) {}

func::FuncOp FunctionBuilder::build(StringRef name, OpBuilder &moduleBuilder) {
  function = func::FuncOp::create(moduleBuilder, location, name,
                                  builder.getFunctionType({}, {}));
  if (!isMain)
    function.setPrivate();
  builder.setInsertionPointToStart(function.addEntryBlock());
  addArguments();
  for (const Node &node : source.nodes) {
    location = nodeLocation(node, module.context);
    try {
      buildNode(node);
    } catch (const BuildError &error) {
      std::string place = describeLocation(location);
      throw BuildError("operator '" + node.target + "' (node '" + node.name +
                       "'" + (place.empty() ? "" : ", " + place) +
                       "): " + error.what());
    }
  }
  location = UnknownLoc::get(module.context);
  buildReturn();
  addSymbolAttributes();
  if (isMain)
    addGuards();
  return function;
}

void FunctionBuilder::buildNode(const Node &node) {
  if (!buildSpecial(node))
    buildOperator(node);
}

// --- Arguments ---------------------------------------------------------------

void FunctionBuilder::addArguments() {
  Block &block = function.getBody().front();
  if (isMain && program.inputs.size() != source.inputs.size())
    throw BuildError("the program describes " + Twine(program.inputs.size()) +
                     " inputs, its graph has " + Twine(source.inputs.size()));
  auto bindIfBare = [&](const SymExpr &expr) {
    if (expr.isSymbol())
      scope.insert(expr.name());
  };
  SmallVector<const ValueMeta *> derived;
  for (auto [index, name] : llvm::enumerate(source.inputs)) {
    ValueMeta meta = metaOf(name);
    // PyTorch traces a token as an empty tensor and passes None.
    if (isMain && program.inputs[index].kind == InputSpec::Kind::Token)
      meta.kind = ValueMeta::Kind::Object;
    Binding binding;
    binding.kind = meta.kind;
    Value argument = block.addArgument(typeOf(meta), location);
    if (meta.kind == ValueMeta::Kind::Tensor) {
      llvm::for_each(meta.tensor.sizes, bindIfBare);
      llvm::for_each(meta.tensor.strides, bindIfBare);
      derived.push_back(&metaOf(name));
      binding.value = argument;
    } else if (meta.kind == ValueMeta::Kind::SymInt ||
               meta.kind == ValueMeta::Kind::SymFloat ||
               meta.kind == ValueMeta::Kind::SymBool) {
      bindIfBare(meta.expr);
      binding.expr = meta.expr;
    } else if (meta.kind == ValueMeta::Kind::Object) {
      binding.value = argument;
    }
    // None: the graph knows that it is None.
    try {
      bind(name, binding);
    } catch (const BuildError &error) {
      throw BuildError("input '" + name + "': " + error.what());
    }
  }
  for (const std::string &symbol : captured) {
    block.addArgument(builder.getIndexType(), location);
    scope.insert(symbol);
  }
  // Export's derived dimensions: 8*s6 determines s6. Of a backward graph's
  // s0*s1 the product may be all that matters. The plan solves these or says
  // that it can't.
  if (isMain)
    for (const ValueMeta *meta : derived)
      for (const SymExpr &size : meta->tensor.sizes) {
        SymbolSet names;
        size.collectSymbols(names);
        scope.insert(names.begin(), names.end());
      }
  function.setType(builder.getFunctionType(block.getArgumentTypes(), {}));
}

static StringRef kindName(InputSpec::Kind kind) {
  switch (kind) {
  case InputSpec::Kind::UserInput:
    return "user";
  case InputSpec::Kind::Parameter:
    return "parameter";
  case InputSpec::Kind::Buffer:
    return "buffer";
  case InputSpec::Kind::Constant:
    return "constant";
  case InputSpec::Kind::Object:
    return "object";
  case InputSpec::Kind::Token:
    return "token";
  case InputSpec::Kind::ConstantInput:
    return "constant_input";
  }
  return "";
}

void FunctionBuilder::addArgumentAttributes() {
  MLIRContext *context = builder.getContext();
  // Weights share storage when their bytes are the same record or object.
  std::map<std::pair<std::string, int64_t>, size_t> firstOfRecord;
  llvm::StringMap<const Weight *> weights;
  if (isMain && !program.functional)
    for (const Weight &weight : program.weights)
      weights[weight.target] = &weight;
  for (auto [index, name] : llvm::enumerate(source.inputs)) {
    NamedAttrList attributes;
    attributes.append("intarsia.name", builder.getStringAttr(name));
    const ValueMeta &meta = metaOf(name);
    bool isNumber = meta.kind == ValueMeta::Kind::SymInt ||
                    meta.kind == ValueMeta::Kind::SymFloat ||
                    meta.kind == ValueMeta::Kind::SymBool;
    if (isNumber)
      attributes.append("intarsia.expr",
                        graph::ExprAttr::get(context, meta.expr));
    InputSpec spec;
    if (isMain)
      spec = program.inputs[index];
    attributes.append("intarsia.kind",
                      builder.getStringAttr(kindName(spec.kind)));
    if (!spec.target.empty())
      attributes.append("intarsia.target", builder.getStringAttr(spec.target));
    if (const Weight *weight = weights.lookup(spec.target))
      if (auto [first, isNew] = firstOfRecord.try_emplace(
              {weight->record, weight->object}, index);
          !isNew)
        attributes.append(sameStorageAttrName,
                          builder.getI64IntegerAttr(first->second));
    if (spec.isStatic)
      attributes.append("intarsia.static", builder.getUnitAttr());
    if (spec.kind == InputSpec::Kind::ConstantInput)
      if (Attribute value = constantAttribute(spec.constant, "", context))
        attributes.append("intarsia.constant", value);
    function.setArgAttrs(index, attributes.getDictionary(context));
  }
  for (auto [index, symbol] : llvm::enumerate(captured)) {
    unsigned argument = source.inputs.size() + index;
    function.setArgAttr(argument, "intarsia.kind",
                        builder.getStringAttr("symbol"));
    function.setArgAttr(argument, "intarsia.expr",
                        graph::ExprAttr::get(context, SymExpr::symbol(symbol)));
  }
}

// --- Results -----------------------------------------------------------------

static StringRef kindName(OutputSpec::Kind kind) {
  switch (kind) {
  case OutputSpec::Kind::UserOutput:
    return "user";
  case OutputSpec::Kind::BufferMutation:
    return "buffer_mutation";
  case OutputSpec::Kind::InputMutation:
    return "input_mutation";
  case OutputSpec::Kind::ParameterMutation:
    return "parameter_mutation";
  case OutputSpec::Kind::Token:
    return "token";
  case OutputSpec::Kind::Loss:
    return "loss";
  case OutputSpec::Kind::Gradient:
    return "gradient";
  }
  return "";
}

void FunctionBuilder::buildReturn() {
  MLIRContext *context = builder.getContext();
  if (isMain && program.outputs.size() != source.outputs.size())
    throw BuildError("the program describes " + Twine(program.outputs.size()) +
                     " outputs, its graph has " + Twine(source.outputs.size()));
  SmallVector<Value> results;
  SmallVector<Attribute> returns;
  SmallVector<OutputSpec> specs;
  auto addResult = [&](Value value, const OutputSpec &spec) {
    returns.push_back(graph::OperandAttr::get(context, results.size()));
    results.push_back(value);
    specs.push_back(spec);
  };
  for (auto [index, output] : llvm::enumerate(source.outputs)) {
    OutputSpec spec;
    if (isMain)
      spec = program.outputs[index];
    try {
      if (Attribute constant = constantAttribute(output, "", context)) {
        returns.push_back(constant);
        continue;
      }
      ValueMeta::Kind kind = ValueMeta::Kind::SymInt;
      std::optional<SymExpr> expr;
      if (output.kind == Argument::Kind::Value) {
        const Binding &binding = lookup(output.text);
        if (binding.value) {
          addResult(latest(binding.value), spec);
          continue;
        }
        kind = binding.kind;
        expr = binding.expr;
      } else if (output.kind != Argument::Kind::List &&
                 output.kind != Argument::Kind::Graph) {
        expr = output.expr;
        if (output.kind == Argument::Kind::SymFloat)
          kind = ValueMeta::Kind::SymFloat;
        else if (output.kind == Argument::Kind::SymBool)
          kind = ValueMeta::Kind::SymBool;
      } else {
        throw BuildError("is neither a value nor a constant");
      }
      if (expr)
        addResult(sizeValue(*expr, kind), spec);
      else
        returns.push_back(graph::NoneAttr::get(context));
    } catch (const BuildError &error) {
      throw BuildError("output " + Twine(index) +
                       " of the program: " + error.what());
    }
  }

  // What is written to and by whom.
  SmallVector<unsigned> written;
  Block::BlockArgListType arguments = function.getArguments();
  if (program.functional) {
    for (BlockArgument argument : arguments) {
      Value last = latest(argument);
      if (last == argument)
        continue;
      written.push_back(argument.getArgNumber());
      OutputSpec spec;
      spec.kind = OutputSpec::Kind::InputMutation;
      spec.target = source.inputs[argument.getArgNumber()];
      addResult(last, spec);
      returns.pop_back(); // it is no output of the graph
    }
  }
  func::ReturnOp::create(builder, location, results);
  SmallVector<Type> types;
  for (Value value : results)
    types.push_back(value.getType());
  function.setType(builder.getFunctionType(
      function.getBody().front().getArgumentTypes(), types));

  addArgumentAttributes();
  if (!program.functional)
    written = markAliasing(function);
  if (isMain)
    for (auto [index, input] : llvm::enumerate(program.inputs))
      for (const OutputSpec &output : program.outputs) {
        bool isWeight = output.kind == OutputSpec::Kind::BufferMutation ||
                        output.kind == OutputSpec::Kind::ParameterMutation;
        bool isInput = output.kind == OutputSpec::Kind::InputMutation;
        if ((isWeight && input.target == output.target) ||
            (isInput && input.name == output.target))
          written.push_back(index);
      }
  for (unsigned index : written)
    function.setArgAttr(index, "intarsia.mutated", builder.getUnitAttr());

  function->setAttr("intarsia.returns", builder.getArrayAttr(returns));
  for (auto [index, spec] : llvm::enumerate(specs)) {
    // Of a subgraph only what it writes matters: its caller sees that.
    if (!isMain && spec.kind != OutputSpec::Kind::InputMutation)
      continue;
    function.setResultAttr(index, "intarsia.output",
                           builder.getStringAttr(kindName(spec.kind)));
    if (!spec.target.empty())
      function.setResultAttr(index, "intarsia.target",
                             builder.getStringAttr(spec.target));
    if (!spec.userVisible)
      function.setResultAttr(index, "intarsia.hidden_strides",
                             builder.getUnitAttr());
  }
}

// --- Symbols and guards ------------------------------------------------------

void FunctionBuilder::addSymbolAttributes() {
  NamedAttrList symbols;
  for (const std::string &name : scope) {
    Attribute min = builder.getUnitAttr(), max = builder.getUnitAttr();
    for (const RangeConstraint &range : program.ranges) {
      if (range.symbol != name)
        continue;
      if (range.min)
        min = builder.getI64IntegerAttr(*range.min);
      if (range.max)
        max = builder.getI64IntegerAttr(*range.max);
    }
    symbols.append(name, builder.getArrayAttr({min, max}));
  }
  if (!symbols.empty())
    function->setAttr("intarsia.symbols",
                      symbols.getDictionary(builder.getContext()));
}

void FunctionBuilder::addGuards() {
  std::map<std::string, size_t> paths =
      inputPaths(program.inSpec, program.argumentNames);
  SmallVector<const ValueMeta *> userInputs;
  for (const InputSpec &input : program.inputs)
    if (input.kind == InputSpec::Kind::UserInput ||
        input.kind == InputSpec::Kind::ConstantInput)
      userInputs.push_back(&metaOf(input.name));
  // A strict export calls leaf i of the arguments, None and constants included,
  // flat_args[i]; an argument of this name has it in `paths`.
  for (size_t i = 0; i < userInputs.size(); ++i)
    paths.emplace("['flat_args'][" + std::to_string(i) + "]", i);
  auto resolve = [&](std::string_view path) -> const ValueMeta * {
    auto found = paths.find(std::string(path));
    if (found == paths.end() || found->second >= userInputs.size())
      return nullptr;
    return userInputs[found->second];
  };

  SmallVector<Attribute> guards, texts;
  auto add = [&](const SymExpr &condition, const Twine &text) {
    if (condition.asBool() == true)
      return;
    useSymbols(condition);
    Attribute canonical = builder.getStringAttr(condition.str());
    if (llvm::is_contained(guards, canonical))
      return;
    guards.push_back(canonical);
    texts.push_back(builder.getStringAttr(text));
  };
  for (const std::string &text : program.guards) {
    std::string error;
    std::optional<SymExpr> guard = parsePythonGuard(text, resolve, error);
    if (!guard)
      throw BuildError("the program's guard '" + text +
                       "' is not understood: " + error +
                       ". Constrain the dynamic shapes at export such that it "
                       "is not needed (torch.export.Dim)");
    add(*guard, text);
  }
  // The range of a derived dimension, "8*s6", is a condition like any other.
  for (const RangeConstraint &range : program.ranges) {
    if (scope.count(range.symbol))
      continue;
    std::string error;
    std::optional<SymExpr> expr =
        parsePythonGuard(range.symbol, resolve, error);
    SymbolSet names;
    if (expr)
      expr->collectSymbols(names);
    // Of a symbol that the graph has no use for there is nothing to check.
    if (!expr || expr->isSymbol() ||
        llvm::any_of(
            names, [&](const std::string &name) { return !scope.count(name); }))
      continue;
    if (range.min)
      add(SymExpr::make(SymExpr::Kind::Le, {SymExpr(*range.min), *expr}),
          range.symbol + " >= " + Twine(*range.min));
    if (range.max)
      add(SymExpr::make(SymExpr::Kind::Le, {*expr, SymExpr(*range.max)}),
          range.symbol + " <= " + Twine(*range.max));
  }
  if (guards.empty())
    return;
  function->setAttr("intarsia.guards", builder.getArrayAttr(guards));
  function->setAttr("intarsia.guard_texts", builder.getArrayAttr(texts));
}
