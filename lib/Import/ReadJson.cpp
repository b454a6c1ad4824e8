//===- ReadJson.cpp - Reader B: fx graphs as JSON
//--------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads the JSON that the Python front door makes of AOTAutograd's graphs: the
// structs of ImportGraph.h, field by field.
//
//===----------------------------------------------------------------------===//

#include "JsonReading.h"
#include "StackTrace.h"
#include "intarsia/Import/Import.h"

#include "llvm/ADT/StringSwitch.h"

using namespace intarsia;
using namespace intarsia::importer;
using llvm::StringRef;
using llvm::Twine;

// --- Fields ------------------------------------------------------------------

static std::string stringOr(json::Object object, StringRef name,
                            StringRef otherwise = "") {
  const json::Value *value = optionalField(object, name);
  return value ? asString(*value, name) : otherwise.str();
}

static bool booleanOr(json::Object object, StringRef name, bool otherwise) {
  const json::Value *value = optionalField(object, name);
  return value ? asBoolean(*value, name) : otherwise;
}

static int64_t integerOr(json::Object object, StringRef name,
                         int64_t otherwise) {
  const json::Value *value = optionalField(object, name);
  return value ? asInteger(*value, name) : otherwise;
}

/// Calls `read` with each element of the array; an absent field is empty.
template <typename Read>
static void forEach(json::Object object, StringRef name, Read read) {
  if (const json::Value *array = optionalField(object, name))
    for (const json::Value &element : asArray(*array, name))
      read(element);
}

/// An enumerator by its lower-case name, with or without underscores.
template <typename Kind>
static Kind readKind(json::Object object, StringRef what,
                     std::initializer_list<std::pair<StringRef, Kind>> kinds) {
  std::string text = asString(field(object, "kind"), "kind"), plain;
  for (char c : text)
    if (c != '_')
      plain.push_back(c);
  for (const auto &[name, kind] : kinds)
    if (name == plain)
      return kind;
  throw ReadError("there is no kind of " + what + " '" + text + "'");
}

// --- Structs -----------------------------------------------------------------

static TensorMeta readTensorMeta(json::Object object) {
  TensorMeta meta;
  std::string dtype = asString(field(object, "dtype"), "dtype");
  StringRef name = dtype;
  name.consume_front("torch.");
  std::optional<DType> known = dtypeFromTorchName(name);
  if (!known)
    known = dtypeFromName(name);
  if (!known)
    throw ReadError("the dtype '" + dtype + "' is not supported");
  meta.dtype = *known;
  meta.device = stringOr(object, "device", "cpu");
  forEach(object, "sizes", [&](const json::Value &value) {
    meta.sizes.push_back(asExtent(asExpr(value, "sizes"), "sizes"));
  });
  forEach(object, "strides", [&](const json::Value &value) {
    meta.strides.push_back(asExtent(asExpr(value, "strides"), "strides"));
  });
  if (meta.sizes.size() != meta.strides.size())
    throw ReadError("has " + Twine(meta.sizes.size()) + " sizes and " +
                    Twine(meta.strides.size()) + " strides");
  if (const json::Value *offset = optionalField(object, "storageOffset"))
    meta.storageOffset =
        asExtent(asExpr(*offset, "storageOffset"), "storageOffset");
  meta.requiresGrad = booleanOr(object, "requiresGrad", false);
  return meta;
}

static ValueMeta readValueMeta(json::Object object) {
  using Kind = ValueMeta::Kind;
  ValueMeta meta;
  meta.kind = readKind<Kind>(object, "value",
                             {{"tensor", Kind::Tensor},
                              {"symint", Kind::SymInt},
                              {"symfloat", Kind::SymFloat},
                              {"symbool", Kind::SymBool},
                              {"object", Kind::Object},
                              {"none", Kind::None}});
  switch (meta.kind) {
  case Kind::Tensor:
    meta.tensor = readTensorMeta(asObject(field(object, "tensor"), "tensor"));
    break;
  case Kind::SymInt:
  case Kind::SymFloat:
  case Kind::SymBool:
    meta.expr = asExpr(field(object, "expr"), "expr");
    if (meta.kind == Kind::SymInt)
      meta.expr = asIntegerExpr(std::move(meta.expr), "expr");
    break;
  case Kind::Object:
    meta.object = integerOr(object, "object", -1);
    break;
  case Kind::None:
    break;
  }
  return meta;
}

static Output readOutput(const json::Value &value) {
  using Kind = Output::Kind;
  Output output;
  if (value.kind == json::Value::Kind::Null)
    return output;
  json::Object object = asObject(value, "outputs");
  output.kind = readKind<Kind>(
      object, "output",
      {{"value", Kind::Value}, {"list", Kind::List}, {"none", Kind::None}});
  if (output.kind == Kind::Value)
    output.name = asString(field(object, "name"), "name");
  forEach(object, "list", [&](const json::Value &element) {
    output.list.push_back(readOutput(element));
  });
  return output;
}

static SourceLocation readLocation(const json::Value &value) {
  json::Object object = asObject(value, "stack");
  SourceLocation location;
  location.file = stringOr(object, "file");
  location.line = integerOr(object, "line", 0);
  location.function = stringOr(object, "function");
  location.code = stringOr(object, "code");
  return location;
}

static Node readNode(json::Object object) {
  Node node;
  node.name = stringOr(object, "name");
  node.target = operatorName(asString(field(object, "target"), "target"));
  try {
    forEach(object, "args", [&](const json::Value &value) {
      json::Array pair = asArray(value, "args");
      if (pair.size() != 2)
        throw ReadError("an element of 'args' is no pair of name and argument");
      node.args.emplace_back(asString(*pair.begin(), "args"),
                             readArgument(*std::next(pair.begin()), "args"));
    });
    forEach(object, "outputs", [&](const json::Value &value) {
      node.outputs.push_back(readOutput(value));
    });
    forEach(object, "eagerStrides", [&](const json::Value &value) {
      std::vector<SymExpr> strides;
      for (const json::Value &stride : asArray(value, "eagerStrides"))
        strides.push_back(asExpr(stride, "eagerStrides"));
      node.eagerStrides.push_back(std::move(strides));
    });
    node.autocast = stringOr(object, "autocast");
    forEach(object, "unbackedBindings", [&](const json::Value &value) {
      json::Array parts = asArray(value, "unbackedBindings");
      if (parts.size() != 3)
        throw ReadError("an element of 'unbackedBindings' is not symbol, "
                        "output and path");
      auto part = parts.begin();
      std::string symbol = asString(*part, "symbol");
      int64_t output = asInteger(*++part, "output");
      node.unbackedBindings.emplace_back(std::move(symbol), output,
                                         asString(*++part, "path"));
    });
    // Either frames, or the traceback's text.
    const json::Value *stack = optionalField(object, "stack");
    if (stack && stack->kind == json::Value::Kind::String)
      node.stack = parseStackTrace(asString(*stack, "stack"));
    else
      forEach(object, "stack", [&](const json::Value &value) {
        node.stack.push_back(readLocation(value));
      });
    node.module = stringOr(object, "module");
  } catch (const ReadError &error) {
    throw ReadError("node '" + node.name + "', " + node.target + ": " +
                    error.what());
  }
  return node;
}

static Graph readGraph(json::Object object) {
  Graph graph;
  graph.name = stringOr(object, "name");
  forEach(object, "inputs", [&](const json::Value &value) {
    graph.inputs.push_back(asString(value, "inputs"));
  });
  if (const json::Value *values = optionalField(object, "values"))
    for (auto [key, contents] : asObject(*values, "values")) {
      StringRef name = key;
      try {
        graph.values.emplace(name.str(),
                             readValueMeta(asObject(contents, name)));
      } catch (const ReadError &error) {
        throw ReadError("value '" + name + "': " + error.what());
      }
    }
  forEach(object, "nodes", [&](const json::Value &value) {
    graph.nodes.push_back(readNode(asObject(value, "nodes")));
  });
  forEach(object, "outputs", [&](const json::Value &value) {
    graph.outputs.push_back(readArgument(value, "outputs"));
  });
  return graph;
}

static InputSpec readInputSpec(const json::Value &value) {
  using Kind = InputSpec::Kind;
  json::Object object = asObject(value, "inputs");
  InputSpec spec;
  spec.kind = readKind<Kind>(object, "input",
                             {{"userinput", Kind::UserInput},
                              {"parameter", Kind::Parameter},
                              {"buffer", Kind::Buffer},
                              {"constant", Kind::Constant},
                              {"object", Kind::Object},
                              {"token", Kind::Token},
                              {"constantinput", Kind::ConstantInput}});
  spec.name = asString(field(object, "name"), "name");
  spec.target = stringOr(object, "target");
  spec.persistent = booleanOr(object, "persistent", true);
  spec.isStatic = booleanOr(object, "isStatic", false);
  if (const json::Value *constant = optionalField(object, "constant"))
    spec.constant = readArgument(*constant, "constant");
  return spec;
}

static OutputSpec readOutputSpec(const json::Value &value) {
  using Kind = OutputSpec::Kind;
  json::Object object = asObject(value, "outputs");
  OutputSpec spec;
  spec.kind = readKind<Kind>(object, "output",
                             {{"useroutput", Kind::UserOutput},
                              {"buffermutation", Kind::BufferMutation},
                              {"inputmutation", Kind::InputMutation},
                              {"parametermutation", Kind::ParameterMutation},
                              {"token", Kind::Token},
                              {"loss", Kind::Loss},
                              {"gradient", Kind::Gradient}});
  spec.target = stringOr(object, "target");
  spec.userVisible = booleanOr(object, "userVisible", true);
  return spec;
}

static Program readProgram(json::Object object) {
  Program program;
  program.graph = readGraph(asObject(field(object, "graph"), "graph"));
  if (const json::Value *graphs = optionalField(object, "graphs"))
    for (auto [name, contents] : asObject(*graphs, "graphs")) {
      Graph graph = readGraph(asObject(contents, name));
      graph.name = name.str();
      program.graphs.emplace(name.str(), std::move(graph));
    }
  forEach(object, "inputs", [&](const json::Value &value) {
    program.inputs.push_back(readInputSpec(value));
  });
  forEach(object, "outputs", [&](const json::Value &value) {
    program.outputs.push_back(readOutputSpec(value));
  });
  forEach(object, "weights", [&](const json::Value &value) {
    json::Object fields = asObject(value, "weights");
    Weight weight;
    weight.target = asString(field(fields, "target"), "target");
    weight.meta = readTensorMeta(asObject(field(fields, "meta"), "meta"));
    weight.record = stringOr(fields, "record");
    weight.object = integerOr(fields, "object", -1);
    weight.isParameter = booleanOr(fields, "isParameter", false);
    program.weights.push_back(std::move(weight));
  });
  forEach(object, "ranges", [&](const json::Value &value) {
    json::Object fields = asObject(value, "ranges");
    RangeConstraint range;
    range.symbol = asString(field(fields, "symbol"), "symbol");
    if (const json::Value *bound = optionalField(fields, "min"))
      range.min = asInteger(*bound, "min");
    if (const json::Value *bound = optionalField(fields, "max"))
      range.max = asInteger(*bound, "max");
    program.ranges.push_back(std::move(range));
  });
  forEach(object, "guards", [&](const json::Value &value) {
    program.guards.push_back(asString(value, "guards"));
  });
  forEach(object, "argumentNames", [&](const json::Value &value) {
    program.argumentNames.push_back(asString(value, "argumentNames"));
  });
  program.functional = booleanOr(object, "functional", true);
  program.inSpec = stringOr(object, "inSpec");
  program.outSpec = stringOr(object, "outSpec");
  program.torchVersion = stringOr(object, "torchVersion");
  return program;
}

llvm::Expected<Program> importer::readJson(StringRef text) {
  try {
    JsonTape tape = parseJson(text, "the graph");
    return readProgram(asObject(tape.root(), "program"));
  } catch (const std::exception &error) {
    return llvm::createStringError(error.what());
  }
}
