//===- Values.cpp - Arguments and values
//-----------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// How an argument of a node becomes an attribute or an operand of a call: names
// are looked up, symbolic numbers become `intarsia.size`, constants take the
// form that the schema's type asks for.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;
using Kind = Argument::Kind;

// --- Constants ---------------------------------------------------------------

/// "SymInt[2]?" -> ("SymInt", true). `count` is 2, or 0 when it is not fixed.
static std::pair<StringRef, bool> elementType(StringRef type,
                                              unsigned *count = nullptr) {
  type.consume_back("?");
  if (!type.ends_with("]"))
    return {type, false};
  auto [element, size] = type.drop_back().rsplit('[');
  unsigned number = 0;
  if (count && !size.getAsInteger(10, number))
    *count = number;
  return {element, true};
}

/// An integer where the schema asks for something else: PyTorch's own numbers
/// stand for these in default values.
static Attribute integerAttribute(int64_t value, StringRef type,
                                  MLIRContext *context) {
  Builder builder(context);
  StringRef base = elementType(type).first;
  if (base == "float")
    return builder.getF64FloatAttr(static_cast<double>(value));
  if (base == "bool")
    return builder.getBoolAttr(value != 0);
  if (base == "ScalarType") {
    if (std::optional<DType> dtype = dtypeFromScalarType(value))
      return graph::DTypeAttr::get(context, *dtype);
    throw BuildError("a dtype with the number " + Twine(value) +
                     " is not supported");
  }
  auto named = [&](ArrayRef<StringRef> names, StringRef what) {
    if (value < 0 || value >= static_cast<int64_t>(names.size()))
      throw BuildError("there is no " + what + " " + Twine(value));
    return names[value];
  };
  if (base == "Layout")
    return graph::LayoutAttr::get(
        context, named({"strided", "sparse_coo", "sparse_csr", "_mkldnn",
                        "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"},
                       "layout"));
  if (base == "MemoryFormat")
    return graph::MemoryFormatAttr::get(
        context, named({"contiguous_format", "preserve_format", "channels_last",
                        "channels_last_3d"},
                       "memory format"));
  return builder.getI64IntegerAttr(value);
}

Attribute importer::constantAttribute(const Argument &argument, StringRef type,
                                      MLIRContext *context) {
  Builder builder(context);
  StringRef base = elementType(type).first;
  switch (argument.kind) {
  case Kind::None:
    return graph::NoneAttr::get(context);
  case Kind::Int:
    return integerAttribute(argument.integer, type, context);
  case Kind::Float:
    return builder.getF64FloatAttr(argument.real);
  case Kind::Bool:
    if (base == "int" || base == "SymInt" || base == "float")
      return integerAttribute(argument.boolean, type, context);
    return builder.getBoolAttr(argument.boolean);
  case Kind::String:
    if (base == "Device")
      return graph::DeviceAttr::get(context, argument.text);
    return builder.getStringAttr(argument.text);
  case Kind::Operator:
    return builder.getStringAttr(argument.text);
  case Kind::Complex:
    return graph::ComplexAttr::get(context, argument.real, argument.imaginary);
  case Kind::DType:
    return graph::DTypeAttr::get(context, argument.dtype);
  case Kind::Device:
    return graph::DeviceAttr::get(context, argument.text);
  case Kind::Layout:
    return graph::LayoutAttr::get(context, argument.text);
  case Kind::MemoryFormat:
    return graph::MemoryFormatAttr::get(context, argument.text);
  case Kind::Object:
    return graph::ObjectAttr::get(context, argument.integer);
  case Kind::List: {
    SmallVector<Attribute> elements;
    for (const Argument &element : argument.list) {
      Attribute attribute = constantAttribute(element, base, context);
      if (!attribute)
        return {};
      elements.push_back(attribute);
    }
    return builder.getArrayAttr(elements);
  }
  case Kind::Value:
  case Kind::SymInt:
  case Kind::SymFloat:
  case Kind::SymBool:
  case Kind::Graph:
    return {};
  }
  return {};
}

// --- Names -------------------------------------------------------------------

const ValueMeta &FunctionBuilder::metaOf(const std::string &name) const {
  auto found = source.values.find(name);
  if (found == source.values.end())
    throw BuildError("the graph does not say what '" + name + "' is");
  return found->second;
}

void FunctionBuilder::bind(const std::string &name, Binding binding) {
  if (!bindings.emplace(name, std::move(binding)).second)
    throw BuildError("the value '" + name + "' is defined twice");
}

const FunctionBuilder::Binding &
FunctionBuilder::lookup(const std::string &name) {
  auto found = bindings.find(name);
  if (found != bindings.end())
    return found->second;
  // A constant that the program carries.
  for (const Weight &weight : program.weights) {
    if (weight.target != name || !isMain)
      continue;
    ValueMeta meta;
    meta.kind = ValueMeta::Kind::Tensor;
    meta.tensor = weight.meta;
    Binding binding;
    binding.kind = meta.kind;
    binding.value = graph::WeightOp::create(
        builder, location, cast<graph::TensorType>(typeOf(meta)),
        builder.getStringAttr(name));
    return bindings.emplace(name, std::move(binding)).first->second;
  }
  throw BuildError("uses the value '" + name +
                   "', which nothing before it defines");
}

Value FunctionBuilder::latest(Value value) const {
  for (auto next = updates.find(value); next != updates.end();
       next = updates.find(value))
    value = next->second;
  return value;
}

Type FunctionBuilder::typeOf(const ValueMeta &meta) {
  MLIRContext *context = builder.getContext();
  switch (meta.kind) {
  case ValueMeta::Kind::Tensor:
    return graph::TensorType::get(context, meta.tensor.sizes,
                                  meta.tensor.strides, meta.tensor.dtype,
                                  meta.tensor.device);
  case ValueMeta::Kind::SymInt:
    return builder.getIndexType();
  case ValueMeta::Kind::SymFloat:
    return builder.getF64Type();
  case ValueMeta::Kind::SymBool:
    return builder.getI1Type();
  case ValueMeta::Kind::Object:
  case ValueMeta::Kind::None:
    return graph::ObjectType::get(context);
  }
  return {};
}

// --- Symbolic numbers --------------------------------------------------------

void FunctionBuilder::useSymbols(const SymExpr &expr) {
  SymbolSet names;
  expr.collectSymbols(names);
  for (const std::string &name : names)
    if (!scope.count(name))
      throw BuildError("uses the symbol '" + name +
                       "', whose value no input and no operator before it "
                       "determines");
}

Value FunctionBuilder::sizeValue(const SymExpr &expr, ValueMeta::Kind kind) {
  useSymbols(expr);
  auto [entry, isNew] =
      sizes.try_emplace({expr.str(), static_cast<int>(kind)}, Value());
  if (isNew) {
    ValueMeta meta;
    meta.kind = kind;
    entry->second =
        graph::SizeOp::create(builder, location, typeOf(meta),
                              graph::ExprAttr::get(builder.getContext(), expr));
  }
  return entry->second;
}

Attribute FunctionBuilder::operand(Call &call, Value value) {
  auto [entry, isNew] =
      call.operandIndex.try_emplace(value, call.operands.size());
  if (isNew)
    call.operands.push_back(value);
  return graph::OperandAttr::get(builder.getContext(), entry->second);
}

Attribute FunctionBuilder::number(Call &call, const SymExpr &expr,
                                  ValueMeta::Kind kind) {
  if (kind == ValueMeta::Kind::SymInt)
    if (std::optional<int64_t> value = expr.asInteger())
      return builder.getI64IntegerAttr(*value);
  if (kind == ValueMeta::Kind::SymBool)
    if (std::optional<bool> value = expr.asBool())
      return builder.getBoolAttr(*value);
  if (kind == ValueMeta::Kind::SymFloat) {
    if (std::optional<double> value = expr.asReal())
      return builder.getF64FloatAttr(*value);
    if (std::optional<int64_t> value = expr.asInteger())
      return builder.getF64FloatAttr(static_cast<double>(*value));
  }
  return operand(call, sizeValue(expr, kind));
}

static ValueMeta::Kind symbolicKind(Kind kind) {
  if (kind == Kind::SymInt)
    return ValueMeta::Kind::SymInt;
  return kind == Kind::SymFloat ? ValueMeta::Kind::SymFloat
                                : ValueMeta::Kind::SymBool;
}

Attribute FunctionBuilder::convert(Call &call, const Argument &argument,
                                   StringRef type) {
  unsigned count = 0;
  auto [element, isList] = elementType(type, &count);
  // "int[2] stride" may be given as one number.
  bool isNumber = argument.kind == Kind::Int || argument.kind == Kind::SymInt ||
                  argument.kind == Kind::Float;
  if (isList && isNumber && count > 0) {
    Attribute one = convert(call, argument, element);
    return builder.getArrayAttr(SmallVector<Attribute>(count, one));
  }

  switch (argument.kind) {
  case Kind::Value: {
    const Binding &binding = lookup(argument.text);
    if (binding.expr) {
      Attribute attribute = number(call, *binding.expr, binding.kind);
      if (auto integer = dyn_cast<IntegerAttr>(attribute);
          integer && binding.kind == ValueMeta::Kind::SymInt)
        return integerAttribute(integer.getInt(), element,
                                builder.getContext());
      return attribute;
    }
    if (!binding.value)
      return graph::NoneAttr::get(builder.getContext());
    return operand(call, latest(binding.value));
  }
  case Kind::SymInt:
  case Kind::SymFloat:
  case Kind::SymBool:
    return number(call, argument.expr, symbolicKind(argument.kind));
  case Kind::List: {
    SmallVector<Attribute> elements;
    for (const Argument &member : argument.list)
      elements.push_back(convert(call, member, isList ? element : ""));
    return builder.getArrayAttr(elements);
  }
  case Kind::Graph:
    return module.subgraph(argument.text, scope);
  default:
    return constantAttribute(argument, type, builder.getContext());
  }
}

SymExpr FunctionBuilder::exprOf(const Argument &argument) {
  switch (argument.kind) {
  case Kind::Int:
    return SymExpr::integer(argument.integer);
  case Kind::Float:
    return SymExpr::real(argument.real);
  case Kind::Bool:
    return SymExpr::boolean(argument.boolean);
  case Kind::SymInt:
  case Kind::SymFloat:
  case Kind::SymBool:
    useSymbols(argument.expr);
    return argument.expr;
  case Kind::Value:
    if (const Binding &binding = lookup(argument.text); binding.expr) {
      useSymbols(*binding.expr);
      return *binding.expr;
    }
    throw BuildError("'" + argument.text + "' is no number");
  default:
    throw BuildError("a number is expected");
  }
}

std::vector<SymExpr> FunctionBuilder::exprsOf(const Argument &argument) {
  if (argument.kind != Kind::List)
    throw BuildError("a list of numbers is expected");
  std::vector<SymExpr> exprs;
  for (const Argument &element : argument.list)
    exprs.push_back(exprOf(element));
  return exprs;
}

Value FunctionBuilder::valueOf(const Argument &argument) {
  if (argument.kind != Kind::Value)
    throw BuildError("a tensor is expected");
  const Binding &binding = lookup(argument.text);
  if (!binding.value)
    throw BuildError("'" + argument.text + "' is no tensor");
  return latest(binding.value);
}
