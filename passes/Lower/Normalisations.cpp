//===- Normalisations.cpp - Softmax and normalisation layers ------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Softmax and its logarithm, layer, group, batch and RMS normalisation, forward
// and backward. f16 and bf16 are computed in f32 and rounded once, at the end,
// as in PyTorch's kernels.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

bool areFloats(ArrayRef<std::optional<Tensor>> tensors) {
  return llvm::all_of(tensors, [](const std::optional<Tensor> &tensor) {
    return tensor && isFloatingPoint(tensor->dtype);
  });
}

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
  Operand totalAlong = along(total, rank, *dim);
  DType result = resultDType(call);
  if (kind != Softmax::Log) {
    SmallVector<Operand> operands = {powers, totalAlong};
    if (kind == Softmax::Safe)
      operands.push_back(highestAlong);
    return SmallVector<Tensor>{
        compute(kernel, operands, x.sizes, result, [](ArrayRef<Scalar> v) {
          Scalar quotient = v[0] / v[1];
          if (kind == Softmax::Plain)
            return quotient;
          return select(v[2] == -std::numeric_limits<double>::infinity(),
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
      grad->dtype != output->dtype)
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
// Mean and reciprocal standard deviation
//===----------------------------------------------------------------------===//

struct Moments {
  Tensor mean, rstd;
};

/// In two passes over the data: deviations are taken from the mean.
Moments moments(KernelBuilder &kernel, const Tensor &x, ArrayRef<int64_t> dims,
                double eps) {
  SymExpr count = countOf(x.sizes, dims);
  Tensor total = reduce(kernel, Reduction::Sum, x, dims);
  auto divide = [&](const Tensor &sum) {
    return compute(kernel, {sum}, sum.sizes, x.dtype, [&](ArrayRef<Scalar> v) {
      return v[0] / exprScalar(count, v[0]);
    });
  };
  Tensor mean = divide(total);
  Tensor squares = compute(kernel, {x, along(mean, x.rank(), dims)}, x.sizes,
                           x.dtype, [](ArrayRef<Scalar> v) {
                             Scalar deviation = v[0] - v[1];
                             return deviation * deviation;
                           });
  Tensor variance = divide(reduce(kernel, Reduction::Sum, squares, dims));
  Tensor rstd =
      compute(kernel, {variance}, variance.sizes, x.dtype,
              [&](ArrayRef<Scalar> v) { return 1.0 / sqrt(v[0] + eps); });
  return {mean, rstd};
}

/// The trailing dimensions that a layer norm works on.
std::optional<SmallVector<int64_t>> normalizedDims(graph::CallOp call,
                                                   int64_t rank) {
  auto shape = call.sizesArg("normalized_shape");
  if (!shape || shape->empty() || static_cast<int64_t>(shape->size()) > rank)
    return std::nullopt;
  return llvm::to_vector(
      llvm::seq<int64_t>(rank - static_cast<int64_t>(shape->size()), rank));
}

SmallVector<int64_t> otherDims(int64_t rank, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> others;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      others.push_back(dim);
  return others;
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
  auto [mean, rstd] = moments(kernel, x, *dims, *eps);
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

/// What the backward passes of layer and RMS norm share: the gradients of
/// input, weight and bias, as far as they are wanted.
struct NormGradients {
  KernelBuilder &kernel;
  Tensor grad, x;
  std::optional<Tensor> mean, weight;
  Tensor rstd;
  SmallVector<int64_t> dims;
  DType inner;

  int64_t rank() const { return x.rank(); }

  /// The normalised input.
  Tensor normalised() const {
    SmallVector<Operand> operands = {x, along(rstd, rank(), dims)};
    if (mean)
      operands.push_back(along(*mean, rank(), dims));
    return compute(kernel, operands, x.sizes, inner, [&](ArrayRef<Scalar> v) {
      Scalar deviation = mean ? v[0] - v[2].to(inner) : v[0];
      return deviation * v[1].to(inner);
    });
  }

  Tensor input(const Tensor &unit, DType result) const {
    SmallVector<Operand> operands = {grad};
    if (weight)
      operands.push_back(broadcast(*weight, x.sizes));
    Tensor scaled =
        compute(kernel, operands, x.sizes, inner, [&](ArrayRef<Scalar> v) {
          return weight ? v[0] * v[1].to(inner) : v[0];
        });
    Tensor products = compute(kernel, {scaled, unit}, x.sizes, inner,
                              [](ArrayRef<Scalar> v) { return v[0] * v[1]; });
    Tensor productSum = reduce(kernel, Reduction::Sum, products, dims);
    SmallVector<Operand> last = {scaled, unit, along(productSum, rank(), dims),
                                 along(rstd, rank(), dims)};
    if (mean)
      last.push_back(
          along(reduce(kernel, Reduction::Sum, scaled, dims), rank(), dims));
    SymExpr count = countOf(x.sizes, dims);
    return compute(kernel, last, x.sizes, result, [&](ArrayRef<Scalar> v) {
      Scalar elements = exprScalar(count, v[0]);
      Scalar inner = v[1] * (v[2] / elements);
      if (mean)
        inner = inner + v[4] / elements;
      return v[3].to(v[0].dtype()) * (v[0] - inner);
    });
  }

  /// Summed over everything but the normalised dimensions.
  Tensor column(const std::optional<Tensor> &unit, DType result) const {
    SmallVector<int64_t> rows = otherDims(rank(), dims);
    SmallVector<Operand> operands = {grad};
    if (unit)
      operands.push_back(*unit);
    Tensor terms =
        compute(kernel, operands, x.sizes, inner,
                [&](ArrayRef<Scalar> v) { return unit ? v[0] * v[1] : v[0]; });
    if (rows.empty())
      return kernel.cast(terms, result);
    return kernel.cast(reduce(kernel, Reduction::Sum, terms, rows), result);
  }
};

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
  if (!areFloats({grad, in}) || !mask || mask->size() != (hasMean ? 3 : 2))
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
  NormGradients gradients{kernel,
                          *grad,
                          *in,
                          mean,
                          tensorArgument(call, kernel, "weight"),
                          *rstd,
                          *dims,
                          computeType(in->dtype)};
  Tensor unit = gradients.normalised();
  SmallVector<Tensor> results;
  // A gradient that is masked off is no output of the call.
  unsigned output = 0;
  if ((*mask)[0])
    results.push_back(gradients.input(unit, resultDType(call, output++)));
  if ((*mask)[1])
    results.push_back(gradients.column(unit, resultDType(call, output++)));
  if (hasMean && (*mask)[2])
    results.push_back(
        gradients.column(std::nullopt, resultDType(call, output++)));
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
  if (!dims || !eps)
    return failure();
  Tensor x = kernel.cast(*in, computeType(in->dtype));
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

//===----------------------------------------------------------------------===//
// Group and batch normalisation
//===----------------------------------------------------------------------===//

Lowered lowerGroupNorm(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<int64_t> group = call.intArg("group");
  std::optional<double> eps = call.floatArg("eps");
  if (!areFloats(in) || in->rank() < 2 || !group || !eps)
    return failure();
  std::optional<int64_t> channels = in->sizes[1].asInteger();
  if (!channels || *channels % *group != 0)
    return failure();
  // N x groups x channels of a group x the rest
  SmallVector<SymExpr> grouped = {in->sizes[0], *group, *channels / *group};
  llvm::append_range(grouped, ArrayRef(in->sizes).drop_front(2));
  Tensor reshaped = kernel.reshape(*in, grouped);
  if (!reshaped.value)
    return failure();
  Tensor x = kernel.cast(reshaped, computeType(in->dtype));
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(2, x.rank()));
  auto [mean, rstd] = moments(kernel, x, dims, *eps);
  SmallVector<Operand> operands = {x, along(mean, x.rank(), dims),
                                   along(rstd, x.rank(), dims)};
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  std::optional<Tensor> bias = tensorArgument(call, kernel, "bias");
  for (const std::optional<Tensor> &parameter : {weight, bias})
    if (parameter) {
      Tensor split =
          kernel.reshape(*parameter, {SymExpr(*group), *channels / *group});
      if (!split.value)
        return failure();
      operands.push_back(Access{split, {1, 2}});
    }
  Tensor out = compute(kernel, operands, x.sizes, resultDType(call, 0),
                       [&](ArrayRef<Scalar> v) {
                         // As PyTorch's kernel: x * scale + shift.
                         Scalar scale = v[2];
                         if (weight)
                           scale = scale * v[3].to(scale.dtype());
                         Scalar shift = -(scale * v[1]);
                         if (bias)
                           shift = shift + v.back().to(scale.dtype());
                         return scale * v[0] + shift;
                       });
  return SmallVector<Tensor>{
      withSizes(kernel, out, in->sizes),
      withSizes(kernel, kernel.cast(mean, resultDType(call, 1)),
                resultSizes(call, 1)),
      withSizes(kernel, kernel.cast(rstd, resultDType(call, 2)),
                resultSizes(call, 2))};
}

Lowered lowerBatchNormInference(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> x = tensorArgument(call, kernel, "input");
  std::optional<Tensor> mean = tensorArgument(call, kernel, "running_mean");
  std::optional<Tensor> variance = tensorArgument(call, kernel, "running_var");
  std::optional<double> eps = call.floatArg("eps");
  if (!areFloats({x, mean, variance}) || x->rank() < 2 || !eps)
    return failure();
  // The saved statistics of this operator are empty.
  for (Value other : call.getOutputs().drop_front())
    if (!other.use_empty())
      return failure();
  DType inner = computeType(x->dtype);
  auto channels = [](const Tensor &tensor) {
    return Operand(Access{tensor, {1}});
  };
  SmallVector<Operand> operands = {*x, channels(*mean), channels(*variance)};
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  std::optional<Tensor> bias = tensorArgument(call, kernel, "bias");
  if (weight)
    operands.push_back(channels(*weight));
  if (bias)
    operands.push_back(channels(*bias));
  Tensor out = compute(kernel, operands, x->sizes, resultDType(call, 0),
                       [&](ArrayRef<Scalar> v) {
                         // As PyTorch's kernel: x * alpha + beta.
                         Scalar alpha = 1.0 / sqrt(v[2].to(inner) + *eps);
                         if (weight)
                           alpha = alpha * v[3].to(inner);
                         Scalar beta = -(v[1].to(inner) * alpha);
                         if (bias)
                           beta = v.back().to(inner) + beta;
                         return v[0] * alpha + beta;
                       });
  return SmallVector<Tensor>{out, Tensor(), Tensor()};
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
  table.add("aten::native_group_norm", lowerGroupNorm);
  table.add("aten::_native_batch_norm_legit_no_training",
            lowerBatchNormInference);
}

} // namespace intarsia::lower
