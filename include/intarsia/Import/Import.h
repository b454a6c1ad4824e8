//===- Import.h - From a program to the intarsia dialect -*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The two readers and the one builder.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_IMPORT_IMPORT_H
#define INTARSIA_IMPORT_IMPORT_H

#include "intarsia/Import/ImportGraph.h"
#include "intarsia/Import/Schema.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace intarsia::importer {

/// Reader A: a `.pt2` archive that `torch.export.save` wrote (schema major 8).
/// Errors name the file and the record or node.
llvm::Expected<Program> readPt2(llvm::StringRef path);

/// Reader B: the JSON of ImportGraph.h.
llvm::Expected<Program> readJson(llvm::StringRef json);

/// Gives a call that returns a number alone, and has no result because that
/// number stands where it was used, a result that is promised to be it.
void promiseNumber(Node &node, Graph &graph, ValueMeta number);

/// Builds the module: `func.func @main` and one private function a subgraph.
///
/// Function arguments are parallel to the graph's inputs and carry
///   intarsia.name      the graph input's name
///   intarsia.kind      "user", "parameter", "buffer", "constant" (a lifted
///                      tensor), "constant_input" (what export fixed), "token",
///                      "object", or "symbol" (a subgraph's captured symbol)
///   intarsia.target    fully qualified name of a parameter, buffer, constant
///   intarsia.static    it keeps its address between calls
///   intarsia.mutated   the program writes into it
///   intarsia.expr      on index, i1, f64: an ExprAttr; a bare symbol is bound
///   intarsia.constant  on "constant_input" (type !intarsia.object): the value
/// A tensor argument's size that is a bare symbol binds that symbol. A symbol
/// that is nowhere bare (export's derived dimensions: 8*s6) is bound by the
/// first size that is affine in it, by exact division.
///
/// Function results carry `intarsia.output` ("user", "buffer_mutation",
/// "input_mutation", "parameter_mutation", "token", "loss", "gradient"),
/// `intarsia.target` and, when nobody sees their strides,
/// `intarsia.hidden_strides`. In a functional program every in-place write into
/// a function argument (AOTAutograd's trailing copy_) is an "input_mutation"
/// result too, after the graph's own outputs: the argument's final value.
///
/// The function has
///   intarsia.symbols      dictionary symbol -> [min, max], unit for open ends
///   intarsia.guards       strings: boolean expressions in SymExpr's text form
///   intarsia.guard_texts  strings, parallel: as the exporter wrote them
///   intarsia.returns      one entry a graph output, in order:
///                         #intarsia.operand<k> is function result k, else
///                         #intarsia.none or a constant
///   intarsia.aliasing     unit; only in programs that are not functional and
///                         where some storage is written that other values
///                         share: there a call marked `aliasing` works in place
///                         on what its operands share, and keeps its order
/// The module has `intarsia.in_spec`, `intarsia.out_spec` and
/// `intarsia.weights`, an array of dictionaries {name, type, offset, record or
/// object, parameter}.
///
/// Calls of higher-order operators name their arguments: see
/// lib/Import/HigherOrder.cpp. A call whose traced strides differ from its
/// operands' types has `intarsia.eager_strides`, one entry an operand: an array
/// of ExprAttr, or unit where they agree. Views in a call's `views` are one
/// entry an output: the operand whose storage it may share, or -1.
///
/// Every operation's location is the user's source line: `describeLocation`.
/// Errors name the operator, the source line and the remedy.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
buildModule(const Program &program, mlir::MLIRContext *context,
            const SchemaProvider &schemas);

/// "model.py:12 in forward: y = f(x)", as much of it as is known; "" when
/// nothing is.
std::string describeLocation(mlir::Location location);

} // namespace intarsia::importer

#endif // INTARSIA_IMPORT_IMPORT_H
