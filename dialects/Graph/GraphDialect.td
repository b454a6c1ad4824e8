//===- GraphDialect.td - The intarsia dialect -*- tablegen -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_GRAPHDIALECT_TD
#define INTARSIA_DIALECTS_GRAPH_GRAPHDIALECT_TD

include "mlir/IR/OpBase.td"

def GraphDialect : Dialect {
  let name = "intarsia";
  let cppNamespace = "::intarsia::graph";
  let summary = "PyTorch graphs with opaque operators";
  let description = [{
    A PyTorch program as a graph of values. Every registered operator, whatever
    its namespace, is one `intarsia.call`; what is known of it (mutated and
    aliased arguments, effects, randomness, tags) is in the call's attributes,
    put there by the importer. `intarsia.kernel` holds the computations that
    are compiled, on builtin tensors.

    Attributes of the functions' arguments that mean something to the dialect:
    `intarsia.expr`, of a number: the expression over the function's symbols
    whose value it is.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let extraClassDeclaration = [{
    void registerAttributes();
    void registerTypes();
  }];
}

#endif // INTARSIA_DIALECTS_GRAPH_GRAPHDIALECT_TD
