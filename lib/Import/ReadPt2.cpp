//===- ReadPt2.cpp - Reader A: .pt2 archives
//-------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads what `torch.export.save` writes: the program of models/model.json in
// PyTorch's export schema (torch/_export/serde/schema.py, major version 8) and
// the places of its weights and constants. The schema's peculiarities end here:
// getitem nodes are folded into their producer's outputs, dtypes have numbers
// of their own, values are split over one table a kind, subgraphs are inside
// the argument that uses them, and effect tokens are inputs and outputs that
// nobody passes.
//
//===----------------------------------------------------------------------===//

#include "JsonReading.h"
#include "StackTrace.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Plan/Metadata.h"

#include <set>

using namespace intarsia;
using namespace intarsia::importer;
using llvm::StringRef;
using llvm::Twine;

static constexpr int64_t kSchemaMajor = 8;
static constexpr StringRef kDictionary = "as_string_to_argument";
/// In a node's custom metadata: the number that its operator's fake
/// implementation returned, where the program holds that number instead of the
/// result.
static constexpr StringRef kPromisedNumber = "intarsia_number";

namespace {

class Pt2Reader {
public:
  explicit Pt2Reader(const artifact::Archive &archive) : archive(archive) {}
  Program read(StringRef record);

private:
  void readSignature(json::Object signature);
  void readWeights(StringRef folder, StringRef configName, bool isConstant);
  void dropTokens();

  Graph readGraph(json::Object object, StringRef name);
  Node readNode(json::Object object, Graph &graph);
  Argument readArgument(const json::Value &value, StringRef graphName);
  Output readOutput(const json::Value &value);
  void readPromisedNumber(json::Object object, Node &node, Graph &graph);
  /// Records the subgraph and returns its name in the program.
  std::string readSubgraph(json::Object object, StringRef parent);

  TensorMeta readTensorMeta(json::Object object);
  SymExpr readSymbolic(const json::Value &value, StringRef what);
  std::string readDevice(const json::Value &value);

  const artifact::Archive &archive;
  Program program;
  /// What each subgraph was read from: one that is used twice is written twice.
  std::map<std::string, json::Object> subgraphSources;
};

} // namespace

// --- Values ------------------------------------------------------------------

std::string Pt2Reader::readDevice(const json::Value &value) {
  json::Object object = asObject(value, "device");
  std::string device = asString(field(object, "type"), "type");
  if (const json::Value *index = optionalField(object, "index"))
    device += ":" + std::to_string(asInteger(*index, "index"));
  return device;
}

/// {"as_int": 3} or {"as_expr": {"expr_str": ...}}; the hint is only what the
/// exporter happened to see.
SymExpr Pt2Reader::readSymbolic(const json::Value &value, StringRef what) {
  auto [kind, contents] = unionMember(value, what);
  if (kind == "as_expr")
    return asExpr(field(asObject(contents, what), "expr_str"), what);
  if (kind == "as_int")
    return SymExpr::integer(asInteger(contents, what));
  if (kind == "as_float")
    return SymExpr::real(asReal(contents, what));
  if (kind == "as_bool")
    return SymExpr::boolean(asBoolean(contents, what));
  throw ReadError("'" + what + "' has an unknown form '" + kind + "'");
}

static DType readDType(const json::Value &value) {
  int64_t number = asInteger(value, "dtype");
  if (std::optional<DType> dtype = dtypeFromExport(number))
    return *dtype;
  throw ReadError("the export schema's dtype " + Twine(number) +
                  " is not supported");
}

static std::string readLayout(const json::Value &value) {
  static constexpr StringRef kNames[] = {
      "",           "sparse_coo", "sparse_csr", "sparse_csc",
      "sparse_bsr", "sparse_bsc", "_mkldnn",    "strided"};
  int64_t number = asInteger(value, "layout");
  if (number < 1 || number >= static_cast<int64_t>(std::size(kNames)))
    throw ReadError("there is no layout " + Twine(number));
  return kNames[number].str();
}

static std::string readMemoryFormat(const json::Value &value) {
  static constexpr StringRef kNames[] = {"", "contiguous_format",
                                         "channels_last", "channels_last_3d",
                                         "preserve_format"};
  int64_t number = asInteger(value, "memory_format");
  if (number < 1 || number >= static_cast<int64_t>(std::size(kNames)))
    throw ReadError("there is no memory format " + Twine(number));
  return kNames[number].str();
}

TensorMeta Pt2Reader::readTensorMeta(json::Object object) {
  TensorMeta meta;
  meta.dtype = readDType(field(object, "dtype"));
  meta.device = readDevice(field(object, "device"));
  std::string layout = readLayout(field(object, "layout"));
  if (layout != "strided")
    throw ReadError("has the layout " + Twine(layout) +
                    "; only strided tensors are supported");
  for (const json::Value &size : asArray(field(object, "sizes"), "sizes"))
    meta.sizes.push_back(asExtent(readSymbolic(size, "sizes"), "sizes"));
  for (const json::Value &stride : asArray(field(object, "strides"), "strides"))
    meta.strides.push_back(
        asExtent(readSymbolic(stride, "strides"), "strides"));
  if (meta.sizes.size() != meta.strides.size())
    throw ReadError("has " + Twine(meta.sizes.size()) + " sizes and " +
                    Twine(meta.strides.size()) + " strides");
  meta.storageOffset =
      asExtent(readSymbolic(field(object, "storage_offset"), "storage_offset"),
               "storage_offset");
  if (const json::Value *flag = optionalField(object, "requires_grad"))
    meta.requiresGrad = asBoolean(*flag, "requires_grad");
  return meta;
}

static Argument makeArgument(Argument::Kind kind) {
  Argument argument;
  argument.kind = kind;
  return argument;
}

static Argument valueArgument(std::string name) {
  Argument argument = makeArgument(Argument::Kind::Value);
  argument.text = std::move(name);
  return argument;
}

static Argument intArgument(int64_t value) {
  Argument argument = makeArgument(Argument::Kind::Int);
  argument.integer = value;
  return argument;
}

static Argument floatArgument(double value) {
  Argument argument = makeArgument(Argument::Kind::Float);
  argument.real = value;
  return argument;
}

static Argument boolArgument(bool value) {
  Argument argument = makeArgument(Argument::Kind::Bool);
  argument.boolean = value;
  return argument;
}

static Argument stringArgument(std::string text) {
  Argument argument = makeArgument(Argument::Kind::String);
  argument.text = std::move(text);
  return argument;
}

static Argument tensorArgument(const json::Value &value) {
  return valueArgument(
      asString(field(asObject(value, "as_tensor"), "name"), "name"));
}

static Argument symbolicArgument(const json::Value &value) {
  auto [kind, contents] = unionMember(value, "symbolic argument");
  if (kind == "as_name")
    return valueArgument(asString(contents, kind));
  if (kind == "as_int")
    return intArgument(asInteger(contents, kind));
  if (kind == "as_float")
    return floatArgument(asReal(contents, kind));
  if (kind == "as_bool")
    return boolArgument(asBoolean(contents, kind));
  throw ReadError("a symbolic argument has an unknown form '" + kind + "'");
}

template <typename Read>
static Argument listArgument(const json::Value &value, StringRef what,
                             Read read) {
  Argument list = makeArgument(Argument::Kind::List);
  for (const json::Value &element : asArray(value, what))
    list.list.push_back(read(element));
  return list;
}

Argument Pt2Reader::readArgument(const json::Value &value,
                                 StringRef graphName) {
  auto [member, v] = unionMember(value, "argument");
  StringRef kind = member;
  auto readInt = [&](const json::Value &v) {
    return intArgument(asInteger(v, kind));
  };
  auto readFloat = [&](const json::Value &v) {
    return floatArgument(asReal(v, kind));
  };
  auto readBool = [&](const json::Value &v) {
    return boolArgument(asBoolean(v, kind));
  };
  auto readString = [&](const json::Value &v) {
    return stringArgument(asString(v, kind));
  };
  auto readOptionalTensor = [](const json::Value &v) {
    auto [form, tensor] = unionMember(v, "optional tensor");
    return form == "as_none" ? Argument() : tensorArgument(tensor);
  };

  if (kind == "as_none")
    return Argument();
  if (kind == "as_tensor")
    return tensorArgument(v);
  if (kind == "as_tensors")
    return listArgument(v, kind, tensorArgument);
  if (kind == "as_nested_tensors")
    return listArgument(v, kind, [&](const json::Value &inner) {
      return listArgument(inner, kind, tensorArgument);
    });
  if (kind == "as_optional_tensor")
    return readOptionalTensor(v);
  if (kind == "as_optional_tensors")
    return listArgument(v, kind, readOptionalTensor);
  if (kind == "as_int")
    return readInt(v);
  if (kind == "as_ints")
    return listArgument(v, kind, readInt);
  if (kind == "as_int_lists")
    return listArgument(v, kind, [&](const json::Value &inner) {
      return listArgument(inner, kind, readInt);
    });
  if (kind == "as_float")
    return readFloat(v);
  if (kind == "as_floats")
    return listArgument(v, kind, readFloat);
  if (kind == "as_float_lists")
    return listArgument(v, kind, [&](const json::Value &inner) {
      return listArgument(inner, kind, readFloat);
    });
  if (kind == "as_bool")
    return readBool(v);
  if (kind == "as_bools")
    return listArgument(v, kind, readBool);
  if (kind == "as_string")
    return readString(v);
  if (kind == "as_strings")
    return listArgument(v, kind, readString);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool")
    return symbolicArgument(v);
  if (kind == "as_sym_ints" || kind == "as_sym_floats" ||
      kind == "as_sym_bools")
    return listArgument(v, kind, symbolicArgument);
  if (kind == "as_complex") {
    json::Object parts = asObject(v, kind);
    Argument argument = makeArgument(Argument::Kind::Complex);
    argument.real = asReal(field(parts, "real"), "real");
    argument.imaginary = asReal(field(parts, "imag"), "imag");
    return argument;
  }
  if (kind == "as_scalar_type") {
    Argument argument = makeArgument(Argument::Kind::DType);
    argument.dtype = readDType(v);
    return argument;
  }
  if (kind == "as_device") {
    Argument argument = makeArgument(Argument::Kind::Device);
    argument.text = readDevice(v);
    return argument;
  }
  if (kind == "as_layout") {
    Argument argument = makeArgument(Argument::Kind::Layout);
    argument.text = readLayout(v);
    return argument;
  }
  if (kind == "as_memory_format") {
    Argument argument = makeArgument(Argument::Kind::MemoryFormat);
    argument.text = readMemoryFormat(v);
    return argument;
  }
  if (kind == "as_operator") {
    Argument argument = makeArgument(Argument::Kind::Operator);
    argument.text = operatorName(asString(v, kind));
    return argument;
  }
  if (kind == "as_graph") {
    Argument argument = makeArgument(Argument::Kind::Graph);
    argument.text = readSubgraph(asObject(v, kind), graphName);
    return argument;
  }
  if (kind == kDictionary) {
    // The list of keys and values in turn.
    Argument list = makeArgument(Argument::Kind::List);
    for (auto [key, contents] : asObject(v, kind)) {
      list.list.push_back(stringArgument(key.str()));
      list.list.push_back(readArgument(contents, graphName));
    }
    return list;
  }
  if (kind == "as_custom_obj") {
    std::string name =
        asString(field(asObject(v, kind), "class_fqn"), "class_fqn");
    throw ReadError(
        "takes a custom object of class " + name +
        ": objects are not supported in .pt2 files; " +
        (StringRef(name).ends_with("Generator")
             ? "pass None for the default generator, which "
               "torch.manual_seed seeds, or compile the module with "
               "torch.compile"
             : "make what the operator needs of it tensors, numbers or "
               "strings"));
  }
  throw ReadError("it has the kind '" + kind + "', which is not supported");
}

Output Pt2Reader::readOutput(const json::Value &value) {
  Output output;
  Argument argument = readArgument(value, "");
  switch (argument.kind) {
  case Argument::Kind::None:
    break;
  case Argument::Kind::Value:
    output.kind = Output::Kind::Value;
    output.name = argument.text;
    break;
  case Argument::Kind::List:
    output.kind = Output::Kind::List;
    for (const Argument &element : argument.list) {
      Output member;
      if (element.kind == Argument::Kind::Value) {
        member.kind = Output::Kind::Value;
        member.name = element.text;
      }
      output.list.push_back(std::move(member));
    }
    break;
  default:
    throw ReadError("an output is neither a value nor a list of values");
  }
  return output;
}

// --- Graphs ------------------------------------------------------------------

std::string Pt2Reader::readSubgraph(json::Object object, StringRef parent) {
  std::string base = asString(field(object, "name"), "name");
  if (!parent.empty())
    base = (parent + "." + base).str();
  json::Object source = asObject(field(object, "graph"), "graph");
  std::string name = base;
  for (int copy = 1;; ++copy) {
    auto [entry, isNew] = subgraphSources.try_emplace(name, source);
    if (isNew)
      break;
    if (entry->second == source)
      return name;
    name = base + "_" + std::to_string(copy);
  }
  Graph graph = readGraph(source, name);
  program.graphs.emplace(name, std::move(graph));
  return name;
}

/// What a functionalised operator writes is recorded as sizes and strides
/// within its base. Of a complex base these may be those of its real or
/// imaginary part, and nothing says so.
static void refuseAmbiguousViews(const Node &node, const Graph &graph) {
  bool isStrided = llvm::any_of(node.args, [](const auto &named) {
    return StringRef(named.first).ends_with("_storage_offset");
  });
  if (node.target != "higher_order::auto_functionalized_v2" || !isStrided)
    return;
  for (const auto &[name, argument] : node.args) {
    if (name != "_all_bases")
      continue;
    for (const Argument &base : argument.list) {
      auto meta = graph.values.find(base.text);
      if (meta != graph.values.end() && isComplex(meta->second.tensor.dtype))
        throw ReadError("writes a view of a complex tensor, and PyTorch does "
                        "not record whether it is one of its real or "
                        "imaginary part. Save the program without "
                        "run_decompositions()");
    }
  }
}

/// A result that export has replaced by a number is written as None. What the
/// number was, `intarsia.export` notes; else lib/Compiler/PromisedNumbers.cpp
/// finds it out.
void Pt2Reader::readPromisedNumber(json::Object object, Node &node,
                                   Graph &graph) {
  const json::Value *metadata = optionalField(object, "metadata");
  const json::Value *custom =
      metadata ? optionalField(asObject(*metadata, "metadata"), "custom")
               : nullptr;
  if (!custom || node.outputs.size() != 1 ||
      node.outputs[0].kind != Output::Kind::None)
    return;
  std::string text = asString(*custom, "custom");
  JsonTape notes = parseJson(text, "custom");
  if (notes.root().kind != json::Value::Kind::Object)
    return;
  const json::Value *promise =
      optionalField(json::Object(notes.root()), kPromisedNumber);
  if (!promise)
    return;
  ValueMeta meta;
  auto [kind, number] = unionMember(*promise, kPromisedNumber);
  meta.kind = kind == "as_bool"    ? ValueMeta::Kind::SymBool
              : kind == "as_float" ? ValueMeta::Kind::SymFloat
                                   : ValueMeta::Kind::SymInt;
  meta.expr = readSymbolic(*promise, kPromisedNumber);
  promiseNumber(node, graph, std::move(meta));
}

void importer::promiseNumber(Node &node, Graph &graph, ValueMeta number) {
  std::string name = node.name.empty() ? node.target : node.name;
  while (graph.values.count(name))
    name += "_";
  graph.values.emplace(name, std::move(number));
  node.outputs[0].kind = Output::Kind::Value;
  node.outputs[0].name = name;
}

Node Pt2Reader::readNode(json::Object object, Graph &graph) {
  Node node;
  std::string target = asString(field(object, "target"), "target");
  node.target = operatorName(target);
  if (const json::Value *name = optionalField(object, "name"))
    node.name = asString(*name, "name");
  try {
    if (const json::Value *metadata = optionalField(object, "metadata")) {
      json::Object fields = asObject(*metadata, "metadata");
      if (const json::Value *trace = optionalField(fields, "stack_trace"))
        node.stack = parseStackTrace(asString(*trace, "stack_trace"));
      // "key,path,type" of each module, innermost last.
      if (const json::Value *modules =
              optionalField(fields, "nn_module_stack")) {
        std::string text = asString(*modules, "nn_module_stack");
        StringRef last = StringRef(text).rsplit(';').second;
        node.module = (last.empty() ? StringRef(text) : last)
                          .split(',')
                          .second.split(',')
                          .first.str();
      }
    }
    for (const json::Value &input :
         asArray(field(object, "inputs"), "inputs")) {
      json::Object named = asObject(input, "input");
      std::string argument = asString(field(named, "name"), "name");
      try {
        node.args.emplace_back(argument,
                               readArgument(field(named, "arg"), graph.name));
      } catch (const ReadError &error) {
        throw ReadError("argument '" + argument + "': " + error.what());
      }
    }
    for (const json::Value &output :
         asArray(field(object, "outputs"), "outputs"))
      node.outputs.push_back(readOutput(output));
    readPromisedNumber(object, node, graph);
    refuseAmbiguousViews(node, graph);
  } catch (const ReadError &error) {
    const SourceLocation *frame = userFrame(node.stack);
    std::string place;
    if (frame)
      place = " (" + frame->file + ":" + std::to_string(frame->line) +
              (frame->code.empty() ? "" : ": " + frame->code) + ")";
    throw ReadError("node '" + node.name + "', " + node.target + place + ": " +
                    error.what());
  }
  return node;
}

Graph Pt2Reader::readGraph(json::Object object, StringRef name) {
  Graph graph;
  graph.name = name.str();

  auto readValues = [&](StringRef table, auto read) {
    const json::Value *values = optionalField(object, table);
    if (!values)
      return;
    for (auto [key, contents] : asObject(*values, table)) {
      StringRef valueName = key;
      try {
        if (!graph.values.emplace(valueName.str(), read(contents)).second)
          throw ReadError("is defined twice");
      } catch (const ReadError &error) {
        throw ReadError("value '" + valueName + "': " + error.what());
      }
    }
  };
  readValues("tensor_values", [&](const json::Value &value) {
    ValueMeta meta;
    json::Object tensor = asObject(value, "tensor");
    // A sparse tensor has no strides to promise: it passes by unchecked.
    if (readLayout(field(tensor, "layout")) != "strided") {
      meta.kind = ValueMeta::Kind::Object;
      return meta;
    }
    meta.kind = ValueMeta::Kind::Tensor;
    meta.tensor = readTensorMeta(tensor);
    return meta;
  });
  auto symbolic = [&](ValueMeta::Kind kind) {
    return [&, kind](const json::Value &value) {
      ValueMeta meta;
      meta.kind = kind;
      meta.expr = readSymbolic(value, "value");
      if (kind == ValueMeta::Kind::SymInt)
        meta.expr = asIntegerExpr(std::move(meta.expr), "value");
      return meta;
    };
  };
  readValues("sym_int_values", symbolic(ValueMeta::Kind::SymInt));
  readValues("sym_bool_values", symbolic(ValueMeta::Kind::SymBool));
  readValues("sym_float_values", symbolic(ValueMeta::Kind::SymFloat));

  for (const json::Value &input : asArray(field(object, "inputs"), "inputs")) {
    if (auto [kind, contents] = unionMember(input, "input");
        kind == "as_custom_obj") {
      // The operator that takes it is refused by name; if none does, the input.
      graph.inputs.push_back(
          asString(field(asObject(contents, kind), "name"), "name"));
      graph.values[graph.inputs.back()].kind = ValueMeta::Kind::Object;
      continue;
    }
    Argument argument = readArgument(input, graph.name);
    if (argument.kind == Argument::Kind::Value) {
      graph.inputs.push_back(argument.text);
      continue;
    }
    // A constant has no name of its own; at the top, the signature names it.
    ValueMeta meta;
    if (argument.kind == Argument::Kind::Int) {
      meta.kind = ValueMeta::Kind::SymInt;
      meta.expr = SymExpr::integer(argument.integer);
    } else if (argument.kind == Argument::Kind::Float) {
      meta.kind = ValueMeta::Kind::SymFloat;
      meta.expr = SymExpr::real(argument.real);
    } else if (argument.kind == Argument::Kind::Bool) {
      meta.kind = ValueMeta::Kind::SymBool;
      meta.expr = SymExpr::boolean(argument.boolean);
    }
    std::string constantName =
        "constant_" + std::to_string(graph.inputs.size()) + "_";
    graph.values[constantName] = meta;
    graph.inputs.push_back(constantName);
  }
  for (const json::Value &node : asArray(field(object, "nodes"), "nodes"))
    graph.nodes.push_back(readNode(asObject(node, "node"), graph));
  for (const json::Value &output : asArray(field(object, "outputs"), "outputs"))
    graph.outputs.push_back(readArgument(output, graph.name));
  return graph;
}

// --- The program -------------------------------------------------------------

static std::string argumentName(json::Object object) {
  return asString(field(asObject(field(object, "arg"), "arg"), "name"), "name");
}

static Argument constantValue(const json::Value &value) {
  auto [kind, contents] = unionMember(value, "constant_input");
  if (kind == "as_none")
    return Argument();
  if (kind == "as_int")
    return intArgument(asInteger(contents, kind));
  if (kind == "as_float")
    return floatArgument(asReal(contents, kind));
  if (kind == "as_string")
    return stringArgument(asString(contents, kind));
  if (kind == "as_bool")
    return boolArgument(asBoolean(contents, kind));
  throw ReadError("a constant input has an unknown form '" + kind + "'");
}

void Pt2Reader::readSignature(json::Object signature) {
  Graph &graph = program.graph;
  json::Array inputs = asArray(field(signature, "input_specs"), "input_specs");
  if (inputs.size() != graph.inputs.size())
    throw ReadError("the signature has " + Twine(inputs.size()) +
                    " inputs, the graph " + Twine(graph.inputs.size()));
  for (auto [index, value] : llvm::enumerate(inputs)) {
    auto [kind, contents] = unionMember(value, "input_specs");
    json::Object object = asObject(contents, kind);
    InputSpec spec;
    std::string &inputName = graph.inputs[index];
    if (kind == "user_input") {
      spec.kind = InputSpec::Kind::UserInput;
      spec.name = inputName;
    } else if (kind == "parameter") {
      spec.kind = InputSpec::Kind::Parameter;
      spec.name = argumentName(object);
      spec.target = asString(field(object, "parameter_name"), "parameter_name");
    } else if (kind == "buffer") {
      spec.kind = InputSpec::Kind::Buffer;
      spec.name = argumentName(object);
      spec.target = asString(field(object, "buffer_name"), "buffer_name");
      if (const json::Value *flag = optionalField(object, "persistent"))
        spec.persistent = asBoolean(*flag, "persistent");
    } else if (kind == "tensor_constant") {
      spec.kind = InputSpec::Kind::Constant;
      spec.name = argumentName(object);
      spec.target = asString(field(object, "tensor_constant_name"),
                             "tensor_constant_name");
    } else if (kind == "constant_input") {
      spec.kind = InputSpec::Kind::ConstantInput;
      spec.name = asString(field(object, "name"), "name");
      spec.constant = constantValue(field(object, "value"));
      // The graph's own name for it was made up.
      graph.values.erase(inputName);
      graph.values.emplace(spec.name, ValueMeta());
      inputName = spec.name;
    } else if (kind == "token") {
      spec.kind = InputSpec::Kind::Token;
      spec.name = argumentName(object);
    } else if (kind == "custom_obj") {
      throw ReadError("the input '" + argumentName(object) +
                      "' is a custom object: objects are not supported in "
                      ".pt2 files; make what the operators need of it "
                      "tensors, numbers or strings");
    } else {
      throw ReadError("there is an input of the unknown kind '" + kind + "'");
    }
    if (spec.name != inputName)
      throw ReadError("the signature calls an input '" + spec.name +
                      "', the graph '" + inputName + "'");
    program.inputs.push_back(std::move(spec));
  }

  json::Array outputs =
      asArray(field(signature, "output_specs"), "output_specs");
  if (outputs.size() != graph.outputs.size())
    throw ReadError("the signature has " + Twine(outputs.size()) +
                    " outputs, the graph " + Twine(graph.outputs.size()));
  for (const json::Value &value : outputs) {
    auto [kind, contents] = unionMember(value, "output_specs");
    json::Object object = asObject(contents, kind);
    OutputSpec spec;
    auto target = [&](StringRef name) {
      spec.target = asString(field(object, name), name);
    };
    if (kind == "user_output") {
      spec.kind = OutputSpec::Kind::UserOutput;
    } else if (kind == "buffer_mutation") {
      spec.kind = OutputSpec::Kind::BufferMutation;
      target("buffer_name");
    } else if (kind == "parameter_mutation") {
      spec.kind = OutputSpec::Kind::ParameterMutation;
      target("parameter_name");
    } else if (kind == "user_input_mutation") {
      spec.kind = OutputSpec::Kind::InputMutation;
      target("user_input_name");
    } else if (kind == "token") {
      spec.kind = OutputSpec::Kind::Token;
    } else if (kind == "loss_output") {
      spec.kind = OutputSpec::Kind::Loss;
    } else if (kind == "gradient_to_parameter") {
      spec.kind = OutputSpec::Kind::Gradient;
      target("parameter_name");
    } else if (kind == "gradient_to_user_input") {
      spec.kind = OutputSpec::Kind::Gradient;
      target("user_input_name");
    } else {
      throw ReadError("there is an output of the unknown kind '" + kind + "'");
    }
    program.outputs.push_back(std::move(spec));
  }
}

void Pt2Reader::readWeights(StringRef folder, StringRef configName,
                            bool isConstant) {
  std::string configRecord = (folder + "/" + configName).str();
  if (!archive.find(configRecord))
    return;
  std::string text = archive.read(configRecord);
  JsonTape tape = parseJson(text, configRecord);
  const json::Value &config =
      field(asObject(tape.root(), configRecord), "config");
  for (auto [key, contents] : asObject(config, "config")) {
    StringRef target = key;
    try {
      json::Object object = asObject(contents, target);
      Weight weight;
      weight.target = target.str();
      weight.record =
          (folder + "/" + asString(field(object, "path_name"), "path_name"))
              .str();
      if (const json::Value *flag = optionalField(object, "is_param"))
        weight.isParameter = asBoolean(*flag, "is_param");
      const json::Value *flag = optionalField(object, "use_pickle");
      const json::Value *meta = optionalField(object, "tensor_meta");
      if (!meta || (flag && asBoolean(*flag, "use_pickle")))
        throw ReadError("is a pickled Python object; only plain tensors are "
                        "supported");
      weight.meta = readTensorMeta(asObject(*meta, "tensor_meta"));

      // The last element must lie inside the record.
      const artifact::Record *record = archive.find(weight.record);
      if (!record)
        throw ReadError("its record '" + weight.record + "' is missing");
      bool isEmpty = false, isKnown = true;
      __int128 last = 0;
      auto add = [&](const SymExpr &size, const SymExpr &stride) {
        std::optional<int64_t> n = size.asInteger(), s = stride.asInteger();
        // The bound keeps the sum far from overflowing 128 bits.
        constexpr int64_t kBound = int64_t(1) << 50;
        isKnown &= n && s && *n >= 0 && *s >= 0 && *n < kBound && *s < kBound;
        if (!isKnown)
          return;
        isEmpty |= *n == 0;
        last += static_cast<__int128>(*n - 1) * *s;
      };
      for (auto [size, stride] :
           llvm::zip_equal(weight.meta.sizes, weight.meta.strides))
        add(size, stride);
      std::optional<int64_t> offset = weight.meta.storageOffset.asInteger();
      if (!isKnown || !offset || *offset < 0 || weight.meta.sizes.size() > 64)
        throw ReadError("its sizes, strides or offset are no usable constants");
      if (!isEmpty && (last + *offset + 1) * dtypeSize(weight.meta.dtype) >
                          static_cast<__int128>(record->size))
        throw ReadError("needs more bytes than its record '" + weight.record +
                        "' of " + Twine(record->size) + " has" +
                        (record->size == 0
                             ? ": the program was exported with fake weights"
                             : ""));
      program.weights.push_back(std::move(weight));
    } catch (const ReadError &error) {
      throw ReadError((isConstant ? "constant '" : "weight '") + target +
                      "': " + error.what());
    }
  }
}

/// Nobody passes or receives a token in an exported program; with_effects nodes
/// keep the order.
void Pt2Reader::dropTokens() {
  Graph &graph = program.graph;
  for (size_t i = program.inputs.size(); i-- > 0;)
    if (program.inputs[i].kind == InputSpec::Kind::Token) {
      program.inputs.erase(program.inputs.begin() + i);
      graph.inputs.erase(graph.inputs.begin() + i);
    }
  for (size_t i = program.outputs.size(); i-- > 0;)
    if (program.outputs[i].kind == OutputSpec::Kind::Token) {
      program.outputs.erase(program.outputs.begin() + i);
      graph.outputs.erase(graph.outputs.begin() + i);
    }
}

Program Pt2Reader::read(StringRef record) {
  std::string text = archive.read(record.str());
  JsonTape tape = parseJson(text, "the program");
  json::Object root = asObject(tape.root(), "program");

  json::Object version =
      asObject(field(root, "schema_version"), "schema_version");
  int64_t major = asInteger(field(version, "major"), "major");
  if (major != kSchemaMajor)
    throw ReadError("has version " + Twine(major) + "." +
                    Twine(asInteger(field(version, "minor"), "minor")) +
                    " of PyTorch's export schema, and this Intarsia reads "
                    "version " +
                    Twine(kSchemaMajor) +
                    ": export again with the PyTorch that Intarsia was built "
                    "for");
  if (const json::Value *torch = optionalField(root, "torch_version"))
    program.torchVersion = asString(*torch, "torch_version");

  json::Object module = asObject(field(root, "graph_module"), "graph_module");
  program.graph = readGraph(asObject(field(module, "graph"), "graph"), "");
  program.graph.name = "main";
  readSignature(asObject(field(module, "signature"), "signature"));
  dropTokens();

  if (const json::Value *calls = optionalField(module, "module_call_graph"))
    for (const json::Value &entry : asArray(*calls, "module_call_graph")) {
      json::Object call = asObject(entry, "module_call_graph");
      const json::Value *signature = optionalField(call, "signature");
      if (!signature || asString(field(call, "fqn"), "fqn") != "")
        continue;
      json::Object fields = asObject(*signature, "signature");
      program.inSpec = asString(field(fields, "in_spec"), "in_spec");
      program.outSpec = asString(field(fields, "out_spec"), "out_spec");
      if (const json::Value *names = optionalField(fields, "forward_arg_names"))
        for (const json::Value &name : asArray(*names, "forward_arg_names"))
          program.argumentNames.push_back(asString(name, "forward_arg_names"));
    }

  if (const json::Value *ranges = optionalField(root, "range_constraints"))
    for (auto [key, contents] : asObject(*ranges, "range_constraints")) {
      RangeConstraint range;
      range.symbol = StringRef(key).str();
      json::Object bounds = asObject(contents, range.symbol);
      // PyTorch traces with sizes of 2 and more and still lets a program run
      // with 0 and 1: a lower bound of 2 is no condition of the user's.
      if (const json::Value *bound = optionalField(bounds, "min_val"))
        if (int64_t min = asInteger(*bound, "min_val");
            min > 2 || StringRef(range.symbol).starts_with("u"))
          range.min = min;
      if (const json::Value *bound = optionalField(bounds, "max_val"))
        range.max = asInteger(*bound, "max_val");
      program.ranges.push_back(std::move(range));
    }
  if (const json::Value *guards = optionalField(root, "guards_code"))
    for (const json::Value &guard : asArray(*guards, "guards_code"))
      program.guards.push_back(asString(guard, "guards_code"));
  if (const json::Value *verifiers = optionalField(root, "verifiers"))
    for (const json::Value &verifier : asArray(*verifiers, "verifiers"))
      if (asString(verifier, "verifiers") == "TRAINING")
        program.functional = false;

  readWeights("data/weights", "model_weights_config.json", false);
  readWeights("data/constants", "model_constants_config.json", true);
  std::set<std::string> known;
  for (const Weight &weight : program.weights)
    known.insert(weight.target);
  for (const InputSpec &input : program.inputs) {
    bool needsWeight = input.kind == InputSpec::Kind::Parameter ||
                       input.kind == InputSpec::Kind::Buffer ||
                       input.kind == InputSpec::Kind::Constant;
    if (needsWeight && !known.count(input.target))
      throw ReadError("the archive has no data for '" + input.target + "'");
  }
  return std::move(program);
}

/// What an archive without a program is, and what to compile instead.
static std::string whatElse(const artifact::Archive &archive) {
  if (archive.find(plan::metadataRecord))
    return "this compiled file leaves the program in another one "
           "(--code-only); compile that";
  std::string writer = archive.otherWriter();
  if (writer.empty())
    return "this is no file that torch.export.save wrote";
  return "this is a file of " + writer +
         ". Export the module: torch.export.save(torch.export.export(module, "
         "inputs), \"model.pt2\")";
}

llvm::Expected<Program> importer::readPt2(StringRef path) {
  try {
    artifact::Archive archive(path.str());
    constexpr StringRef kModels = "models/";
    StringRef chosen;
    std::string found;
    for (const artifact::Record &record : archive.records()) {
      StringRef name = record.name;
      if (!name.starts_with(kModels) || !name.ends_with(".json"))
        continue;
      found += (found.empty() ? "" : ", ") + record.name;
      if (name == "models/model.json" || chosen.empty())
        chosen = record.name;
    }
    if (chosen.empty())
      throw artifact::ArchiveError(path.str(), "models/model.json",
                                   "is missing: " + whatElse(archive));
    if (chosen != "models/model.json" && found != chosen)
      throw artifact::ArchiveError(path.str(), "",
                                   "holds several programs (" + found +
                                       "), and none is called 'model'");
    try {
      return Pt2Reader(archive).read(chosen);
    } catch (const ReadError &error) {
      throw artifact::ArchiveError(path.str(), chosen.str(), error.what());
    }
  } catch (const std::exception &error) {
    return llvm::createStringError(error.what());
  }
}
