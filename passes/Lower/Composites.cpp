//===- Composites.cpp - Operators that PyTorch takes apart --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A program that was exported and not decomposed has the operators that the
// user wrote. Those that PyTorch takes apart into one operator of the table, or
// that are another name of one, are lowered as that one.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Composites.h"
#include "passes/Lower/Arguments.h"
#include "passes/Normalise/NewCall.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

Lowered lowerAs(StringRef name, graph::CallOp call, KernelBuilder &kernel) {
  return LoweringTable::get().lookup(name)(call, kernel);
}

/// The first result of another call, which stands before `call` meanwhile.
Lowered lowerFirst(graph::CallOp other, KernelBuilder &kernel) {
  Lowered results = lowerAs(other.getCallee(), other, kernel);
  other.erase();
  if (failed(results))
    return failure();
  return SmallVector<Tensor>{results->front()};
}

/// The type of what is one number for all of `normalized_shape`.
FailureOr<graph::TensorType> statisticType(graph::CallOp call) {
  auto type = resultType(call);
  std::optional<SmallVector<SymExpr>> shape = call.sizesArg("normalized_shape");
  if (!shape || static_cast<int64_t>(shape->size()) > type.getRank())
    return failure();
  SmallVector<SymExpr> sizes = type.getSizeExprs();
  for (SymExpr &size : MutableArrayRef(sizes).take_back(shape->size()))
    size = SymExpr(1);
  return denseType(type, sizes);
}

Lowered lowerLayerNorm(graph::CallOp call, KernelBuilder &kernel) {
  auto type = resultType(call);
  FailureOr<graph::TensorType> statistic = statisticType(call);
  if (failed(statistic))
    return failure();
  OpBuilder builder(call);
  return lowerFirst(NewCall(builder, call.getLoc(), "aten::native_layer_norm")
                        .from(call, "input")
                        .from(call, "normalized_shape")
                        .from(call, "weight")
                        .from(call, "bias")
                        .from(call, "eps")
                        .create({type, *statistic, *statistic}),
                    kernel);
}

Lowered lowerRMSNorm(graph::CallOp call, KernelBuilder &kernel) {
  auto type = resultType(call);
  FailureOr<graph::TensorType> statistic = statisticType(call);
  if (failed(statistic))
    return failure();
  OpBuilder builder(call);
  return lowerFirst(NewCall(builder, call.getLoc(), "aten::_fused_rms_norm")
                        .from(call, "input")
                        .from(call, "normalized_shape")
                        .from(call, "weight")
                        .from(call, "eps")
                        .create({type, *statistic}),
                    kernel);
}

Lowered lowerGroupNorm(graph::CallOp call, KernelBuilder &kernel) {
  auto type = resultType(call);
  std::optional<int64_t> groups = call.intArg("num_groups");
  SmallVector<SymExpr> sizes = type.getSizeExprs();
  if (!groups || sizes.size() < 2)
    return failure();
  SymExpr rest(1);
  for (const SymExpr &size : ArrayRef(sizes).drop_front(2))
    rest = rest * size;
  Type statistic = denseType(type, {sizes[0], SymExpr(*groups)});
  OpBuilder builder(call);
  return lowerFirst(NewCall(builder, call.getLoc(), "aten::native_group_norm")
                        .from(call, "input")
                        .from(call, "weight")
                        .from(call, "bias")
                        .size("N", sizes[0])
                        .size("C", sizes[1])
                        .size("HxW", rest)
                        .from(call, "num_groups", "group")
                        .from(call, "eps")
                        .create({type, statistic, statistic}),
                    kernel);
}

/// In training it updates its statistics: it stays a call.
Lowered lowerBatchNorm(graph::CallOp call, KernelBuilder &kernel) {
  auto type = resultType(call);
  if (call.boolArg("training") != false || call.isNone("running_mean") ||
      call.isNone("running_var"))
    return failure();
  Type empty = denseType(type, {SymExpr(0)});
  OpBuilder builder(call);
  return lowerFirst(NewCall(builder, call.getLoc(),
                            "aten::_native_batch_norm_legit_no_training")
                        .from(call, "input")
                        .from(call, "weight")
                        .from(call, "bias")
                        .from(call, "running_mean")
                        .from(call, "running_var")
                        .from(call, "momentum")
                        .from(call, "eps")
                        .create({type, empty, empty}),
                    kernel);
}

Lowered lowerLogSigmoid(graph::CallOp call, KernelBuilder &kernel) {
  Type type = resultType(call);
  OpBuilder builder(call);
  return lowerFirst(NewCall(builder, call.getLoc(), "aten::log_sigmoid_forward")
                        .from(call, "self")
                        .create({type, type}),
                    kernel);
}

/// Of calls that may return their argument, those that the types say do not.
Lowered lowerConversion(graph::CallOp call, KernelBuilder &kernel) {
  Value self = call.operand("self");
  auto from =
      self ? dyn_cast<graph::TensorType>(self.getType()) : graph::TensorType();
  graph::TensorType to = resultType(call);
  if (!from || from.getDevice() != to.getDevice() ||
      (from.getDtype() == to.getDtype() &&
       from.getStrideExprs() == to.getStrideExprs()))
    return failure();
  return lowerAs("aten::_to_copy", call, kernel);
}

Lowered lowerZero(graph::CallOp call, KernelBuilder &kernel) {
  DType dtype = resultDType(call);
  return SmallVector<Tensor>{
      kernel.pointwise({}, resultSizes(call), dtype,
                       [&](OpBuilder &builder, Location loc, ValueRange) {
                         return constantScalar(builder, loc, dtype, int64_t(0));
                       })};
}

/// The first has the arguments of the second.
constexpr std::pair<StringLiteral, StringLiteral> otherNames[] = {
    {"aten::absolute", "aten::abs"},
    {"aten::arccos", "aten::acos"},
    {"aten::arccosh", "aten::acosh"},
    {"aten::arcsin", "aten::asin"},
    {"aten::arcsinh", "aten::asinh"},
    {"aten::arctan", "aten::atan"},
    {"aten::arctan2", "aten::atan2"},
    {"aten::arctanh", "aten::atanh"},
    {"aten::clip", "aten::clamp"},
    {"aten::clip.Tensor", "aten::clamp.Tensor"},
    {"aten::concat", "aten::cat"},
    {"aten::concatenate", "aten::cat"},
    {"aten::divide.Scalar", "aten::div.Scalar"},
    {"aten::divide.Tensor", "aten::div.Tensor"},
    {"aten::fix", "aten::trunc"},
    {"aten::greater.Scalar", "aten::gt.Scalar"},
    {"aten::greater.Tensor", "aten::gt.Tensor"},
    {"aten::greater_equal.Scalar", "aten::ge.Scalar"},
    {"aten::greater_equal.Tensor", "aten::ge.Tensor"},
    {"aten::less.Scalar", "aten::lt.Scalar"},
    {"aten::less.Tensor", "aten::lt.Tensor"},
    {"aten::less_equal.Scalar", "aten::le.Scalar"},
    {"aten::less_equal.Tensor", "aten::le.Tensor"},
    {"aten::log_softmax.int", "aten::_log_softmax"},
    {"aten::multiply.Scalar", "aten::mul.Scalar"},
    {"aten::multiply.Tensor", "aten::mul.Tensor"},
    {"aten::negative", "aten::neg"},
    {"aten::not_equal.Scalar", "aten::ne.Scalar"},
    {"aten::not_equal.Tensor", "aten::ne.Tensor"},
    {"aten::softmax.int", "aten::_softmax"},
    {"aten::special_digamma", "aten::digamma"},
    {"aten::special_erf", "aten::erf"},
    {"aten::special_erfc", "aten::erfc"},
    {"aten::special_exp2", "aten::exp2"},
    {"aten::special_expit", "aten::sigmoid"},
    {"aten::special_expm1", "aten::expm1"},
    {"aten::special_gammaln", "aten::lgamma"},
    {"aten::special_log1p", "aten::log1p"},
    {"aten::special_log_softmax", "aten::_log_softmax"},
    {"aten::special_logit", "aten::logit"},
    {"aten::special_logsumexp", "aten::logsumexp"},
    {"aten::special_psi", "aten::digamma"},
    {"aten::special_sinc", "aten::sinc"},
    {"aten::special_softmax", "aten::_softmax"},
    {"aten::special_xlogy", "aten::xlogy.Tensor"},
    {"aten::special_xlogy.other_scalar", "aten::xlogy.Scalar_Other"},
    {"aten::special_xlogy.self_scalar", "aten::xlogy.Scalar_Self"},
    {"aten::subtract.Scalar", "aten::sub.Scalar"},
    {"aten::subtract.Tensor", "aten::sub.Tensor"},
    {"aten::true_divide.Scalar", "aten::div.Scalar"},
};

} // namespace

void registerComposites(LoweringTable &table) {
  for (auto [name, other] : otherNames)
    table.add(name, table.lookup(other));
  table.add("aten::batch_norm", lowerBatchNorm);
  table.add("aten::group_norm", lowerGroupNorm);
  table.add("aten::layer_norm", lowerLayerNorm);
  table.add("aten::log_sigmoid", lowerLogSigmoid);
  table.add("aten::rms_norm", lowerRMSNorm);
  table.add("aten::zero", lowerZero);
  for (StringRef name :
       {"aten::contiguous", "aten::to.device", "aten::to.dtype",
        "aten::to.dtype_layout", "aten::type_as"})
    table.add(name, lowerConversion);
}

} // namespace intarsia::lower
