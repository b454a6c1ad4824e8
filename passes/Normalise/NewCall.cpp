//===- NewCall.cpp - Calls that passes make -------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Numbers the operands by their first appearance, as the importer does.
//
//===----------------------------------------------------------------------===//

#include "passes/Normalise/NewCall.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace intarsia {

Attribute NewCall::operand(Value value) {
  auto known = llvm::find(operands, value);
  int64_t index = known - operands.begin();
  if (known == operands.end())
    operands.push_back(value);
  return graph::OperandAttr::get(builder.getContext(), index);
}

Attribute NewCall::size(const SymExpr &value) {
  if (std::optional<int64_t> integer = value.asInteger())
    return builder.getI64IntegerAttr(*integer);
  return operand(
      graph::SizeOp::create(builder, loc, builder.getIndexType(),
                            graph::ExprAttr::get(builder.getContext(), value)));
}

NewCall &NewCall::constant(StringRef name, Attribute value) {
  args.push_back(value);
  names.push_back(builder.getStringAttr(name));
  return *this;
}

NewCall &NewCall::value(StringRef name, Value value) {
  return constant(name, operand(value));
}

NewCall &NewCall::values(StringRef name, ArrayRef<Value> values) {
  SmallVector<Attribute> members;
  for (Value value : values)
    members.push_back(operand(value));
  return constant(name, builder.getArrayAttr(members));
}

NewCall &NewCall::integer(StringRef name, int64_t value) {
  return constant(name, builder.getI64IntegerAttr(value));
}

NewCall &NewCall::boolean(StringRef name, bool value) {
  return constant(name, builder.getBoolAttr(value));
}

NewCall &NewCall::none(StringRef name) {
  return constant(name, graph::NoneAttr::get(builder.getContext()));
}

NewCall &NewCall::size(StringRef name, const SymExpr &value) {
  return constant(name, size(value));
}

NewCall &NewCall::sizes(StringRef name, ArrayRef<SymExpr> values) {
  SmallVector<Attribute> members;
  for (const SymExpr &value : values)
    members.push_back(size(value));
  return constant(name, builder.getArrayAttr(members));
}

NewCall &NewCall::integers(StringRef name, ArrayRef<int64_t> values) {
  SmallVector<Attribute> members;
  for (int64_t value : values)
    members.push_back(builder.getI64IntegerAttr(value));
  return constant(name, builder.getArrayAttr(members));
}

Attribute NewCall::transfer(graph::CallOp call, Attribute attribute) {
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    SmallVector<Attribute> members;
    for (Attribute member : list)
      members.push_back(transfer(call, member));
    return builder.getArrayAttr(members);
  }
  auto number = dyn_cast<graph::OperandAttr>(attribute);
  return number ? operand(call.getInputs()[number.getIndex()]) : attribute;
}

NewCall &NewCall::from(graph::CallOp call, StringRef name, StringRef as) {
  return constant(as.empty() ? name : as, transfer(call, call.arg(name)));
}

graph::CallOp NewCall::create(TypeRange outputs, bool isView) {
  SmallVector<Attribute> returns;
  for (size_t i = 0; i < outputs.size(); ++i)
    returns.push_back(graph::OperandAttr::get(builder.getContext(), i));
  return graph::CallOp::create(
      builder, loc, outputs, TypeRange(), builder.getStringAttr(callee),
      operands, builder.getArrayAttr(args), builder.getArrayAttr(names),
      builder.getArrayAttr(returns), builder.getDenseI64ArrayAttr({}),
      /*effectful=*/UnitAttr(), /*random=*/UnitAttr(), /*aliasing=*/UnitAttr(),
      isView ? builder.getDenseI64ArrayAttr({0}) : DenseI64ArrayAttr(),
      /*binds=*/ArrayAttr(), /*tags=*/ArrayAttr(), /*schema=*/StringAttr());
}

} // namespace intarsia
