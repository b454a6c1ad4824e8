//===- Location.h - The user's source lines -----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The location of what a node becomes; `describeLocation` of Import.h reads it.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_LOCATION_H
#define INTARSIA_LIB_IMPORT_LOCATION_H

#include "intarsia/Import/ImportGraph.h"
#include "mlir/IR/Location.h"

namespace intarsia::importer {

mlir::Location nodeLocation(const Node &node, mlir::MLIRContext *context);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_LOCATION_H
