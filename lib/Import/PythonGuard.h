//===- PythonGuard.h - Guards as Python text ----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Exported programs carry their guards as Python expressions over the user's
// inputs, e.g. `(L['x'].size()[0] % 8) == 0`. They bind: a divisibility
// condition may be nowhere else.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_PYTHONGUARD_H
#define INTARSIA_LIB_IMPORT_PYTHONGUARD_H

#include "intarsia/Import/ImportGraph.h"

#include <functional>
#include <string_view>

namespace intarsia::importer {

/// Parses a Python expression over integers into a SymExpr. A bare name is a
/// symbol; what starts with `L[` is an input: `resolve` gives its meaning
/// (null: unknown input) by its path, e.g. "['x'][0]". Nullopt with a message
/// in `error` for anything else.
std::optional<SymExpr> parsePythonGuard(
    std::string_view text,
    const std::function<const ValueMeta *(std::string_view path)> &resolve,
    std::string &error);

/// Maps the paths of inputs ("['x'][0]") to the place among the user's flat
/// inputs, as the pytree spec of (args, kwargs) and forward's argument names
/// have it. Empty when the spec cannot be understood.
std::map<std::string, size_t>
inputPaths(const std::string &inSpec,
           const std::vector<std::string> &argumentNames);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_PYTHONGUARD_H
