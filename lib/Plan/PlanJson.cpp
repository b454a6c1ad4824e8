//===- PlanJson.cpp - Plans and metadata as JSON
//------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The text form in which an artifact ships a plan. Fields are named as in
// Plan.h and left out when they hold their default. A float that JSON cannot
// hold is the string "inf", "-inf" or "nan"; all others are written with the
// digits that give the same double back. Reading checks every field and names
// the place of a fault as a path ("functions[0].steps[3].args[1].kind").
//
//===----------------------------------------------------------------------===//

#include "intarsia/Plan/Metadata.h"
#include "intarsia/Plan/Plan.h"
#include "lib/Support/JsonTape.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <cmath>
#include <limits>
#include <stdexcept>

using namespace intarsia;
using namespace intarsia::plan;
using Json = nlohmann::ordered_json;

namespace {

template <typename Enum>
struct EnumName {
  Enum value;
  const char *name;
};

constexpr EnumName<Arg::Kind> argKinds[] = {
    {Arg::Kind::None, "none"},     {Arg::Kind::Slot, "slot"},
    {Arg::Kind::Expr, "expr"},     {Arg::Kind::Int, "int"},
    {Arg::Kind::Float, "float"},   {Arg::Kind::Bool, "bool"},
    {Arg::Kind::String, "string"}, {Arg::Kind::Complex, "complex"},
    {Arg::Kind::DType, "dtype"},   {Arg::Kind::Device, "device"},
    {Arg::Kind::Layout, "layout"}, {Arg::Kind::MemoryFormat, "memoryFormat"},
    {Arg::Kind::List, "list"},     {Arg::Kind::Object, "object"},
    {Arg::Kind::View, "view"},     {Arg::Kind::Function, "function"},
};
constexpr EnumName<Result::Kind> resultKinds[] = {
    {Result::Kind::Ignore, "ignore"}, {Result::Kind::Tensor, "tensor"},
    {Result::Kind::Number, "number"}, {Result::Kind::List, "list"},
    {Result::Kind::None, "none"},     {Result::Kind::Tied, "tied"},
};
constexpr EnumName<Step::Kind> stepKinds[] = {
    {Step::Kind::Call, "call"},
    {Step::Kind::Alloc, "alloc"},
    {Step::Kind::Launch, "launch"},
    {Step::Kind::View, "view"},
    {Step::Kind::Clone, "clone"},
    {Step::Kind::Copy, "copy"},
    {Step::Kind::Move, "move"},
    {Step::Kind::Free, "free"},
    {Step::Kind::Cond, "cond"},
    {Step::Kind::While, "while"},
    {Step::Kind::Invoke, "invoke"},
    {Step::Kind::Map, "map"},
    {Step::Kind::Scan, "scan"},
    {Step::Kind::Python, "python"},
    {Step::Kind::SetGrad, "setGrad"},
    {Step::Kind::Assert, "assert"},
    {Step::Kind::Autocast, "autocast"},
    {Step::Kind::LaunchForeign, "launchForeign"},
};
constexpr EnumName<Input::Kind> inputKinds[] = {
    {Input::Kind::Tensor, "tensor"},     {Input::Kind::SymInt, "symInt"},
    {Input::Kind::SymFloat, "symFloat"}, {Input::Kind::SymBool, "symBool"},
    {Input::Kind::Constant, "constant"}, {Input::Kind::Object, "object"},
    {Input::Kind::None, "none"},
};
constexpr EnumName<OutputInfo::Kind> outputKinds[] = {
    {OutputInfo::Kind::User, "user"},
    {OutputInfo::Kind::BufferMutation, "bufferMutation"},
    {OutputInfo::Kind::InputMutation, "inputMutation"},
};

constexpr EnumName<Products> productsNames[] = {
    {Products::Auto, "auto"},
    {Products::Eager, "eager"},
    {Products::OneDNN, "onednn"},
};

template <typename Enum, size_t N>
const char *nameOf(const EnumName<Enum> (&table)[N], Enum value) {
  for (const auto &entry : table)
    if (entry.value == value)
      return entry.name;
  return "?";
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Json real(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value > 0 ? "inf" : "-inf";
  return value;
}

/// Strings come from users' source lines and file names: bytes that are not
/// UTF-8 must not make an artifact unwritable.
std::string dump(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T, typename Default>
void put(Json &json, const char *key, const T &value, const Default &none) {
  if (!(value == none))
    json[key] = value;
}
void put(Json &json, const char *key, const std::string &value) {
  if (!value.empty())
    json[key] = value;
}
template <typename T>
void put(Json &json, const char *key, const std::vector<T> &value) {
  if (!value.empty())
    json[key] = value;
}

template <typename T, typename Write>
void putEach(Json &json, const char *key, const std::vector<T> &values,
             Write write) {
  if (values.empty())
    return;
  Json &list = json[key] = Json::array();
  for (const T &value : values)
    list.push_back(write(value));
}

Json write(const TensorSpec &spec) {
  Json json = Json::object();
  json["dtype"] = std::string(dtypeName(spec.dtype));
  json["device"] = spec.device;
  json["sizes"] = spec.sizes;
  json["strides"] = spec.strides;
  return json;
}

void putSpec(Json &json, const std::optional<TensorSpec> &spec) {
  if (spec)
    json["spec"] = write(*spec);
}

Json write(const Arg &arg) {
  Json json = Json::object();
  json["kind"] = nameOf(argKinds, arg.kind);
  switch (arg.kind) {
  case Arg::Kind::None:
    break;
  case Arg::Kind::Slot:
    json["slot"] = arg.slot;
    break;
  case Arg::Kind::Expr:
    json["expr"] = arg.expr;
    break;
  case Arg::Kind::Int:
  case Arg::Kind::Object:
    json["integer"] = arg.integer;
    break;
  case Arg::Kind::Float:
    json["real"] = real(arg.real);
    break;
  case Arg::Kind::Complex:
    json["real"] = real(arg.real);
    json["imaginary"] = real(arg.imaginary);
    break;
  case Arg::Kind::Bool:
    json["boolean"] = arg.boolean;
    break;
  case Arg::Kind::String:
  case Arg::Kind::Device:
  case Arg::Kind::Layout:
  case Arg::Kind::MemoryFormat:
  case Arg::Kind::Function:
    json["text"] = arg.text;
    break;
  case Arg::Kind::DType:
    json["dtype"] = std::string(dtypeName(arg.dtype));
    break;
  case Arg::Kind::List:
    json["list"] = Json::array();
    for (const Arg &member : arg.list)
      json["list"].push_back(write(member));
    break;
  case Arg::Kind::View:
    json["slot"] = arg.slot;
    json["sizes"] = arg.sizes;
    json["strides"] = arg.strides;
    json["offset"] = arg.offset;
    break;
  }
  return json;
}

Json write(const Result &result) {
  Json json = Json::object();
  json["kind"] = nameOf(resultKinds, result.kind);
  put(json, "slot", result.slot, -1);
  putSpec(json, result.spec);
  putEach(json, "list", result.list, [](const Result &r) { return write(r); });
  put(json, "bindsSymbol", result.bindsSymbol, -1);
  put(json, "expect", result.expect, -1);
  put(json, "bindsSize", result.bindsSize);
  put(json, "bindsStride", result.bindsStride);
  return json;
}

Json write(const Step &step) {
  const Step none;
  Json json = Json::object();
  json["kind"] = nameOf(stepKinds, step.kind);
  put(json, "op", step.op);
  putEach(json, "args", step.args, [](const Arg &a) { return write(a); });
  putEach(json, "results", step.results,
          [](const Result &r) { return write(r); });
  put(json, "mutates", step.mutates);
  put(json, "checkAlias", step.checkAlias, none.checkAlias);
  put(json, "autocast", step.autocast);
  put(json, "fixStrides", step.fixStrides, none.fixStrides);
  put(json, "slot", step.slot, none.slot);
  put(json, "source", step.source, none.source);
  putSpec(json, step.spec);
  put(json, "offset", step.offset, none.offset);
  put(json, "kernel", step.kernel, none.kernel);
  put(json, "buffers", step.buffers);
  put(json, "symbols", step.symbols);
  put(json, "domain", step.domain, none.domain);
  put(json, "grain", step.grain, none.grain);
  put(json, "scratch", step.scratch, none.scratch);
  put(json, "threads", step.threads, none.threads);
  put(json, "blocks", step.blocks, none.blocks);
  put(json, "shared", step.shared, none.shared);
  put(json, "extent", step.extent, none.extent);
  for (const Step::Apart &pair : step.apart)
    json["apart"].push_back({pair.written, pair.other, int32_t(pair.orSame)});
  put(json, "slots", step.slots);
  put(json, "functions", step.functions);
  put(json, "carried", step.carried, none.carried);
  put(json, "scanned", step.scanned, none.scanned);
  put(json, "object", step.object, none.object);
  put(json, "flag", step.flag, none.flag);
  put(json, "expr", step.expr, none.expr);
  put(json, "text", step.text);
  put(json, "location", step.location);
  return json;
}

Json write(const Input &input) {
  const Input none;
  Json json = Json::object();
  json["name"] = input.name;
  json["kind"] = nameOf(inputKinds, input.kind);
  put(json, "slot", input.slot, none.slot);
  putSpec(json, input.spec);
  put(json, "symbol", input.symbol, none.symbol);
  put(json, "expr", input.expr, none.expr);
  if (input.kind == Input::Kind::Constant)
    json["constant"] = write(input.constant);
  put(json, "weight", input.weight);
  put(json, "checkStrides", input.checkStrides, none.checkStrides);
  put(json, "mutated", input.mutated, none.mutated);
  return json;
}

Json write(const Symbol &symbol) {
  Json json = Json::object();
  json["name"] = symbol.name;
  put(json, "isFloat", symbol.isFloat, false);
  if (symbol.min)
    json["min"] = *symbol.min;
  if (symbol.max)
    json["max"] = *symbol.max;
  return json;
}

Json write(const Guard &guard) {
  Json json = Json::object();
  json["expr"] = guard.expr;
  put(json, "text", guard.text);
  return json;
}

Json write(const Function &function) {
  Json json = Json::object();
  json["name"] = function.name;
  putEach(json, "exprs", function.exprs,
          [](const SymExpr &e) { return Json(e.str()); });
  putEach(json, "symbols", function.symbols,
          [](const Symbol &s) { return write(s); });
  putEach(json, "inputs", function.inputs,
          [](const Input &i) { return write(i); });
  putEach(json, "guards", function.guards,
          [](const Guard &g) { return write(g); });
  putEach(json, "steps", function.steps,
          [](const Step &s) { return write(s); });
  putEach(json, "outputs", function.outputs,
          [](const Arg &a) { return write(a); });
  json["slotCount"] = function.slotCount;
  put(json, "arenaSize", function.arenaSize, -1);
  return json;
}

Json write(const Kernel &kernel) {
  Json json = Json::object();
  json["symbol"] = kernel.symbol;
  put(json, "summary", kernel.summary);
  json["target"] = kernel.target;
  put(json, "wideSymbol", kernel.wideSymbol);
  putEach(json, "checks", kernel.checks, [](const Check &check) {
    Json json = Json::object();
    json["text"] = check.text;
    put(json, "isIndex", check.isIndex, false);
    return json;
  });
  putEach(json, "variants", kernel.variants,
          [](const Kernel::Variant &variant) {
            Json json = Json::object();
            json["module"] = variant.module;
            json["symbol"] = variant.symbol;
            json["threads"] = variant.threads;
            json["parameters"] = variant.parameters;
            put(json, "scratch", variant.scratch, 0);
            return json;
          });
  return json;
}

Json write(const Operator &op) {
  Json json = Json::object();
  json["name"] = op.name;
  put(json, "schema", op.schema);
  put(json, "fakeLocation", op.fakeLocation);
  put(json, "fromPython", op.fromPython, false);
  put(json, "foreign", op.isForeign, false);
  return json;
}

Json write(const Weight &weight) {
  Json json = Json::object();
  json["name"] = weight.name;
  json["spec"] = write(weight.spec);
  put(json, "record", weight.record);
  put(json, "object", weight.object, -1);
  put(json, "storageOffset", weight.storageOffset, 0);
  put(json, "mutated", weight.mutated, false);
  put(json, "packedFrom", weight.packedFrom);
  put(json, "packedRows", weight.packedRows, 0);
  return json;
}

Json write(const OutputInfo &output) {
  Json json = Json::object();
  json["kind"] = nameOf(outputKinds, output.kind);
  put(json, "target", output.target);
  return json;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// A JSON value and how it was reached, for messages: the path becomes text
/// only when it is needed. A node's parent outlives it.
class Node {
public:
  explicit Node(const JsonTape &tape) : value(tape.root()) {}

  [[noreturn]] void fail(const std::string &what) const {
    std::string place = path();
    throw std::runtime_error(
        "malformed plan: " + (place.empty() ? "top level" : place) + ": " +
        what);
  }

  Node operator[](const char *key) const {
    std::optional<Node> field = get(key);
    if (!field)
      fail(std::string("field '") + key + "' is missing");
    return *field;
  }
  /// The field, when it is there.
  std::optional<Node> get(const char *key) const {
    if (value.kind != Kind::Object)
      fail("an object is expected");
    const JsonTape::Value *field = value.find(key);
    return field ? std::optional(Node(*this, *field, key, 0)) : std::nullopt;
  }
  template <typename Function>
  void each(Function function) const {
    if (value.kind != Kind::Array)
      fail("an array is expected");
    size_t place = 0;
    for (auto *at = value.members(); at != value.next(); at = at->next())
      function(Node(*this, *at, nullptr, place++));
  }

  int64_t integer() const {
    if (value.kind != Kind::Integer)
      fail("an integer is expected");
    return value.integer;
  }
  int32_t index() const {
    int64_t number = integer();
    if (number < -1 || number > std::numeric_limits<int32_t>::max())
      fail("an index is expected, got " + std::to_string(number));
    return int32_t(number);
  }
  bool boolean() const {
    if (value.kind != Kind::Boolean)
      fail("true or false is expected");
    return value.boolean;
  }
  double real() const {
    if (value.kind == Kind::String) {
      if (value.text == "inf")
        return std::numeric_limits<double>::infinity();
      if (value.text == "-inf")
        return -std::numeric_limits<double>::infinity();
      if (value.text == "nan")
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (value.kind != Kind::Integer && value.kind != Kind::Real)
      fail("a number is expected");
    return value.real;
  }
  std::string text() const { return std::string(view()); }
  std::string_view view() const {
    if (value.kind != Kind::String)
      fail("a string is expected");
    return value.text;
  }
  DType dtype() const {
    std::optional<DType> known = dtypeFromName(view());
    if (!known)
      fail("unknown dtype '" + text() + "'");
    return *known;
  }
  template <typename Enum, size_t N>
  Enum oneOf(const EnumName<Enum> (&table)[N]) const {
    for (const auto &entry : table)
      if (view() == entry.name)
        return entry.value;
    fail("unknown kind '" + text() + "'");
  }
  std::vector<int32_t> indices() const {
    std::vector<int32_t> values;
    each([&](const Node &node) { values.push_back(node.index()); });
    return values;
  }
  std::vector<std::pair<int32_t, int32_t>> pairs() const {
    std::vector<std::pair<int32_t, int32_t>> values;
    each([&](const Node &node) {
      std::vector<int32_t> pair = node.indices();
      if (pair.size() != 2)
        node.fail("a pair is expected");
      values.emplace_back(pair[0], pair[1]);
    });
    return values;
  }

private:
  using Kind = JsonTape::Value::Kind;

  Node(const Node &parent, const JsonTape::Value &value, const char *key,
       size_t place)
      : value(value), parent(&parent), key(key), place(place) {}

  std::string path() const {
    if (!parent)
      return "";
    std::string before = parent->path();
    if (!key)
      return before + "[" + std::to_string(place) + "]";
    return before.empty() ? key : before + "." + key;
  }

  const JsonTape::Value &value;
  const Node *parent = nullptr;
  const char *key = nullptr; // null: member `place` of an array
  size_t place = 0;
};

void read(const Node &node, const char *key, std::string &value) {
  if (auto field = node.get(key))
    value = field->text();
}
void read(const Node &node, const char *key, int32_t &value) {
  if (auto field = node.get(key))
    value = field->index();
}
void read(const Node &node, const char *key, int64_t &value) {
  if (auto field = node.get(key))
    value = field->integer();
}
void read(const Node &node, const char *key, bool &value) {
  if (auto field = node.get(key))
    value = field->boolean();
}
void read(const Node &node, const char *key, std::vector<int32_t> &value) {
  if (auto field = node.get(key))
    value = field->indices();
}
template <typename T, typename Read>
void readEach(const Node &node, const char *key, std::vector<T> &values,
              Read read) {
  if (auto field = node.get(key))
    field->each([&](const Node &member) { values.push_back(read(member)); });
}

TensorSpec readSpec(const Node &node) {
  TensorSpec spec;
  spec.dtype = node["dtype"].dtype();
  spec.device = node["device"].text();
  spec.sizes = node["sizes"].indices();
  spec.strides = node["strides"].indices();
  if (spec.sizes.size() != spec.strides.size())
    node.fail("as many strides as sizes are expected");
  return spec;
}

void readSpec(const Node &node, std::optional<TensorSpec> &spec) {
  if (auto field = node.get("spec"))
    spec = readSpec(*field);
}

/// Lists nest no deeper in any schema that PyTorch accepts; the bound keeps a
/// hostile file from overflowing the stack.
constexpr int maxDepth = 16;

Arg readArg(const Node &node, int depth = 0) {
  if (depth > maxDepth)
    node.fail("lists are nested too deeply");
  Arg arg;
  arg.kind = node["kind"].oneOf(argKinds);
  switch (arg.kind) {
  case Arg::Kind::None:
    break;
  case Arg::Kind::Slot:
    arg.slot = node["slot"].index();
    break;
  case Arg::Kind::Expr:
    arg.expr = node["expr"].index();
    break;
  case Arg::Kind::Int:
  case Arg::Kind::Object:
    arg.integer = node["integer"].integer();
    break;
  case Arg::Kind::Float:
    arg.real = node["real"].real();
    break;
  case Arg::Kind::Complex:
    arg.real = node["real"].real();
    arg.imaginary = node["imaginary"].real();
    break;
  case Arg::Kind::Bool:
    arg.boolean = node["boolean"].boolean();
    break;
  case Arg::Kind::String:
  case Arg::Kind::Device:
  case Arg::Kind::Layout:
  case Arg::Kind::MemoryFormat:
  case Arg::Kind::Function:
    arg.text = node["text"].text();
    break;
  case Arg::Kind::DType:
    arg.dtype = node["dtype"].dtype();
    break;
  case Arg::Kind::List:
    node["list"].each([&](const Node &member) {
      arg.list.push_back(readArg(member, depth + 1));
    });
    break;
  case Arg::Kind::View:
    arg.slot = node["slot"].index();
    arg.sizes = node["sizes"].indices();
    arg.strides = node["strides"].indices();
    arg.offset = node["offset"].index();
    if (arg.sizes.size() != arg.strides.size())
      node.fail("as many strides as sizes are expected");
    break;
  }
  return arg;
}

Result readResult(const Node &node, int depth = 0) {
  if (depth > maxDepth)
    node.fail("lists are nested too deeply");
  Result result;
  result.kind = node["kind"].oneOf(resultKinds);
  read(node, "slot", result.slot);
  readSpec(node, result.spec);
  readEach(node, "list", result.list,
           [&](const Node &member) { return readResult(member, depth + 1); });
  read(node, "bindsSymbol", result.bindsSymbol);
  read(node, "expect", result.expect);
  if (auto field = node.get("bindsSize"))
    result.bindsSize = field->pairs();
  if (auto field = node.get("bindsStride"))
    result.bindsStride = field->pairs();
  return result;
}

Step readStep(const Node &node) {
  Step step;
  step.kind = node["kind"].oneOf(stepKinds);
  read(node, "op", step.op);
  readEach(node, "args", step.args, [](const Node &n) { return readArg(n); });
  readEach(node, "results", step.results,
           [](const Node &n) { return readResult(n); });
  read(node, "mutates", step.mutates);
  read(node, "checkAlias", step.checkAlias);
  read(node, "autocast", step.autocast);
  read(node, "fixStrides", step.fixStrides);
  read(node, "slot", step.slot);
  read(node, "source", step.source);
  readSpec(node, step.spec);
  read(node, "offset", step.offset);
  read(node, "kernel", step.kernel);
  read(node, "buffers", step.buffers);
  read(node, "symbols", step.symbols);
  read(node, "domain", step.domain);
  read(node, "grain", step.grain);
  read(node, "scratch", step.scratch);
  read(node, "threads", step.threads);
  read(node, "blocks", step.blocks);
  read(node, "shared", step.shared);
  read(node, "extent", step.extent);
  readEach(node, "apart", step.apart, [](const Node &n) {
    std::vector<int32_t> numbers;
    n.each([&](const Node &number) { numbers.push_back(number.index()); });
    if (numbers.size() != 3)
      n.fail("is not three numbers");
    return Step::Apart{numbers[0], numbers[1], numbers[2] != 0};
  });
  read(node, "slots", step.slots);
  readEach(node, "functions", step.functions,
           [](const Node &n) { return n.text(); });
  read(node, "carried", step.carried);
  read(node, "scanned", step.scanned);
  read(node, "object", step.object);
  read(node, "flag", step.flag);
  read(node, "expr", step.expr);
  read(node, "text", step.text);
  read(node, "location", step.location);
  return step;
}

Input readInput(const Node &node) {
  Input input;
  input.name = node["name"].text();
  input.kind = node["kind"].oneOf(inputKinds);
  read(node, "slot", input.slot);
  readSpec(node, input.spec);
  read(node, "symbol", input.symbol);
  read(node, "expr", input.expr);
  if (auto field = node.get("constant"))
    input.constant = readArg(*field);
  read(node, "weight", input.weight);
  read(node, "checkStrides", input.checkStrides);
  read(node, "mutated", input.mutated);
  return input;
}

Symbol readSymbol(const Node &node) {
  Symbol symbol;
  symbol.name = node["name"].text();
  read(node, "isFloat", symbol.isFloat);
  if (auto field = node.get("min"))
    symbol.min = field->integer();
  if (auto field = node.get("max"))
    symbol.max = field->integer();
  return symbol;
}

Guard readGuard(const Node &node) {
  Guard guard;
  guard.expr = node["expr"].index();
  read(node, "text", guard.text);
  return guard;
}

SymExpr readExpr(const Node &node) {
  std::string text = node.text(), error;
  std::optional<SymExpr> expr = SymExpr::parse(text, &error);
  if (!expr)
    node.fail("cannot read the expression '" + text + "': " + error);
  return *expr;
}

Function readFunction(const Node &node) {
  Function function;
  function.name = node["name"].text();
  readEach(node, "exprs", function.exprs, readExpr);
  readEach(node, "symbols", function.symbols, readSymbol);
  readEach(node, "inputs", function.inputs, readInput);
  readEach(node, "guards", function.guards, readGuard);
  readEach(node, "steps", function.steps, readStep);
  readEach(node, "outputs", function.outputs,
           [](const Node &n) { return readArg(n); });
  function.slotCount = node["slotCount"].index();
  read(node, "arenaSize", function.arenaSize);
  return function;
}

Kernel readKernel(const Node &node) {
  Kernel kernel;
  kernel.symbol = node["symbol"].text();
  read(node, "summary", kernel.summary);
  kernel.target = node["target"].text();
  read(node, "wideSymbol", kernel.wideSymbol);
  readEach(node, "checks", kernel.checks, [](const Node &node) {
    Check check;
    check.text = node["text"].text();
    read(node, "isIndex", check.isIndex);
    return check;
  });
  readEach(node, "variants", kernel.variants, [](const Node &node) {
    Kernel::Variant variant;
    variant.module = node["module"].text();
    variant.symbol = node["symbol"].text();
    variant.threads = node["threads"].integer();
    readEach(node, "parameters", variant.parameters,
             [](const Node &n) { return n.text(); });
    read(node, "scratch", variant.scratch);
    return variant;
  });
  return kernel;
}

Operator readOperator(const Node &node) {
  Operator op;
  op.name = node["name"].text();
  read(node, "schema", op.schema);
  read(node, "fakeLocation", op.fakeLocation);
  read(node, "fromPython", op.fromPython);
  read(node, "foreign", op.isForeign);
  return op;
}

Weight readWeight(const Node &node) {
  Weight weight;
  weight.name = node["name"].text();
  weight.spec = readSpec(node["spec"]);
  read(node, "record", weight.record);
  read(node, "object", weight.object);
  read(node, "storageOffset", weight.storageOffset);
  read(node, "mutated", weight.mutated);
  read(node, "packedFrom", weight.packedFrom);
  read(node, "packedRows", weight.packedRows);
  return weight;
}

OutputInfo readOutput(const Node &node) {
  OutputInfo output;
  output.kind = node["kind"].oneOf(outputKinds);
  read(node, "target", output.target);
  return output;
}

JsonTape parse(const std::string &text, const char *what) {
  try {
    return JsonTape(text);
  } catch (const std::runtime_error &error) {
    throw std::runtime_error(std::string("malformed ") + what + ": " +
                             error.what());
  }
}

} // namespace

std::string plan::toJson(const Plan &plan) {
  Json json = Json::object();
  putEach(json, "functions", plan.functions,
          [](const Function &f) { return write(f); });
  putEach(json, "kernels", plan.kernels,
          [](const Kernel &k) { return write(k); });
  putEach(json, "operators", plan.operators,
          [](const Operator &o) { return write(o); });
  putEach(json, "weights", plan.weights,
          [](const Weight &w) { return write(w); });
  putEach(json, "outputs", plan.outputs,
          [](const OutputInfo &o) { return write(o); });
  put(json, "inSpec", plan.inSpec);
  put(json, "outSpec", plan.outSpec);
  put(json, "strict", plan.strict, false);
  if (plan.products != Products::Auto)
    json["products"] = nameOf(productsNames, plan.products);
  return dump(json);
}

Plan plan::fromJson(const std::string &text) {
  JsonTape json = parse(text, "plan");
  Node node(json);
  Plan plan;
  readEach(node, "functions", plan.functions, readFunction);
  readEach(node, "kernels", plan.kernels, readKernel);
  readEach(node, "operators", plan.operators, readOperator);
  readEach(node, "weights", plan.weights, readWeight);
  readEach(node, "outputs", plan.outputs, readOutput);
  read(node, "inSpec", plan.inSpec);
  read(node, "outSpec", plan.outSpec);
  read(node, "strict", plan.strict);
  if (auto field = node.get("products"))
    plan.products = field->oneOf(productsNames);
  if (plan.functions.empty())
    node.fail("there is no function");
  return plan;
}

std::optional<plan::Products> plan::productsFromName(std::string_view name) {
  for (const auto &entry : productsNames)
    if (name == entry.name)
      return entry.value;
  return std::nullopt;
}

/// Numbers between dots.
static bool isVersion(const std::string &text) {
  bool wasDigit = false;
  for (char c : text) {
    bool isDigit = std::isdigit(static_cast<unsigned char>(c));
    if (!isDigit && (c != '.' || !wasDigit))
      return false;
    wasDigit = isDigit;
  }
  return wasDigit;
}

bool plan::versionLess(const std::string &a, const std::string &b) {
  auto numbers = [](const std::string &text) {
    std::vector<int> result;
    size_t at = 0;
    while (at < text.size() &&
           std::isdigit(static_cast<unsigned char>(text[at])) &&
           result.size() < 3) {
      size_t length = 0;
      result.push_back(std::stoi(text.substr(at, 8), &length));
      at += length;
      if (at < text.size() && text[at] == '.')
        ++at;
      else
        break;
    }
    result.resize(3);
    return result;
  };
  return numbers(a) < numbers(b);
}

std::string plan::toJson(const Metadata &metadata) {
  Json json = Json::object();
  json["format"] = metadata.format;
  json["intarsiaVersion"] = metadata.intarsiaVersion;
  json["torchVersion"] = metadata.torchVersion;
  put(json, "torchMin", metadata.torchMin);
  put(json, "torchEnd", metadata.torchEnd);
  json["targets"] = Json::array();
  for (const Metadata::Target &target : metadata.targets) {
    Json entry = Json::object();
    entry["name"] = target.name;
    entry["folder"] = target.folder;
    put(entry, "cpu", target.cpu);
    put(entry, "features", target.features);
    put(entry, "kernelsHash", target.kernelsHash);
    for (const Metadata::Image &image : target.images) {
      Json file = {{"arch", image.arch}, {"file", image.file}};
      put(file, "module", image.module);
      put(file, "shared", image.shared, 0);
      entry["images"].push_back(std::move(file));
    }
    json["targets"].push_back(std::move(entry));
  }
  for (const Metadata::Library &library : metadata.libraries)
    json["libraries"].push_back(
        {{"name", library.name}, {"hash", library.hash}});
  json["codeDigest"] = metadata.codeDigest;
  put(json, "modules", metadata.modules);
  put(json, "program", metadata.program);
  put(json, "programDigest", metadata.programDigest);
  json["operators"] = Json::array();
  for (const Operator &op : metadata.operators)
    json["operators"].push_back(write(op));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Metadata plan::metadataFromJson(const std::string &text) {
  JsonTape json = parse(text, "metadata");
  Node node(json);
  Metadata metadata;
  metadata.format = node["format"].integer();
  read(node, "intarsiaVersion", metadata.intarsiaVersion);
  read(node, "torchVersion", metadata.torchVersion);
  for (auto [key, version] : {std::pair("torchMin", &metadata.torchMin),
                              std::pair("torchEnd", &metadata.torchEnd)}) {
    read(node, key, *version);
    if (!version->empty() && !isVersion(*version))
      node[key].fail("'" + *version + "' is no version");
  }
  if (metadata.torchMin.empty() != metadata.torchEnd.empty())
    node.fail("of torchMin and torchEnd only one is there");
  readEach(node, "targets", metadata.targets, [](const Node &n) {
    Metadata::Target target;
    target.name = n["name"].text();
    target.folder = n["folder"].text();
    read(n, "cpu", target.cpu);
    readEach(n, "features", target.features,
             [](const Node &feature) { return feature.text(); });
    read(n, "kernelsHash", target.kernelsHash);
    readEach(n, "images", target.images, [](const Node &node) {
      Metadata::Image image{node["arch"].text(), node["file"].text()};
      read(node, "module", image.module);
      read(node, "shared", image.shared);
      return image;
    });
    return target;
  });
  readEach(node, "libraries", metadata.libraries, [](const Node &n) {
    return Metadata::Library{n["name"].text(), n["hash"].text()};
  });
  readEach(node, "modules", metadata.modules,
           [](const Node &n) { return n.text(); });
  read(node, "codeDigest", metadata.codeDigest);
  read(node, "program", metadata.program);
  read(node, "programDigest", metadata.programDigest);
  readEach(node, "operators", metadata.operators, readOperator);
  return metadata;
}
