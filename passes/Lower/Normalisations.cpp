//===- Normalisations.cpp - Softmax and normalisation layers ------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Softmax and its logarithm, layer and RMS normalisation, forward and backward.
// f16 and bf16 are computed in f32 and rounded once, at the end, as in
// PyTorch's kernels.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Norms.h"

#include <limits>

using namespace mlir;

namespace intarsia::lower {
namespace {

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// exp(x - max) and its sum, or x - max and the logarithm of that sum.
enum class Softmax {
  Plain,
  Log,
  Safe, // 0 where all elements are -inf
};

template <Softmax kind>
Lowered lowerSoftmax(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "self");
  if (!areFloats(in) || in->rank() == 0)
    return failure();
  int64_t rank = in->rank();
  std::optional<int64_t> dim = dimArgument(call, "dim", rank);
  if (!dim)
    return failure();
  // Eager converts first if another dtype is asked for.
  DType inner = computeType(resultDType(call));
  if (dtypeSize(inner) < dtypeSize(computeType(in->dtype)))
    return failure();
  Tensor x = kernel.cast(*in, inner);
  Tensor highest = reduce(kernel, Reduction::Max, x, *dim);
  Operand highestAlong = along(highest, rank, *dim);
  Tensor powers = compute(kernel, {x, highestAlong}, x.sizes, inner,
                          [](ArrayRef<Scalar> v) { return exp(v[0] - v[1]); });
  Tensor total = reduce(kernel, Reduction::Sum, powers, *dim);
  DType result = resultDType(call);
  if (kind != Softmax::Log) {
    // A vector's division takes as long as ten multiplications. The remainder
    // makes of the product with the rounded reciprocal the quotient's bits; the
    // total, at least 1, lets neither overflow.
    Tensor reciprocal = compute(kernel, {total}, total.sizes, inner,
                                [](ArrayRef<Scalar> v) { return 1.0 / v[0]; });
    SmallVector<Operand> operands = {powers, along(total, rank, *dim),
                                     along(reciprocal, rank, *dim)};
    if (kind == Softmax::Safe)
      operands.push_back(highestAlong);
    return SmallVector<Tensor>{
        compute(kernel, operands, x.sizes, result, [](ArrayRef<Scalar> v) {
          Scalar near = v[0] * v[2];
          Scalar quotient = fma(fma(-near, v[1], v[0]), v[2], near);
          if (kind == Softmax::Plain)
            return quotient;
          return select(v[3] == -std::numeric_limits<double>::infinity(),
                        quotient.constant(0.0), quotient);
        })};
  }
  Tensor logTotal = compute(kernel, {total}, total.sizes, inner,
                            [](ArrayRef<Scalar> v) { return log(v[0]); });
  return SmallVector<Tensor>{
      compute(kernel, {x, highestAlong, along(logTotal, rank, *dim)}, x.sizes,
              result, [](ArrayRef<Scalar> v) { return v[0] - v[1] - v[2]; })};
}

template <bool isLog>
Lowered lowerSoftmaxBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  std::optional<Tensor> output = tensorArgument(call, kernel, "output");
  if (!areFloats({grad, output}) || grad->rank() == 0 ||
      grad->dtype != output->dtype || grad->sizes != output->sizes)
    return failure();
  int64_t rank = grad->rank();
  std::optional<int64_t> dim = dimArgument(call, "dim", rank);
  if (!dim)
    return failure();
  DType inner = computeType(grad->dtype);
  Tensor terms =
      compute(kernel, {*grad, *output}, grad->sizes, inner,
              [](ArrayRef<Scalar> v) { return isLog ? v[0] : v[0] * v[1]; });
  Tensor total = reduce(kernel, Reduction::Sum, terms, *dim);
  return SmallVector<Tensor>{
      compute(kernel, {*grad, *output, along(total, rank, *dim)}, grad->sizes,
              resultDType(call), [](ArrayRef<Scalar> v) {
                return isLog ? v[0] - exp(v[1]) * v[2] : (v[0] - v[2]) * v[1];
              })};
}

//===----------------------------------------------------------------------===//
// Layer and RMS normalisation
//===----------------------------------------------------------------------===//

/// The trailing dimensions that a layer norm works on.
std::optional<SmallVector<int64_t>> normalizedDims(graph::CallOp call,
                                                   int64_t rank) {
  auto shape = call.sizesArg("normalized_shape");
  if (!shape || shape->empty() || static_cast<int64_t>(shape->size()) > rank)
    return std::nullopt;
  return llvm::to_vector(
      llvm::seq<int64_t>(rank - static_cast<int64_t>(shape->size()), rank));
}

Lowered lowerLayerNorm(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<double> eps = call.floatArg("eps");
  if (!areFloats(in) || !eps)
    return failure();
  std::optional<SmallVector<int64_t>> dims = normalizedDims(call, in->rank());
  if (!dims)
    return failure();
  Tensor x = kernel.cast(*in, computeType(in->dtype));
  auto [mean, deviations] = moments(kernel, x, *dims, x.dtype);
  Tensor rstd =
      reciprocalDeviation(kernel, deviations, countOf(x.sizes, *dims), *eps);
  SmallVector<Operand> operands = {x, along(mean, x.rank(), *dims),
                                   along(rstd, x.rank(), *dims)};
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  std::optional<Tensor> bias = tensorArgument(call, kernel, "bias");
  if (weight)
    operands.push_back(broadcast(*weight, x.sizes));
  if (bias)
    operands.push_back(broadcast(*bias, x.sizes));
  Tensor out = compute(kernel, operands, x.sizes, resultDType(call, 0),
                       [&](ArrayRef<Scalar> v) {
                         Scalar result = (v[0] - v[1]) * v[2];
                         DType dtype = result.dtype();
                         // One rounding for both parameters, as PyTorch's
                         // kernel has it.
                         if (weight && bias)
                           return fma(result, v[3].to(dtype), v[4].to(dtype));
                         if (weight)
                           return result * v[3].to(dtype);
                         return bias ? result + v[3].to(dtype) : result;
                       });
  return SmallVector<Tensor>{
      out,
      withSizes(kernel, kernel.cast(mean, resultDType(call, 1)),
                resultSizes(call, 1)),
      withSizes(kernel, kernel.cast(rstd, resultDType(call, 2)),
                resultSizes(call, 2))};
}

/// The statistics of a norm come with size 1 in the normalised dimensions.
std::optional<Tensor> statistic(graph::CallOp call, KernelBuilder &kernel,
                                StringRef name, const Tensor &x,
                                ArrayRef<int64_t> dims) {
  std::optional<Tensor> tensor = tensorArgument(call, kernel, name);
  if (!tensor || !isFloatingPoint(tensor->dtype))
    return std::nullopt;
  SmallVector<SymExpr> rows;
  for (int64_t dim : otherDims(x.rank(), dims))
    rows.push_back(x.sizes[dim]);
  Tensor reshaped = kernel.reshape(*tensor, rows);
  if (!reshaped.value)
    return std::nullopt;
  return reshaped;
}

/// `hasMean`: layer norm; otherwise RMS norm.
template <bool hasMean>
Lowered lowerNormBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_out");
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<SmallVector<bool>> mask = boolsArgument(call, "output_mask");
  if (!areFloats({grad, in}) || grad->sizes != in->sizes || !mask ||
      mask->size() != (hasMean ? 3 : 2))
    return failure();
  std::optional<SmallVector<int64_t>> dims = normalizedDims(call, in->rank());
  if (!dims)
    return failure();
  std::optional<Tensor> rstd = statistic(call, kernel, "rstd", *in, *dims);
  std::optional<Tensor> mean;
  if (hasMean)
    mean = statistic(call, kernel, "mean", *in, *dims);
  if (!rstd || (hasMean && !mean))
    return failure();
  NormGradients gradients(kernel, *grad, *in, *rstd, *dims);
  gradients.mean = mean;
  if (std::optional<Tensor> weight = tensorArgument(call, kernel, "weight"))
    gradients.weight = broadcast(*weight, in->sizes);
  SmallVector<int64_t> rows = otherDims(in->rank(), *dims);
  Tensor unit = gradients.normalised();
  SmallVector<Tensor> results;
  // A gradient that is masked off is no output of the call.
  unsigned output = 0;
  if ((*mask)[0])
    results.push_back(gradients.input(unit, resultDType(call, output++)));
  if ((*mask)[1])
    results.push_back(gradients.sum(unit, rows, resultDType(call, output++)));
  if (hasMean && (*mask)[2])
    results.push_back(
        gradients.sum(std::nullopt, rows, resultDType(call, output++)));
  if (results.empty() || output != call.getOutputs().size())
    return failure();
  return results;
}

Lowered lowerRMSNorm(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  if (!areFloats(in) || call.getOutputs().size() != 2)
    return failure();
  std::optional<SmallVector<int64_t>> dims = normalizedDims(call, in->rank());
  std::optional<double> eps = call.floatArg("eps");
  DType inner = computeType(in->dtype);
  if (call.isNone("eps"))
    eps = inner == DType::F64 ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
  if (!dims || !eps)
    return failure();
  Tensor x = kernel.cast(*in, inner);
  Tensor squares = compute(kernel, {x}, x.sizes, x.dtype,
                           [](ArrayRef<Scalar> v) { return v[0] * v[0]; });
  SymExpr count = countOf(x.sizes, *dims);
  Tensor total = reduce(kernel, Reduction::Sum, squares, *dims);
  Tensor rstd =
      compute(kernel, {total}, total.sizes, x.dtype, [&](ArrayRef<Scalar> v) {
        return 1.0 / sqrt(v[0] / exprScalar(count, v[0]) + *eps);
      });
  SmallVector<Operand> operands = {x, along(rstd, x.rank(), *dims)};
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  if (weight)
    operands.push_back(broadcast(*weight, x.sizes));
  Tensor out = compute(
      kernel, operands, x.sizes, resultDType(call, 0), [&](ArrayRef<Scalar> v) {
        Scalar result = v[0] * v[1];
        return weight ? result * v[2].to(result.dtype()) : result;
      });
  return SmallVector<Tensor>{
      out, withSizes(kernel, kernel.cast(rstd, resultDType(call, 1)),
                     resultSizes(call, 1))};
}

} // namespace

void registerNormalisations(LoweringTable &table) {
  table.add("aten::_softmax", lowerSoftmax<Softmax::Plain>);
  table.add("aten::_log_softmax", lowerSoftmax<Softmax::Log>);
  table.add("aten::_safe_softmax", lowerSoftmax<Softmax::Safe>);
  table.add("aten::_softmax_backward_data", lowerSoftmaxBackward<false>);
  table.add("aten::_log_softmax_backward_data", lowerSoftmaxBackward<true>);
  table.add("aten::native_layer_norm", lowerLayerNorm);
  table.add("aten::native_layer_norm_backward", lowerNormBackward<true>);
  table.add("aten::_fused_rms_norm", lowerRMSNorm);
  table.add("aten::_fused_rms_norm_backward", lowerNormBackward<false>);
}

} // namespace intarsia::lower
