//===- Schema.h - What PyTorch says of an operator -*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The schema and the tags of a registered operator, as the shim reads them from
// PyTorch's dispatcher (`SchemaProvider`), so that the importer needs no torch.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_IMPORT_SCHEMA_H
#define INTARSIA_IMPORT_SCHEMA_H

#include "intarsia/Import/ImportGraph.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::importer {

struct SchemaArgument {
  std::string name;
  /// As PyTorch prints it without alias annotations: "Tensor", "Tensor?",
  /// "Tensor[]", "Tensor?[]", "SymInt", "SymInt[]", "int[2]", "Scalar",
  /// "ScalarType?", "Device", "str", "Generator?", ...
  std::string type;
  bool kwargOnly = false;
  std::optional<Argument> defaultValue;
  std::vector<std::string> aliasSet; // "a" of Tensor(a!), "*" for a wildcard
  bool isWrite = false;
};

struct OperatorSchema {
  std::string name;   // "mylib::op.overload"
  std::string schema; // whole text
  std::vector<SchemaArgument> arguments;
  std::vector<SchemaArgument> returns;
  std::vector<std::string>
      tags; // "pt2_compliant_tag", "needs_exact_strides", ...
  /// Where a C++ fake implementation (a Meta kernel) was registered,
  /// "file.cpp:12"; "" when there is none, or it is a Python function.
  std::string fakeLocation;
  /// Registered by Python code.
  bool fromPython = false;
  /// In PyTorch's own namespace, but the operator, or a kernel of it, is
  /// somebody else's: it is not what its name says.
  bool isForeign = false;
};

/// Parses the JSON that `intarsia_torch_operator_schema` of the shim returns
/// (its header documents the form). Nullopt on malformed text.
std::optional<OperatorSchema> parseOperatorSchema(const std::string &json);

/// Looks an operator up by name; nullopt: not registered in this process.
/// Thread-safe.
using SchemaProvider =
    std::function<std::optional<OperatorSchema>(const std::string &name)>;

} // namespace intarsia::importer

#endif // INTARSIA_IMPORT_SCHEMA_H
