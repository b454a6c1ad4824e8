//===- PromisedNumbers.h - What fakes say of numbers alone ------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An operator that returns a number alone has no result in an exported program:
// what its fake implementation returned stands where the result was used. The
// kernel's is compared with it, so it has to be found out again, unless the
// exporter has noted it (`intarsia.export`).
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_COMPILER_PROMISEDNUMBERS_H
#define INTARSIA_LIB_COMPILER_PROMISEDNUMBERS_H

#include "intarsia/Import/ImportGraph.h"
#include "intarsia/Import/Schema.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace intarsia {

/// For a graph, of which the main one has no name, and an operator, what each
/// of its calls returns, in order; nothing where that cannot be told.
using PromisedNumbers =
    std::map<std::string,
             std::map<std::string, std::vector<importer::ValueMeta>>>;

/// Gives the calls of operators that return a number alone, and of which the
/// program does not say what, a result with the number that is promised.
///
/// `registered` knows the operators of this process, `schemas` others too. Of
/// fakes in C++ the number is asked here; of others, `askPython`, called at
/// most once, tells it. Warns of each operator of which nobody can tell.
void notePromisedNumbers(importer::Program &program,
                         const importer::SchemaProvider &registered,
                         const importer::SchemaProvider &schemas,
                         const std::function<PromisedNumbers()> &askPython);

} // namespace intarsia

#endif // INTARSIA_LIB_COMPILER_PROMISEDNUMBERS_H
