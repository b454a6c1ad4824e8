//===- GraphDialect.cpp - The intarsia dialect ----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file registers the intarsia dialect's types, attributes and operations;
// each concern has its own file beside it.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace intarsia::graph;

#include "dialects/Graph/GraphDialect.cpp.inc"

void GraphDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "dialects/Graph/GraphOps.cpp.inc"
      >();
}

LogicalResult GraphDialect::verifyRegionArgAttribute(Operation *op,
                                                     unsigned region,
                                                     unsigned argument,
                                                     NamedAttribute attribute) {
  if (attribute.getName() != exprAttrName)
    return success();
  if (!isa<ExprAttr>(attribute.getValue()))
    return op->emitError() << "'" << exprAttrName << "' of argument "
                           << argument << " is an expression, not "
                           << attribute.getValue();
  // A declaration has types, but no block.
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return success();
  Type type = function.getArgumentTypes()[argument];
  if (!type.isIndex() && !type.isInteger(1) && !type.isF64())
    return op->emitError() << "'" << exprAttrName << "' is for index, i1 and "
                           << "f64 arguments; argument " << argument << " is "
                           << type;
  return success();
}
