//===- InPlace.cpp - Operators that update their argument -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An in-place operator is the functional one of nearly the same name, whose
// result is stored in the dtype of its argument. Only operators of which that
// holds for all arguments are listed: a comparison in place, for example,
// stores a number where its twin returns a bool.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/InPlace.h"
#include "passes/Lower/Lowering.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace intarsia::lower {

/// Of these every tensor argument has the dtype of `self`, or they convert it
/// themselves.
static bool isListed(StringRef name) {
  static const llvm::StringSet<> names = {
      "abs",        "add",       "addcdiv",     "addcmul",   "ceil",
      "clamp",      "clamp_max", "clamp_min",   "copysign",  "cos",
      "cosh",       "div",       "elu",         "erf",       "erfc",
      "exp",        "exp2",      "expm1",       "fill",      "floor",
      "frac",       "gelu",      "hardsigmoid", "hardswish", "hardtanh",
      "leaky_relu", "lerp",      "log",         "log10",     "log1p",
      "log2",       "mul",       "nan_to_num",  "neg",       "pow",
      "reciprocal", "relu",      "relu6",       "round",     "rsqrt",
      "sgn",        "sigmoid",   "sign",        "silu",      "sin",
      "sinh",       "sqrt",      "square",      "sub",       "tan",
      "tanh",       "threshold", "trunc",       "xlogy",     "zero",
  };
  return names.contains(name);
}

std::string functionalTwin(graph::CallOp call) {
  auto [name, overload] = call.getCallee().split('.');
  if (!name.consume_front("aten::") || !name.consume_back("_"))
    return "";
  // These have an argument of another dtype, which is as it is in the twin.
  bool convertsSource = name == "copy";
  bool hasMask = name == "masked_fill";
  if (!isListed(name) && !convertsSource && !hasMask)
    return "";

  Value self = call.operand("self");
  // A whole argument is overwritten by the plan, at the best place.
  if (convertsSource && isa_and_nonnull<BlockArgument>(self))
    return "";
  if (!self || call.getMutates().size() != 1 || !call.getOutputs().empty() ||
      call.getInputs()[call.getMutates().front()] != self || call.getRandom() ||
      call.getEffectful() || call.getAliasing() ||
      (call.getBinds() && !call.getBinds()->empty()))
    return "";
  auto type = dyn_cast<graph::TensorType>(self.getType());
  for (Value input : call.getInputs()) {
    auto other = dyn_cast<graph::TensorType>(input.getType());
    if (!type ||
        (other && other.getDtype() != type.getDtype() && !convertsSource &&
         !(hasMask && input == call.operand("mask"))))
      return "";
  }

  std::string twin = ("aten::" + name).str();
  if (!overload.empty())
    twin += "." + overload.str();
  return LoweringTable::get().lookup(twin) ? twin : "";
}

graph::CallOp createTwin(OpBuilder &builder, graph::CallOp call,
                         StringRef twin) {
  auto returns =
      builder.getArrayAttr(graph::OperandAttr::get(builder.getContext(), 0));
  return graph::CallOp::create(
      builder, call.getLoc(), call.operand("self").getType(), TypeRange(),
      builder.getStringAttr(twin), call.getInputs(), call.getArgs(),
      call.getArgNames(), returns, builder.getDenseI64ArrayAttr({}),
      /*effectful=*/UnitAttr(), /*random=*/UnitAttr(), /*aliasing=*/UnitAttr(),
      /*views=*/DenseI64ArrayAttr(), /*binds=*/ArrayAttr(),
      /*tags=*/ArrayAttr(), /*schema=*/StringAttr());
}

} // namespace intarsia::lower
