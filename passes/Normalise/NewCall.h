//===- NewCall.h - Calls that passes make -------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A pure call of an operator under construction. The arguments are given in
// the order of the operator's schema, all of them.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_NORMALISE_NEWCALL_H
#define INTARSIA_PASSES_NORMALISE_NEWCALL_H

#include "dialects/Graph/Graph.h"

#include "mlir/IR/Builders.h"

namespace intarsia {

class NewCall {
public:
  NewCall(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef callee)
      : builder(builder), loc(loc), callee(callee) {}

  NewCall &value(llvm::StringRef name, mlir::Value value);
  NewCall &values(llvm::StringRef name, llvm::ArrayRef<mlir::Value> values);
  NewCall &constant(llvm::StringRef name, mlir::Attribute value);
  NewCall &integer(llvm::StringRef name, int64_t value);
  NewCall &boolean(llvm::StringRef name, bool value);
  NewCall &none(llvm::StringRef name);
  NewCall &size(llvm::StringRef name, const SymExpr &value);
  NewCall &sizes(llvm::StringRef name, llvm::ArrayRef<SymExpr> values);
  NewCall &integers(llvm::StringRef name, llvm::ArrayRef<int64_t> values);
  /// The argument of this name of another call, under the name `as`.
  NewCall &from(graph::CallOp call, llvm::StringRef name,
                llvm::StringRef as = "");

  /// Each output in turn is what the operator returns; `isView`: of the first
  /// operand.
  graph::CallOp create(mlir::TypeRange outputs, bool isView = false);
  mlir::Value createOne(mlir::Type output, bool isView = false) {
    return create(output, isView).getOutputs().front();
  }

private:
  mlir::Attribute operand(mlir::Value value);
  mlir::Attribute size(const SymExpr &value);
  mlir::Attribute transfer(graph::CallOp call, mlir::Attribute attribute);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  llvm::StringRef callee;
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<mlir::Attribute> args, names;
};

} // namespace intarsia

#endif // INTARSIA_PASSES_NORMALISE_NEWCALL_H
