//===- HigherOrder.h - Arguments of higher-order operators --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Higher-order operators have no schema; here their arguments get names.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_HIGHERORDER_H
#define INTARSIA_LIB_IMPORT_HIGHERORDER_H

#include "intarsia/Import/ImportGraph.h"

#include <string>
#include <utility>
#include <vector>

namespace intarsia::importer {

using NamedArguments = std::vector<std::pair<std::string, Argument>>;

/// The arguments with names. Those that PyTorch passes one by one after the
/// fixed ones become one list. `symbolsFor` is the index of the list that is
/// passed on to all subgraphs, to which captured symbols are added (a new list
/// "symbols" when the operator is not known).
struct HigherOrderCall {
  NamedArguments arguments;
  size_t symbolsFor = 0;
};
HigherOrderCall nameHigherOrderArguments(const Node &node,
                                         const std::string &target,
                                         const NamedArguments &arguments);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_HIGHERORDER_H
