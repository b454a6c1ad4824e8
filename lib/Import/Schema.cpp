//===- Schema.cpp - Operator schemas from JSON
//-----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads what the shim's `intarsia_torch_operator_schema` says of an operator:
//
//   {"name": "mylib::op.overload", "schema": "mylib::op.overload(...) -> ...",
//    "arguments": [{"name": "x", "type": "Tensor", "kwarg_only": false,
//                   "default": {"kind": "int", "value": 1},   absent: none
//                   "alias_set": ["a"], "is_write": true}],
//    "returns": [...], "tags": ["pt2_compliant_tag"],
//    "fake": "file.cpp:12"}
//
//===----------------------------------------------------------------------===//

#include "intarsia/Import/Schema.h"
#include "JsonReading.h"

using namespace intarsia;
using namespace intarsia::importer;

static std::vector<SchemaArgument> readArguments(json::Object object,
                                                 llvm::StringRef name) {
  std::vector<SchemaArgument> arguments;
  for (const json::Value &value : asArray(field(object, name), name)) {
    json::Object fields = asObject(value, name);
    SchemaArgument argument;
    if (const json::Value *text = optionalField(fields, "name"))
      argument.name = asString(*text, "name");
    argument.type = asString(field(fields, "type"), "type");
    if (const json::Value *flag = optionalField(fields, "kwarg_only"))
      argument.kwargOnly = asBoolean(*flag, "kwarg_only");
    if (const json::Value *flag = optionalField(fields, "is_write"))
      argument.isWrite = asBoolean(*flag, "is_write");
    if (const json::Value *set = optionalField(fields, "alias_set"))
      for (const json::Value &alias : asArray(*set, "alias_set"))
        argument.aliasSet.push_back(asString(alias, "alias_set"));
    if (const json::Value *value = optionalField(fields, "default"))
      argument.defaultValue = readArgument(*value, "default");
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

std::optional<OperatorSchema>
intarsia::importer::parseOperatorSchema(const std::string &text) {
  try {
    JsonTape tape = parseJson(text, "the schema");
    json::Object object = asObject(tape.root(), "schema");
    OperatorSchema schema;
    schema.name = operatorName(asString(field(object, "name"), "name"));
    schema.schema = asString(field(object, "schema"), "schema");
    schema.arguments = readArguments(object, "arguments");
    schema.returns = readArguments(object, "returns");
    if (const json::Value *tags = optionalField(object, "tags"))
      for (const json::Value &tag : asArray(*tags, "tags"))
        schema.tags.push_back(asString(tag, "tags"));
    if (const json::Value *location = optionalField(object, "fake"))
      schema.fakeLocation = asString(*location, "fake");
    if (const json::Value *place = optionalField(object, "debug"))
      schema.fromPython =
          llvm::StringRef(asString(*place, "debug")).contains(".py:");
    if (const json::Value *flag = optionalField(object, "foreign"))
      schema.isForeign = asBoolean(*flag, "foreign");
    return schema;
  } catch (const ReadError &) {
    return std::nullopt;
  }
}
