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

using namespace intarsia;
using namespace intarsia::importer;
using llvm::StringRef;
using llvm::Twine;

using Kind = json::Value::Kind;

JsonTape importer::parseJson(StringRef text, StringRef what) {
  try {
    return JsonTape(text);
  } catch (const std::runtime_error &error) {
    throw ReadError(what + " is not JSON: " + error.what());
  }
}

static StringRef kindName(Kind kind) {
  switch (kind) {
  case Kind::Null:
    return "null";
  case Kind::Boolean:
    return "a boolean";
  case Kind::Integer:
  case Kind::Real:
    return "a number";
  case Kind::String:
    return "a string";
  case Kind::Array:
    return "an array";
  case Kind::Object:
    return "an object";
  }
  return "";
}

[[noreturn]] static void failKind(const json::Value &value, StringRef what,
                                  StringRef expected) {
  throw ReadError("'" + what + "' is " + kindName(value.kind) + " where " +
                  expected + " is expected");
}

json::Object importer::asObject(const json::Value &value, StringRef what) {
  if (value.kind != Kind::Object)
    failKind(value, what, "an object");
  return json::Object(value);
}

json::Array importer::asArray(const json::Value &value, StringRef what) {
  if (value.kind != Kind::Array)
    failKind(value, what, "an array");
  return json::Array(value);
}

std::string importer::asString(const json::Value &value, StringRef what) {
  if (value.kind != Kind::String)
    failKind(value, what, "a string");
  return std::string(value.text);
}

int64_t importer::asInteger(const json::Value &value, StringRef what) {
  if (value.kind != Kind::Integer)
    failKind(value, what, "a 64-bit integer");
  return value.integer;
}

bool importer::asBoolean(const json::Value &value, StringRef what) {
  if (value.kind != Kind::Boolean)
    failKind(value, what, "a boolean");
  return value.boolean;
}

double importer::asReal(const json::Value &value, StringRef what) {
  if (value.kind == Kind::Integer || value.kind == Kind::Real)
    return value.real;
  if (value.kind == Kind::String) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::string lower = StringRef(value.text).lower();
    if (lower == "inf" || lower == "infinity")
      return kInfinity;
    if (lower == "-inf" || lower == "-infinity")
      return -kInfinity;
    if (lower == "nan")
      return std::numeric_limits<double>::quiet_NaN();
  }
  failKind(value, what, "a number");
}

const json::Value &importer::field(json::Object object, StringRef name) {
  if (const json::Value *value = object.get(name))
    return *value;
  throw ReadError("the field '" + name + "' is missing");
}

const json::Value *importer::optionalField(json::Object object,
                                           StringRef name) {
  const json::Value *value = object.get(name);
  return value && value->kind != Kind::Null ? value : nullptr;
}

json::Object::Member importer::unionMember(const json::Value &value,
                                           StringRef what) {
  StringRef found;
  const json::Value *contents = nullptr;
  for (auto [name, member] : asObject(value, what)) {
    if (member.kind == Kind::Null)
      continue;
    if (contents)
      throw ReadError("'" + what + "' has two members, '" + found + "' and '" +
                      name + "'");
    found = name;
    contents = &member;
  }
  if (!contents)
    throw ReadError("'" + what + "' has no member");
  return {found, *contents};
}

SymExpr importer::asExpr(const json::Value &value, StringRef what) {
  if (value.kind == Kind::Boolean)
    return SymExpr::boolean(value.boolean);
  if (value.kind == Kind::Integer)
    return SymExpr::integer(value.integer);
  if (value.kind == Kind::Real)
    return SymExpr::real(value.real);
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
  json::Object object = asObject(json, what);
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
    if (value.kind == json::Value::Kind::Array) {
      json::Array parts(value);
      if (parts.size() != 2)
        throw ReadError("'" + what + "': a complex number has two parts");
      argument.real = asReal(*parts.begin(), what);
      argument.imaginary = asReal(*std::next(parts.begin()), what);
      break;
    }
    json::Object parts = asObject(value, what);
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
