//===- OperatorFacts.h - What a call of an operator does ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Mutation, aliasing, randomness and effects of one call: from the schema, from
// PyTorch's tags, and from our own table (OperatorFacts.def), because schemas
// are not always true.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_IMPORT_OPERATORFACTS_H
#define INTARSIA_IMPORT_OPERATORFACTS_H

#include "intarsia/Import/Schema.h"

#include <optional>
#include <string>
#include <vector>

namespace intarsia::importer {

struct OperatorFacts {
  struct Return {
    /// The return *is* this argument (schema index), which the call mutates.
    std::optional<size_t> tied;
    /// The return may share storage with these arguments.
    std::vector<size_t> views;
    /// It shares storage by being the argument, so only if dtype and device are
    /// the same.
    bool isSame = false;
  };
  std::vector<size_t> mutated; // schema indices of arguments
  std::vector<Return> returns; // parallel to the schema's
  bool random = false;
  /// Observable beyond its results and mutations.
  bool effectful = false;
};

/// `arguments` is parallel to the schema's, defaults filled in: a fact may
/// depend on a value (`training`). An argument that is not given, or not known
/// at compile time, counts as the worst case.
OperatorFacts operatorFacts(const OperatorSchema &schema,
                            const std::vector<Argument> &arguments);

} // namespace intarsia::importer

#endif // INTARSIA_IMPORT_OPERATORFACTS_H
