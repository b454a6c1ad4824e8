//===- ChannelNorms.cpp - Group and batch normalisation -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Normalisations whose parameters belong to channels, forward and backward.
// Batch norm sums float32 in double, as PyTorch's CPU kernels do.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Norms.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

/// One value a channel, at dimension 1.
Operand ofChannels(const Tensor &tensor) {
  return Operand(Access{tensor, {1}});
}

/// Whether a channel's elements lie next to each other. Where the channels do
/// (channels last), PyTorch's kernels for groups, and for gradients, are faster
/// than ours.
bool hasChannelsApart(graph::CallOp call) {
  auto type = cast<graph::TensorType>(call.operand("input").getType());
  SmallVector<SymExpr> sizes = type.getSizeExprs();
  return !type.getStrideExprs()[1].isInteger(1) || sizes[1].isInteger(1) ||
         llvm::all_of(ArrayRef(sizes).drop_front(2),
                      [](const SymExpr &size) { return size.isInteger(1); });
}

//===----------------------------------------------------------------------===//
// Group normalisation
//===----------------------------------------------------------------------===//

/// Tensors as N x groups x channels of a group x the rest.
struct Grouping {
  SmallVector<SymExpr> sizes; // of the whole tensor
  int64_t group = 0, channels = 0;

  static std::optional<Grouping> get(graph::CallOp call, const Tensor &in) {
    std::optional<int64_t> group = call.intArg("group");
    if (in.rank() < 2 || !group || *group < 1)
      return std::nullopt;
    std::optional<int64_t> channels = in.sizes[1].asInteger();
    if (!channels || *channels % *group != 0)
      return std::nullopt;
    Grouping grouping;
    grouping.group = *group;
    grouping.channels = *channels;
    grouping.sizes = {in.sizes[0], *group, *channels / *group};
    llvm::append_range(grouping.sizes, ArrayRef(in.sizes).drop_front(2));
    return grouping;
  }

  /// The dimensions that statistics are taken over.
  SmallVector<int64_t> dims() const {
    return llvm::to_vector(llvm::seq<int64_t>(2, sizes.size()));
  }
  Tensor whole(KernelBuilder &kernel, const Tensor &in) const {
    return withSizes(kernel, in, sizes);
  }
  /// A parameter, one value a channel.
  std::optional<Operand> parameter(graph::CallOp call, KernelBuilder &kernel,
                                   StringRef name) const {
    std::optional<Tensor> tensor = tensorArgument(call, kernel, name);
    if (!tensor)
      return std::nullopt;
    return Operand(
        Access{withSizes(kernel, *tensor, {sizes[1], sizes[2]}), {1, 2}});
  }
};

Lowered lowerGroupNorm(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<double> eps = call.floatArg("eps");
  if (!areFloats(in) || in->rank() < 2 || !eps || !hasChannelsApart(call))
    return failure();
  std::optional<Grouping> grouping = Grouping::get(call, *in);
  if (!grouping)
    return failure();
  Tensor reshaped = grouping->whole(kernel, *in);
  if (kernel.declined())
    return failure();
  Tensor x = kernel.cast(reshaped, computeType(in->dtype));
  SmallVector<int64_t> dims = grouping->dims();
  auto [mean, deviations] = moments(kernel, x, dims, x.dtype);
  Tensor rstd =
      reciprocalDeviation(kernel, deviations, countOf(x.sizes, dims), *eps);
  SmallVector<Operand> operands = {x, along(mean, x.rank(), dims),
                                   along(rstd, x.rank(), dims)};
  std::optional<Operand> weight = grouping->parameter(call, kernel, "weight");
  std::optional<Operand> bias = grouping->parameter(call, kernel, "bias");
  if (kernel.declined())
    return failure();
  for (const std::optional<Operand> &parameter : {weight, bias})
    if (parameter)
      operands.push_back(*parameter);
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

//===----------------------------------------------------------------------===//
// Batch normalisation
//===----------------------------------------------------------------------===//

/// x * alpha + beta, as PyTorch's kernel has it.
Tensor scaled(graph::CallOp call, KernelBuilder &kernel, const Tensor &x,
              const Tensor &mean, const Tensor &statistic,
              llvm::function_ref<Scalar(const Scalar &)> reciprocal) {
  DType inner = computeType(x.dtype);
  SmallVector<Operand> operands = {x, ofChannels(mean), ofChannels(statistic)};
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  std::optional<Tensor> bias = tensorArgument(call, kernel, "bias");
  for (const std::optional<Tensor> &parameter : {weight, bias})
    if (parameter)
      operands.push_back(ofChannels(*parameter));
  return compute(kernel, operands, x.sizes, resultDType(call, 0),
                 [&](ArrayRef<Scalar> v) {
                   Scalar alpha = reciprocal(v[2].to(inner));
                   if (weight)
                     alpha = alpha * v[3].to(inner);
                   Scalar beta = -(v[1].to(inner) * alpha);
                   if (bias)
                     beta = v.back().to(inner) + beta;
                   return v[0] * alpha + beta;
                 });
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
  Tensor out = scaled(call, kernel, *x, *mean, *variance,
                      [&](const Scalar &v) { return 1.0 / sqrt(v + *eps); });
  return SmallVector<Tensor>{out, Tensor(), Tensor()};
}

DType batchAccumulator(DType dtype) {
  return dtype == DType::F32 ? DType::F64 : computeType(dtype);
}

/// With the running statistics' new values as the last two results, if it has
/// running statistics.
template <bool hasRunning>
Lowered lowerBatchNormTraining(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<double> eps = call.floatArg("eps");
  std::optional<double> momentum = call.floatArg("momentum");
  if (!areFloats(in) || in->rank() < 2 || !eps || !momentum ||
      !call.boolArg("training").value_or(false))
    return failure();
  DType accumulator = batchAccumulator(in->dtype);
  SmallVector<int64_t> dims = otherDims(in->rank(), {1});
  SymExpr count = countOf(in->sizes, dims);
  auto [mean, deviations] = moments(
      kernel, kernel.cast(*in, computeType(in->dtype)), dims, accumulator);
  // The statistics are float32 for the halves, whatever is saved.
  DType inner = computeType(in->dtype);
  Tensor batchMean = kernel.cast(mean, inner);
  Tensor rstd =
      kernel.cast(reciprocalDeviation(kernel, deviations, count, *eps), inner);
  SmallVector<Tensor> results = {scaled(call, kernel, *in, batchMean, rstd,
                                        [](const Scalar &v) { return v; }),
                                 kernel.cast(batchMean, resultDType(call, 1)),
                                 kernel.cast(rstd, resultDType(call, 2))};
  if (!hasRunning)
    return results;

  std::optional<Tensor> oldMean = tensorArgument(call, kernel, "running_mean");
  std::optional<Tensor> oldVariance =
      tensorArgument(call, kernel, "running_var");
  if (!areFloats({oldMean, oldVariance}))
    return failure();
  // The momentum is a double in eager.
  auto moved = [&](const Scalar &fresh, const Scalar &old) {
    return *momentum * fresh.to(DType::F64) +
           (1 - *momentum) * old.to(DType::F64);
  };
  results.push_back(compute(
      kernel, {batchMean, *oldMean}, oldMean->sizes, resultDType(call, 3),
      [&](ArrayRef<Scalar> v) { return moved(v[0], v[1]); }));
  results.push_back(
      compute(kernel, {deviations, *oldVariance}, oldVariance->sizes,
              resultDType(call, 4), [&](ArrayRef<Scalar> v) {
                Scalar unbiased = v[0] / (exprScalar(count, v[0]) - 1.0);
                return moved(unbiased, v[1]);
              }));
  return results;
}

/// The wanted gradients of input, weight and bias. One that is masked off is no
/// output of the call.
Lowered wantedGradients(graph::CallOp call, KernelBuilder &kernel,
                        llvm::function_ref<Tensor(unsigned, DType)> gradient) {
  std::optional<SmallVector<bool>> mask = boolsArgument(call, "output_mask");
  if (!mask || mask->size() != 3)
    return failure();
  SmallVector<Tensor> results;
  for (unsigned number = 0; number < 3; ++number) {
    if (!(*mask)[number])
      continue;
    unsigned output = results.size();
    if (output == call.getOutputs().size())
      return failure();
    results.push_back(withSizes(kernel,
                                gradient(number, resultDType(call, output)),
                                resultSizes(call, output)));
  }
  if (results.empty() || results.size() != call.getOutputs().size())
    return failure();
  return results;
}

Lowered lowerBatchNormBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_out");
  std::optional<Tensor> in = tensorArgument(call, kernel, "input");
  std::optional<bool> isTraining = call.boolArg("train");
  std::optional<double> eps = call.floatArg("eps");
  if (!isTraining || !eps)
    return failure();
  std::optional<Tensor> mean =
      tensorArgument(call, kernel, *isTraining ? "save_mean" : "running_mean");
  std::optional<Tensor> statistic =
      tensorArgument(call, kernel, *isTraining ? "save_invstd" : "running_var");
  if (!areFloats({grad, in, mean, statistic}) || in->rank() < 2 ||
      !hasChannelsApart(call) || grad->sizes != in->sizes)
    return failure();
  SmallVector<int64_t> dims = otherDims(in->rank(), {1});
  Tensor rstd = *statistic;
  if (!*isTraining)
    rstd = compute(kernel, {*statistic}, statistic->sizes,
                   computeType(statistic->dtype),
                   [&](ArrayRef<Scalar> v) { return 1.0 / sqrt(v[0] + *eps); });
  NormGradients gradients(kernel, *grad, *in, rstd, dims);
  gradients.accumulator = batchAccumulator(in->dtype);
  gradients.mean = mean;
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  if (weight)
    gradients.weight = ofChannels(*weight);
  Tensor unit = gradients.normalised();
  return wantedGradients(
      call, kernel, [&](unsigned number, DType dtype) -> Tensor {
        if (number > 0)
          return gradients.sum(number == 1 ? std::optional(unit) : std::nullopt,
                               dims, dtype);
        if (*isTraining)
          return gradients.input(unit, dtype);
        // The statistics do not depend on the input.
        SmallVector<Operand> operands = {*grad, ofChannels(rstd)};
        if (weight)
          operands.push_back(ofChannels(*weight));
        DType inner = gradients.inner;
        return compute(kernel, operands, in->sizes, dtype,
                       [&](ArrayRef<Scalar> v) {
                         Scalar result = v[0].to(inner) * v[1].to(inner);
                         return weight ? result * v[2].to(inner) : result;
                       });
      });
}

} // namespace

void registerChannelNorms(LoweringTable &table) {
  table.add("aten::native_group_norm", lowerGroupNorm);
  table.add("aten::_native_batch_norm_legit_no_training",
            lowerBatchNormInference);
  table.add("aten::_native_batch_norm_legit_functional",
            lowerBatchNormTraining<true>);
  table.add("aten::_native_batch_norm_legit.no_stats",
            lowerBatchNormTraining<false>);
  table.add("aten::native_batch_norm_backward", lowerBatchNormBackward);
}

} // namespace intarsia::lower
