//===- JsonReading.cpp - Checked access to untrusted JSON
//------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What both readers and the schema parser share.
//
//===----------------------------------------------------------------------===//

#include "JsonReading.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>
#include <nlohmann/json.hpp>

using namespace intarsia;
using namespace intarsia::importer;
namespace json = llvm::json;
using llvm::StringRef;
using llvm::Twine;

/// llvm::json recurses once a level; a hostile text must not exhaust the stack.
static constexpr int kMaximalNesting = 256;

json::Value importer::parseJson(StringRef text, StringRef what) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inString = false;
    } else if (c == '"') {
      inString = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaximalNesting)
        throw ReadError(what + " is nested too deeply");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  llvm::Expected<json::Value> value = json::parse(text);
  if (!value)
    throw ReadError(what +
                    " is not JSON: " + llvm::toString(value.takeError()));
  return std::move(*value);
}

static StringRef kindName(const json::Value &value) {
  switch (value.kind()) {
  case json::Value::Null:
    return "null";
  case json::Value::Boolean:
    return "a boolean";
  case json::Value::Number:
    return "a number";
  case json::Value::String:
    return "a string";
  case json::Value::Array:
    return "an array";
  case json::Value::Object:
    return "an object";
  }
  return "";
}

[[noreturn]] static void failKind(const json::Value &value, StringRef what,
                                  StringRef expected) {
  throw ReadError("'" + what + "' is " + kindName(value) + " where " +
                  expected + " is expected");
}

const json::Object &importer::asObject(const json::Value &value,
                                       StringRef what) {
  if (const json::Object *object = value.getAsObject())
    return *object;
  failKind(value, what, "an object");
}

const json::Array &importer::asArray(const json::Value &value, StringRef what) {
  if (const json::Array *array = value.getAsArray())
    return *array;
  failKind(value, what, "an array");
}

std::string importer::asString(const json::Value &value, StringRef what) {
  if (std::optional<StringRef> text = value.getAsString())
    return text->str();
  failKind(value, what, "a string");
}

int64_t importer::asInteger(const json::Value &value, StringRef what) {
  if (value.kind() == json::Value::Number)
    if (std::optional<int64_t> integer = value.getAsInteger())
      return *integer;
  failKind(value, what, "a 64-bit integer");
}

bool importer::asBoolean(const json::Value &value, StringRef what) {
  if (std::optional<bool> boolean = value.getAsBoolean())
    return *boolean;
  failKind(value, what, "a boolean");
}

double importer::asReal(const json::Value &value, StringRef what) {
  if (std::optional<double> number = value.getAsNumber())
    return *number;
  if (std::optional<StringRef> text = value.getAsString()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::string lower = text->lower();
    if (lower == "inf" || lower == "infinity")
      return kInfinity;
    if (lower == "-inf" || lower == "-infinity")
      return -kInfinity;
    if (lower == "nan")
      return std::numeric_limits<double>::quiet_NaN();
  }
  failKind(value, what, "a number");
}

const json::Value &importer::field(const json::Object &object, StringRef name) {
  if (const json::Value *value = object.get(name))
    return *value;
  throw ReadError("the field '" + name + "' is missing");
}

const json::Value *importer::optionalField(const json::Object &object,
                                           StringRef name) {
  const json::Value *value = object.get(name);
  return value && value->kind() != json::Value::Null ? value : nullptr;
}

std::pair<StringRef, const json::Value *>
importer::unionMember(const json::Value &value, StringRef what) {
  const json::Object &object = asObject(value, what);
  std::pair<StringRef, const json::Value *> member{"", nullptr};
  for (const auto &[name, contents] : object) {
    if (contents.kind() == json::Value::Null)
      continue;
    if (member.second)
      throw ReadError("'" + what + "' has two members, '" + member.first +
                      "' and '" + StringRef(name) + "'");
    member = {name, &contents};
  }
  if (!member.second)
    throw ReadError("'" + what + "' has no member");
  return member;
}

std::map<std::vector<std::string>, std::vector<std::string>>
importer::keyOrders(const std::string &text, const std::string &member) {
  std::map<std::vector<std::string>, std::vector<std::string>> orders;
  if (!StringRef(text).contains(member))
    return orders;
  auto note = [&](const nlohmann::ordered_json &object) {
    std::vector<std::string> written;
    for (const auto &[key, value] : object.items())
      written.push_back(key);
    std::vector<std::string> sorted = written;
    llvm::sort(sorted);
    if (orders.try_emplace(std::move(sorted), written).first->second != written)
      throw ReadError("two dictionaries have the same keys ('" +
                      llvm::join(written, "', '") +
                      "') in different orders, which is not supported");
  };
  std::function<void(const nlohmann::ordered_json &)> visit =
      [&](const nlohmann::ordered_json &value) {
        for (const auto &[key, contents] : value.items()) {
          if (value.is_object() && key == member && contents.is_object())
            note(contents);
          if (contents.is_structured())
            visit(contents);
        }
      };
  visit(nlohmann::ordered_json::parse(text));
  return orders;
}

SymExpr importer::asExpr(const json::Value &value, StringRef what) {
  if (value.kind() == json::Value::Boolean)
    return SymExpr::boolean(asBoolean(value, what));
  if (value.kind() == json::Value::Number) {
    if (std::optional<int64_t> integer = value.getAsInteger())
      return SymExpr::integer(*integer);
    return SymExpr::real(asReal(value, what));
  }
  std::string text = asString(value, what), error;
  if (std::optional<SymExpr> expr = SymExpr::parseSympy(text, &error))
    return *expr;
  throw ReadError("'" + what + "' is not an expression that Intarsia knows: " +
                  error + ", in: " + text);
}

SymExpr importer::asIntegerExpr(SymExpr expr, StringRef what) {
  if (expr.mayBeReal())
    throw ReadError("'" + what + "' has '" + expr.str() +
                    "', which is no integer");
  return expr;
}

SymExpr importer::asExtent(SymExpr expr, StringRef what) {
  if (expr.isBoolean())
    throw ReadError("'" + what + "' has the condition '" + expr.str() +
                    "' where a number must be");
  return asIntegerExpr(std::move(expr), what);
}

/// "SymInt", "sym_int" and "symint" are the same.
static std::string plainName(StringRef name) {
  std::string plain;
  for (char c : name)
    if (c != '_')
      plain.push_back(llvm::toLower(c));
  return plain;
}

static Argument::Kind argumentKind(StringRef name) {
  using Kind = Argument::Kind;
  std::optional<Kind> kind =
      llvm::StringSwitch<std::optional<Kind>>(plainName(name))
          .Case("none", Kind::None)
          .Case("value", Kind::Value)
          .Case("symint", Kind::SymInt)
          .Case("symfloat", Kind::SymFloat)
          .Case("symbool", Kind::SymBool)
          .Case("int", Kind::Int)
          .Case("float", Kind::Float)
          .Case("bool", Kind::Bool)
          .Case("string", Kind::String)
          .Case("complex", Kind::Complex)
          .Case("dtype", Kind::DType)
          .Case("device", Kind::Device)
          .Case("layout", Kind::Layout)
          .Case("memoryformat", Kind::MemoryFormat)
          .Case("list", Kind::List)
          .Case("graph", Kind::Graph)
          .Case("operator", Kind::Operator)
          .Case("object", Kind::Object)
          .Default(std::nullopt);
  if (!kind)
    throw ReadError("there is no kind of argument '" + name + "'");
  return *kind;
}

static DType readDType(StringRef text, StringRef what) {
  StringRef name = text;
  name.consume_front("torch.");
  if (std::optional<DType> dtype = dtypeFromTorchName(name))
    return *dtype;
  if (std::optional<DType> dtype = dtypeFromName(name))
    return *dtype;
  throw ReadError("'" + what + "' is '" + text +
                  "', a dtype that Intarsia does not support");
}

Argument importer::readArgument(const json::Value &json, StringRef what) {
  const json::Object &object = asObject(json, what);
  Argument argument;
  argument.kind = argumentKind(asString(field(object, "kind"), "kind"));
  if (argument.kind == Argument::Kind::None)
    return argument;
  const json::Value &value = field(object, "value");
  switch (argument.kind) {
  case Argument::Kind::None:
    break;
  case Argument::Kind::Value:
  case Argument::Kind::String:
  case Argument::Kind::Device:
  case Argument::Kind::Graph:
    argument.text = asString(value, what);
    break;
  case Argument::Kind::Layout:
  case Argument::Kind::MemoryFormat: {
    std::string text = asString(value, what);
    StringRef name = text;
    name.consume_front("torch.");
    argument.text = name.str();
    break;
  }
  case Argument::Kind::Operator:
    argument.text = operatorName(asString(value, what));
    break;
  case Argument::Kind::SymInt:
  case Argument::Kind::SymFloat:
  case Argument::Kind::SymBool:
    argument.expr = asExpr(value, what);
    if (argument.kind == Argument::Kind::SymInt)
      argument.expr = asIntegerExpr(std::move(argument.expr), what);
    break;
  case Argument::Kind::Int:
  case Argument::Kind::Object:
    argument.integer = asInteger(value, what);
    break;
  case Argument::Kind::Float:
    argument.real = asReal(value, what);
    break;
  case Argument::Kind::Bool:
    argument.boolean = asBoolean(value, what);
    break;
  case Argument::Kind::Complex: {
    if (const json::Array *parts = value.getAsArray()) {
      if (parts->size() != 2)
        throw ReadError("'" + what + "': a complex number has two parts");
      argument.real = asReal((*parts)[0], what);
      argument.imaginary = asReal((*parts)[1], what);
      break;
    }
    const json::Object &parts = asObject(value, what);
    argument.real = asReal(field(parts, "real"), "real");
    argument.imaginary = asReal(field(parts, "imaginary"), "imaginary");
    break;
  }
  case Argument::Kind::DType:
    argument.dtype = readDType(asString(value, what), what);
    break;
  case Argument::Kind::List:
    for (const json::Value &element : asArray(value, what))
      argument.list.push_back(readArgument(element, what));
    break;
  }
  return argument;
}

std::string importer::operatorName(StringRef target) {
  // Already in our form.
  if (target.contains("::")) {
    target.consume_back(".default");
    return target.str();
  }
  if (target.consume_front("torch.ops.")) {
    // "space.name.overload", where the space may have dots; a higher-order
    // operator has no overloads.
    auto [path, overload] = target.rsplit('.');
    auto [space, name] = path.rsplit('.');
    if (name.empty())
      return (path + "::" + overload).str();
    std::string full = (space + "::" + name).str();
    return overload == "default" ? full : full + "." + overload.str();
  }
  // A Python function: everything up to the last dot is its module.
  auto [space, name] =
      target.starts_with("torch.") ? target.rsplit('.') : target.split('.');
  if (name.empty())
    return target.str();
  return (space + "::" + name).str();
}
