//===- Graph.h - The intarsia dialect ---------------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The one header of the intarsia dialect: its types, attributes and operations
// (namespace intarsia::graph), generated from the .td files of this folder, and
// the few functions that everybody who reads the dialect needs.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_GRAPH_H
#define INTARSIA_DIALECTS_GRAPH_GRAPH_H

#include "intarsia/Support/DType.h"
#include "intarsia/Support/SymExpr.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/Hashing.h"

#include <optional>

namespace mlir {
class PatternRewriter;
} // namespace mlir

namespace intarsia {
inline llvm::hash_code hash_value(const SymExpr &expr) {
  return llvm::hash_value(expr.hash());
}
} // namespace intarsia

#include "dialects/Graph/GraphDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Graph/GraphAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Graph/GraphTypes.h.inc"

#define GET_OP_CLASSES
#include "dialects/Graph/GraphOps.h.inc"

namespace intarsia::graph {

/// The function argument attribute (an ExprAttr) that says which expression an
/// `index`, `i1` or `f64` passed to a function is the value of.
inline constexpr llvm::StringLiteral exprAttrName = "intarsia.expr";

/// The expression that an `index`, `i1` or `f64` value of the graph is known to
/// have: of `intarsia.size`, of a constant, or of a function's argument with
/// the attribute above. Nothing when it is not known.
std::optional<SymExpr> symbolicValue(mlir::Value value);

/// The strides of a contiguous tensor of these sizes.
llvm::SmallVector<SymExpr> contiguousStrides(llvm::ArrayRef<SymExpr> sizes);

/// The element type that stands for `dtype` inside a kernel: signless integers
/// of the width (bool: i8; complex numbers: both parts). Null for those that
/// have no kernels (complex numbers of halves, most 8- and 4-bit floats).
mlir::Type kernelElementType(mlir::MLIRContext *context, DType dtype);

/// Prints and parses an expression as types show it: an integer, a symbol, or
/// quoted text.
void printExprText(mlir::AsmPrinter &printer, const SymExpr &expr);
mlir::ParseResult parseExprText(mlir::AsmParser &parser, SymExpr &expr);

} // namespace intarsia::graph

#endif // INTARSIA_DIALECTS_GRAPH_GRAPH_H
