//===- PythonSchemas.h - Schemas of operators from Python -------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Operators that Python modules register are not known in a process without
// Python. Another one that imports these modules says what they are.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_COMPILER_PYTHONSCHEMAS_H
#define INTARSIA_LIB_COMPILER_PYTHONSCHEMAS_H

#include "PromisedNumbers.h"
#include "intarsia/Import/Schema.h"

#include <string>
#include <vector>

namespace intarsia {

/// `schemas`, and for names that it does not know a Python process that imports
/// `modules` and describes the program's operators. It is started at most once,
/// when it is needed. The provider throws PythonError.
importer::SchemaProvider
withPythonModules(importer::SchemaProvider schemas,
                  const std::vector<std::string> &modules,
                  const importer::Program &program);

/// For operators a list, one entry a call: a boolean, an integer, a float as
/// text, or null.
PromisedNumbers readPromisedNumbers(const std::string &json);

/// What the fakes that `modules` register return of the calls of the program in
/// the file `program` that return a number alone. Throws PythonError.
PromisedNumbers numbersOfPython(const std::string &program,
                                const std::vector<std::string> &modules,
                                const std::vector<std::string> &libraries);

} // namespace intarsia

#endif // INTARSIA_LIB_COMPILER_PYTHONSCHEMAS_H
