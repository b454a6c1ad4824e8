//===- Assembly.h - Pieces of the intarsia dialect's syntax -----*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the printers and parsers of this dialect share; private to this folder.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_ASSEMBLY_H
#define INTARSIA_DIALECTS_GRAPH_ASSEMBLY_H

#include "dialects/Graph/Graph.h"

namespace intarsia::graph {

/// `[s0, 64, "2*s0"]`
void printExprs(mlir::AsmPrinter &printer, llvm::ArrayRef<ExprAttr> exprs);
mlir::ParseResult parseExprs(mlir::AsmParser &parser,
                             llvm::SmallVectorImpl<ExprAttr> &exprs);

/// An attribute of this dialect without the `#intarsia.`, e.g. `dtype<bf16>`.
/// Printing fails for attributes of other dialects.
mlir::LogicalResult printShortAttribute(mlir::AsmPrinter &printer,
                                        mlir::Attribute attribute);
mlir::OptionalParseResult parseShortAttribute(mlir::AsmParser &parser,
                                              mlir::Attribute &attribute);

/// `1.5`, `inf`, `neg_inf`, `nan`: the shortest text that reads back as the
/// same double. A NaN with a payload is printed by its bits.
void printDouble(mlir::AsmPrinter &printer, const llvm::APFloat &value);

/// Directives of the assembly formats.
inline void printExpr(mlir::AsmPrinter &printer, ExprAttr expr) {
  printExprText(printer, expr.getExpr());
}
inline void printExpr(mlir::OpAsmPrinter &printer, mlir::Operation *,
                      ExprAttr expr) {
  printExprText(printer, expr.getExpr());
}
mlir::ParseResult parseExpr(mlir::AsmParser &parser, ExprAttr &expr);

} // namespace intarsia::graph

#endif // INTARSIA_DIALECTS_GRAPH_ASSEMBLY_H
