//===- ExprValue.h - Symbolic expressions as integer code ---------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_EXPRVALUE_H
#define INTARSIA_PASSES_KERNEL_EXPRVALUE_H

#include "intarsia/Support/SymExpr.h"
#include "mlir/IR/Builders.h"

namespace intarsia::kernel {

/// One step of an expression, on scalars and vectors alike; null for a kind
/// that has no integer code.
mlir::Value emitInteger(mlir::OpBuilder &builder, mlir::Location loc,
                        SymExpr::Kind kind, mlir::Value x, mlir::Value y);

/// The value of an expression in i64; `symbol` gives those of its symbols. Null
/// where a part has no integer code or a symbol no value.
mlir::Value emitExpr(mlir::OpBuilder &builder, mlir::Location loc,
                     const SymExpr &expr,
                     llvm::function_ref<mlir::Value(const SymExpr &)> symbol);

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_EXPRVALUE_H
