//===- Reuse.cpp - Functional updates that can be done in place -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The list of operators that write a part of their argument and keep the rest.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/Reuse.h"
#include "passes/Plan/Views.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace intarsia {

/// The in-place operator with the same arguments; "" when there is none.
static std::string twinOf(StringRef callee) {
  auto [name, overload] = callee.split('.');
  StringRef base =
      llvm::StringSwitch<StringRef>(name)
          .Cases({"aten::index_add", "aten::index_copy"}, name)
          .Cases({"aten::index_fill", "aten::index_put"}, name)
          .Case("aten::_unsafe_index_put", "aten::index_put")
          .Cases({"aten::masked_fill", "aten::masked_scatter"}, name)
          .Cases({"aten::scatter", "aten::scatter_add"}, name)
          .Case("aten::scatter_reduce", name)
          .Default("");
  if (base.empty())
    return "";
  std::string twin = base.str() + "_";
  if (!overload.empty())
    twin += "." + overload.str();
  return twin;
}

std::optional<Update> updateOf(graph::CallOp call) {
  Value self = call.operand("self");
  if (!self || call.getOutputs().size() != 1 ||
      self.getType() != call.getOutputs().front().getType())
    return std::nullopt;
  return partialUpdateOf(call);
}

std::optional<Update> partialUpdateOf(graph::CallOp call) {
  Value self = call.operand("self");
  if (!self || call.getOutputs().size() != 1 || !call.getMutates().empty() ||
      call.getEffectful() || call.getAliasing() || call.getRandom())
    return std::nullopt;
  auto type = dyn_cast<graph::TensorType>(self.getType());
  auto result =
      dyn_cast<graph::TensorType>(call.getOutputs().front().getType());
  if (!type || !result || isComplex(type.getDtype()) ||
      type.getDtype() != result.getDtype() ||
      type.getSizeExprs() != result.getSizeExprs())
    return std::nullopt;
  Update update;
  update.twin = twinOf(call.getCallee());
  if (!update.twin.empty())
    return update;

  Value source = call.operand("src");
  if (!source)
    return std::nullopt;
  update.sizes = type.getSizeExprs();
  update.strides = type.getStrideExprs();
  if (call.getCallee() == "aten::copy")
    return update;
  if (call.getCallee() != "aten::slice_scatter" &&
      call.getCallee() != "aten::select_scatter")
    return std::nullopt;
  std::optional<SymExpr> offset = writtenOffset(call);
  std::optional<int64_t> dim = call.intArg("dim");
  if (!offset || !dim)
    return std::nullopt;
  if (*dim < 0)
    *dim += type.getRank();
  update.offset = *offset;
  if (call.getCallee() == "aten::select_scatter") {
    update.sizes.erase(update.sizes.begin() + *dim);
    update.strides.erase(update.strides.begin() + *dim);
    return update;
  }
  std::optional<int64_t> step = call.intArg("step");
  if (!step)
    return std::nullopt;
  update.sizes = cast<graph::TensorType>(source.getType()).getSizeExprs();
  update.strides[*dim] = update.strides[*dim] * SymExpr(*step);
  return update;
}

Value reusedOperand(graph::CallOp call) {
  auto decision = call->getAttrOfType<StringAttr>(reuseAttrName);
  return decision && decision.getValue() == "inplace" ? call.operand("self")
                                                      : Value();
}

} // namespace intarsia
