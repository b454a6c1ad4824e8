//===- AutoFunctionalized.cpp - Functionalised custom operators
//------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PyTorch wraps a mutating custom operator into
//
//   auto_functionalized(op, **arguments) -> results..., new value of each
//       mutated argument...
//   auto_functionalized_v2(op, **arguments, _x_base_index=0, _x_size=...,
//       _all_bases=[...]) -> results..., new value of each base...
//
// where the second form says of each mutated argument which base it is a view
// of, and how. Both become the direct call that the user wrote, which returns
// the new values (torch/_higher_order_ops/auto_functionalize.py has the
// encoding).
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;
using Kind = Argument::Kind;

static const Argument *find(const NamedArguments &arguments,
                            const std::string &name) {
  for (const auto &[given, argument] : arguments)
    if (given == name)
      return &argument;
  return nullptr;
}

static const Argument &require(const NamedArguments &arguments,
                               const std::string &name) {
  if (const Argument *argument = find(arguments, name))
    return *argument;
  throw BuildError("lacks the argument '" + name +
                   "' that tells how a mutated argument is a view");
}

static Argument symbolic(const SymExpr &expr) {
  Argument argument;
  argument.kind = Kind::SymInt;
  argument.expr = expr;
  return argument;
}

static Argument emptyList() {
  Argument list;
  list.kind = Kind::List;
  return list;
}

/// The argument as a view of its base: `prefix` is "_x" for the argument x, or
/// "_xs_2" for member 2 of the list xs.
Attribute FunctionBuilder::viewOfBase(Call &call,
                                      const NamedArguments &arguments,
                                      const std::string &prefix,
                                      ArrayRef<Argument> bases) {
  MLIRContext *context = builder.getContext();
  const Argument &index = require(arguments, prefix + "_base_index");
  if (index.kind == Kind::None)
    return graph::NoneAttr::get(context);
  if (index.kind != Kind::Int || index.integer < 0 ||
      index.integer >= static_cast<int64_t>(bases.size()))
    throw BuildError("refers to a base that it is not given");
  const Argument &baseArgument = bases[index.integer];
  Value base = valueOf(baseArgument);
  Attribute whole = operand(call, base);
  int64_t number = cast<graph::OperandAttr>(whole).getIndex();
  auto type = dyn_cast<graph::TensorType>(base.getType());
  if (!type)
    throw BuildError("mutates something that is no tensor");
  // PyTorch counts offsets from the storage's start; here they count from the
  // base's first element, as the storage offset is no part of a value.
  SymExpr baseOffset;
  if (auto meta = source.values.find(baseArgument.text);
      meta != source.values.end())
    baseOffset = meta->second.tensor.storageOffset;

  std::vector<SymExpr> sizes, strides;
  SymExpr offset;
  if (find(arguments, prefix + "_storage_offset")) {
    sizes = exprsOf(require(arguments, prefix + "_size"));
    strides = exprsOf(require(arguments, prefix + "_stride"));
    // The base's own offset may be a symbol that only the difference is free
    // of.
    const Argument &start = require(arguments, prefix + "_storage_offset");
    std::optional<SymExpr> absolute;
    if (start.kind == Kind::SymInt)
      absolute = start.expr;
    else if (start.kind == Kind::Value)
      absolute = lookup(start.text).expr;
    offset = (absolute ? *absolute : exprOf(start)) - baseOffset;
    useSymbols(offset);
  } else if (const Argument *dim = find(arguments, prefix + "_slice_dim")) {
    for (const SymExpr &size : type.getSizeExprs())
      sizes.push_back(size);
    for (const SymExpr &stride : type.getStrideExprs())
      strides.push_back(stride);
    if (dim->kind != Kind::Int || dim->integer < 0 ||
        dim->integer >= type.getRank())
      throw BuildError("slices a dimension that its base does not have");
    SymExpr start = exprOf(require(arguments, prefix + "_slice_start"));
    SymExpr end = exprOf(require(arguments, prefix + "_slice_end"));
    sizes[dim->integer] = end - start;
    // The start counts from the storage's start, too.
    offset = start * strides[dim->integer] - baseOffset;
    useSymbols(offset);
  } else {
    // The base itself, or an alias of all of it.
    return whole;
  }
  if (sizes.size() != strides.size())
    throw BuildError("a view of its base has as many sizes as strides");
  auto attributes = [&](ArrayRef<SymExpr> exprs) {
    SmallVector<graph::ExprAttr> attrs;
    for (const SymExpr &expr : exprs)
      attrs.push_back(graph::ExprAttr::get(context, expr));
    return attrs;
  };
  return graph::ViewAttr::get(context, number, attributes(sizes),
                              attributes(strides),
                              graph::ExprAttr::get(context, offset));
}

/// An out argument that the wrapper only describes.
Value FunctionBuilder::emptyStrided(const NamedArguments &arguments,
                                    const std::string &name) {
  NamedArguments empty;
  for (const char *field : {"size", "stride", "dtype", "device"})
    empty.emplace_back(field, require(arguments, "_" + name + "_" + field));
  ValueMeta meta;
  meta.kind = ValueMeta::Kind::Tensor;
  meta.tensor.sizes = exprsOf(empty[0].second);
  meta.tensor.strides = exprsOf(empty[1].second);
  meta.tensor.dtype = empty[2].second.dtype;
  meta.tensor.device = empty[3].second.text;
  if (meta.tensor.sizes.size() != meta.tensor.strides.size())
    throw BuildError("an out argument has as many sizes as strides");

  Call call;
  beginCall(call, "aten::empty_strided", empty);
  return createCall(call, typeOf(meta)).getOutputs().front();
}

/// Binds the names of the new values. By value, as the call's operands have
/// been numbered anew.
void FunctionBuilder::bindBases(const Call &call, const CallResults &results,
                                ArrayRef<Output> news,
                                ArrayRef<Argument> bases) {
  for (auto [output, argument] : llvm::zip(news, bases)) {
    if (output.kind != Output::Kind::Value)
      continue;
    Value base = valueOf(argument);
    Binding binding;
    binding.kind = ValueMeta::Kind::Tensor;
    // A base that no argument refers to keeps its value.
    auto place = call.operandIndex.find(base);
    auto updated = place == call.operandIndex.end()
                       ? results.updated.end()
                       : results.updated.find(place->second);
    binding.value = updated == results.updated.end() ? base : updated->second;
    bind(output.name, binding);
  }
}

/// Control flow whose subgraphs write into their arguments:
///
///   auto_functionalized_v2(cond, pred=..., true_fn=..., false_fn=...,
///       operand1=..., _operand0_base_index=0, _all_bases=[...])
///   auto_functionalized_v2(invoke_subgraph, subgraph=..., identifier=...,
///       arg1=..., _arg0_base_index=0, _all_bases=[...])
void FunctionBuilder::buildMutatingControlFlow(const Node &node,
                                               const std::string &target,
                                               const NamedArguments &encoded) {
  bool isCond = target == "higher_order::cond";
  if (!isCond && target != "higher_order::invoke_subgraph")
    throw BuildError("a subgraph of " + target +
                     " writes into its arguments, which is supported of "
                     "torch.cond and nested_compile_region only; write it "
                     "without in-place operators");
  std::vector<Argument> bases = require(encoded, "_all_bases").list;
  NamedArguments plain;
  for (const char *name :
       {"pred", "true_fn", "false_fn", "subgraph", "identifier"})
    if (const Argument *argument = find(encoded, name))
      plain.emplace_back(name, *argument);

  Call call;
  SmallVector<Attribute> operands;
  for (size_t i = 0;; ++i) {
    std::string name = (isCond ? "operand" : "arg") + std::to_string(i);
    if (const Argument *argument = find(encoded, name))
      operands.push_back(convert(call, *argument, ""));
    else if (find(encoded, "_" + name + "_base_index"))
      operands.push_back(viewOfBase(call, encoded, "_" + name, bases));
    else
      break;
  }
  if (isCond)
    plain.emplace_back("operands", emptyList());
  beginHigherOrder(call, node, target, plain,
                   {{"operands", builder.getArrayAttr(operands)}});

  if (node.outputs.size() < bases.size())
    throw BuildError("has fewer outputs than mutated arguments");
  ArrayRef<Output> own = ArrayRef(node.outputs).drop_back(bases.size());
  for (const Argument &base : bases)
    call.written.push_back(valueOf(base));
  CallResults results = finishCall(call, node, own);
  bindBases(call, results, ArrayRef(node.outputs).take_back(bases.size()),
            bases);
}

void FunctionBuilder::buildAutoFunctionalized(const Node &node,
                                              bool isSecondVersion) {
  if (node.args.empty() || node.args[0].second.kind != Kind::Operator)
    throw BuildError("does not name the operator that it calls");
  const std::string &target = node.args[0].second.text;
  NamedArguments encoded(node.args.begin() + 1, node.args.end());
  if (StringRef(target).starts_with("higher_order::")) {
    buildMutatingControlFlow(node, target, encoded);
    return;
  }
  const OperatorSchema &schema = module.schema(target);
  bool isOut = llvm::is_contained(schema.tags, "out");

  // The plain arguments are those that the schema knows.
  NamedArguments plain;
  for (const auto &[name, argument] : encoded)
    for (const SchemaArgument &expected : schema.arguments)
      if (expected.name == name && !expected.isWrite)
        plain.emplace_back(name, argument);

  Call call;
  std::map<std::string, Attribute> given;
  std::vector<Argument> bases;
  if (isSecondVersion)
    if (const Argument *list = find(encoded, "_all_bases"))
      bases = list->list;
  for (const SchemaArgument &argument : schema.arguments) {
    if (!argument.isWrite)
      continue;
    const std::string &name = argument.name;
    if (!isSecondVersion) {
      const Argument *value = find(encoded, name);
      given[name] = convert(call, value ? *value : Argument(), argument.type);
    } else if (isOut) {
      given[name] = operand(call, emptyStrided(encoded, name));
    } else if (const Argument *length = find(encoded, "_" + name + "_length")) {
      if (length->kind == Kind::None) {
        given[name] = graph::NoneAttr::get(builder.getContext());
        continue;
      }
      SmallVector<Attribute> members;
      for (int64_t i = 0; i < length->integer; ++i)
        members.push_back(viewOfBase(
            call, encoded, "_" + name + "_" + std::to_string(i), bases));
      given[name] = builder.getArrayAttr(members);
    } else {
      given[name] = viewOfBase(call, encoded, "_" + name, bases);
    }
  }

  beginCall(call, target, plain, given);

  // The results are the operator's, then the new values.
  size_t updatedCount = isSecondVersion ? bases.size() : given.size();
  ArrayRef<Output> outputs = node.outputs;
  if (isOut && isSecondVersion)
    updatedCount = 0; // an out operator returns its out arguments alone
  if (outputs.size() < updatedCount)
    throw BuildError("has fewer outputs than mutated arguments");
  ArrayRef<Output> own = outputs.drop_back(updatedCount);
  ArrayRef<Output> news = outputs.take_back(updatedCount);
  CallResults results = finishCall(call, node, own);

  // A returned mutated argument that is a view of its base.
  for (auto [index, output] : llvm::enumerate(own)) {
    if (index >= call.facts.returns.size() || !call.facts.returns[index].tied ||
        output.kind != Output::Kind::Value)
      continue;
    auto view =
        dyn_cast<graph::ViewAttr>(call.args[*call.facts.returns[index].tied]);
    if (!view)
      continue;
    Value base = results.updated[view.getIndex()];
    // as_strided counts from the storage's start again.
    SymExpr offset = view.getOffset().getExpr();
    for (const Argument &argument : bases)
      if (valueOf(argument) == call.operands[view.getIndex()])
        offset = offset + metaOf(argument.text).tensor.storageOffset;
    auto list = [](ArrayRef<graph::ExprAttr> exprs) {
      Argument numbers = emptyList();
      for (graph::ExprAttr expr : exprs)
        numbers.list.push_back(symbolic(expr.getExpr()));
      return numbers;
    };
    Call strided;
    std::map<std::string, Attribute> self{{"self", operand(strided, base)}};
    beginCall(strided, "aten::as_strided",
              {{"size", list(view.getSizes())},
               {"stride", list(view.getStrides())},
               {"storage_offset", symbolic(offset)}},
              self);
    Node plainNode;
    plainNode.outputs = {output};
    finishCall(strided, plainNode, plainNode.outputs);
  }

  if (isSecondVersion) {
    bindBases(call, results, news, ArrayRef(bases).take_back(news.size()));
    return;
  }
  size_t next = 0;
  for (const SchemaArgument &argument : schema.arguments) {
    if (!argument.isWrite)
      continue;
    const Output &output = news[next++];
    const Argument *value = find(encoded, argument.name);
    if (output.kind == Output::Kind::Value && value)
      bindBases(call, results, output, *value);
    if (output.kind != Output::Kind::List)
      continue;
    if (!value || value->list.size() != output.list.size())
      throw BuildError("returns another number of new values than the list '" +
                       argument.name + "' has members");
    bindBases(call, results, output.list, value->list);
  }
}
