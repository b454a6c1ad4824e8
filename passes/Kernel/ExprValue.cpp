//===- ExprValue.cpp - Symbolic expressions as integer code ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements ExprValue.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/ExprValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace intarsia;
using Kind = SymExpr::Kind;

Value kernel::emitInteger(OpBuilder &b, Location loc, Kind kind, Value x,
                          Value y) {
  switch (kind) {
  case Kind::Add:
    return arith::AddIOp::create(b, loc, x, y);
  case Kind::Mul:
    return arith::MulIOp::create(b, loc, x, y);
  case Kind::FloorDiv:
    return arith::FloorDivSIOp::create(b, loc, x, y);
  case Kind::Mod: {
    Value quotient = arith::FloorDivSIOp::create(b, loc, x, y);
    Value product = arith::MulIOp::create(b, loc, quotient, y);
    return arith::SubIOp::create(b, loc, x, product);
  }
  case Kind::Min:
    return arith::MinSIOp::create(b, loc, x, y);
  case Kind::Max:
    return arith::MaxSIOp::create(b, loc, x, y);
  default:
    return {};
  }
}

Value kernel::emitExpr(OpBuilder &builder, Location loc, const SymExpr &expr,
                       llvm::function_ref<Value(const SymExpr &)> symbol) {
  if (std::optional<int64_t> value = expr.asInteger())
    return arith::ConstantOp::create(builder, loc,
                                     builder.getI64IntegerAttr(*value));
  if (Value known = symbol(expr))
    return known;
  Value result;
  for (const SymExpr &operand : expr.operands()) {
    Value value = emitExpr(builder, loc, operand, symbol);
    if (!value)
      return {};
    result =
        result ? emitInteger(builder, loc, expr.kind(), result, value) : value;
    if (!result)
      return {};
  }
  return result;
}
