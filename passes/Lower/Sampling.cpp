//===- Sampling.cpp - Enlarging images ----------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Nearest neighbours and linear interpolation along the dimensions after batch
// and channels. Positions are computed in f32 for f32 and below, as PyTorch's
// kernels compute them.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

#include <cmath>
#include <functional>

using namespace mlir;

namespace intarsia::lower {
namespace {

/// One dimension of the image.
struct Axis {
  SymExpr from, to;
  /// The factor that the user gave, if any.
  std::optional<double> factor;
};

/// The factor that the user gave for the dimension `number` of the image: an
/// argument of its own, or one of a list.
std::optional<double> factorArgument(graph::CallOp call, StringRef name,
                                     size_t number) {
  auto list = dyn_cast_or_null<ArrayAttr>(call.arg("scale_factors"));
  if (!list)
    return call.floatArg(name);
  auto factor =
      number < list.size() ? dyn_cast<FloatAttr>(list[number]) : FloatAttr();
  return factor ? std::optional(factor.getValueAsDouble()) : std::nullopt;
}

std::optional<Tensor> source(graph::CallOp call, KernelBuilder &kernel) {
  return tensorArgument(call, kernel, call.arg("self") ? "self" : "input");
}

/// The dimensions after batch and channels; `factors` names the arguments with
/// their factors.
std::optional<SmallVector<Axis>> axes(graph::CallOp call,
                                      ArrayRef<SymExpr> from,
                                      ArrayRef<SymExpr> to,
                                      ArrayRef<StringRef> factors) {
  if (from.size() != factors.size() + 2 || to.size() != from.size() ||
      from[0] != to[0] || from[1] != to[1])
    return std::nullopt;
  SmallVector<Axis> result;
  for (auto [number, name] : llvm::enumerate(factors)) {
    Axis axis{from[number + 2], to[number + 2], std::nullopt};
    if (!call.isNone(name) || !call.isNone("scale_factors")) {
      axis.factor = factorArgument(call, name, number);
      if (!axis.factor)
        return std::nullopt;
    }
    result.push_back(axis);
  }
  return result;
}

/// The step in the source from one position to the next, in `like`'s dtype.
Scalar stepOf(const Axis &axis, const Scalar &like) {
  if (axis.factor && *axis.factor > 0)
    return like.constant(1.0 / *axis.factor);
  return exprScalar(axis.from, like) / exprScalar(axis.to, like);
}

/// k, if position i of the result always is position i / k of the source.
std::optional<int64_t> wholeFactor(const Axis &axis) {
  for (int64_t k : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
    if (axis.to != axis.from * SymExpr(k))
      continue;
    if (axis.factor && *axis.factor != static_cast<double>(k))
      return std::nullopt;
    // What eager computes, rounding included.
    float step = 1.0f / static_cast<float>(k);
    bool isExact = (k & (k - 1)) == 0;
    std::optional<int64_t> size = axis.to.asInteger();
    if (!isExact && size && *size < (1 << 16)) {
      isExact = true;
      for (int64_t i = 0; i < *size; ++i)
        isExact &= static_cast<int64_t>(
                       std::floor(static_cast<float>(i) * step)) == i / k;
    }
    return isExact ? std::optional(k) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<SmallVector<int64_t>> wholeFactors(ArrayRef<Axis> image) {
  SmallVector<int64_t> factors;
  for (const Axis &axis : image) {
    std::optional<int64_t> factor = wholeFactor(axis);
    if (!factor)
      return std::nullopt;
    factors.push_back(*factor);
  }
  return factors;
}

/// Sizes of the source with a dimension of `factors` after each of the image's.
SmallVector<SymExpr> blocks(ArrayRef<SymExpr> sizes,
                            ArrayRef<int64_t> factors) {
  SmallVector<SymExpr> result(sizes.begin(), sizes.begin() + 2);
  for (auto [size, factor] : llvm::zip(sizes.drop_front(2), factors)) {
    result.push_back(size);
    result.push_back(factor);
  }
  return result;
}

Lowered lowerNearest(graph::CallOp call, KernelBuilder &kernel,
                     ArrayRef<StringRef> factorNames) {
  std::optional<Tensor> self = source(call, kernel);
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!self)
    return failure();
  auto image = axes(call, self->sizes, sizes, factorNames);
  if (!image)
    return failure();
  if (auto factors = wholeFactors(*image)) {
    Access access{*self, {0, 1}};
    for (size_t axis = 0; axis < factors->size(); ++axis)
      access.dims.push_back(static_cast<int64_t>(2 + 2 * axis));
    Tensor repeated =
        compute(kernel, {access}, blocks(self->sizes, *factors), self->dtype,
                [](ArrayRef<Scalar> v) { return v[0]; });
    return SmallVector<Tensor>{withSizes(kernel, repeated, sizes)};
  }
  return SmallVector<Tensor>{
      computeAt(kernel, {}, sizes, self->dtype,
                [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
                  SmallVector<Scalar> from = llvm::to_vector(position);
                  for (auto [number, axis] : llvm::enumerate(*image)) {
                    Scalar &at = from[number + 2];
                    Scalar last = exprScalar(axis.from - SymExpr(1), at);
                    if (axis.from == axis.to)
                      continue;
                    Scalar real = at.to(DType::F32);
                    at = floor(real * stepOf(axis, real)).to(DType::I64);
                    at = max(last.constant(0), min(at, last));
                  }
                  return readAt(*self, from);
                })};
}

/// Every element of the source gets the sum of its block.
Lowered lowerNearestBackward(graph::CallOp call, KernelBuilder &kernel,
                             ArrayRef<StringRef> factorNames) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!grad || !isFloatingPoint(grad->dtype))
    return failure();
  auto image = axes(call, sizes, grad->sizes, factorNames);
  if (!image)
    return failure();
  auto factors = wholeFactors(*image);
  if (!factors)
    return failure();
  Tensor split = withSizes(kernel, kernel.cast(*grad, computeType(grad->dtype)),
                           blocks(sizes, *factors));
  if (kernel.declined())
    return failure();
  SmallVector<int64_t> dims;
  for (size_t axis = 0; axis < factors->size(); ++axis)
    dims.push_back(static_cast<int64_t>(3 + 2 * axis));
  return SmallVector<Tensor>{kernel.cast(
      reduce(kernel, Reduction::Sum, split, dims), resultDType(call))};
}

/// Between which positions of the source one of the result lies, and how near
/// to the second.
struct Between {
  Scalar low, high, weight;
};

Between between(const Axis &axis, const Scalar &at, bool alignCorners,
                DType real) {
  Scalar x = at.to(real);
  Scalar last = exprScalar(axis.from - SymExpr(1), at);
  Scalar source = x;
  if (alignCorners) {
    // A single element is the first of the source.
    Scalar gaps = exprScalar(axis.to - SymExpr(1), x);
    Scalar step = select(
        gaps > 0.0, last.to(real) / stdMax(gaps, x.constant(1)), x.constant(0));
    source = x * step;
  } else {
    source = stdMax(stepOf(axis, x) * (x + 0.5) - 0.5, x.constant(0));
  }
  Scalar zero = at.constant(0);
  Scalar low = max(zero, min(floor(source).to(DType::I64), last));
  Scalar high = min(low + at.constant(1), last);
  Scalar weight =
      stdMin(stdMax(source - low.to(real), x.constant(0)), x.constant(1));
  return {low, high, weight};
}

Lowered lowerLinear(graph::CallOp call, KernelBuilder &kernel,
                    ArrayRef<StringRef> factorNames) {
  std::optional<Tensor> self = source(call, kernel);
  std::optional<bool> alignCorners = call.boolArg("align_corners");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!self || !alignCorners || !isFloatingPoint(self->dtype))
    return failure();
  auto image = axes(call, self->sizes, sizes, factorNames);
  if (!image)
    return failure();
  return SmallVector<Tensor>{computeAt(
      kernel, {}, sizes, self->dtype,
      [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
        DType real = computeType(self->dtype);
        SmallVector<Between> around;
        for (auto [number, axis] : llvm::enumerate(*image))
          around.push_back(
              between(axis, position[number + 2], *alignCorners, real));
        SmallVector<Scalar> from = llvm::to_vector(position);
        std::function<Scalar(size_t)> interpolate = [&](size_t axis) -> Scalar {
          if (axis == around.size())
            return readAt(*self, from);
          const Between &at = around[axis];
          from[axis + 2] = at.low;
          Scalar low = interpolate(axis + 1);
          from[axis + 2] = at.high;
          Scalar high = interpolate(axis + 1);
          return (1.0 - at.weight) * low + at.weight * high;
        };
        return interpolate(0);
      })};
}

template <Lowered (*lower)(graph::CallOp, KernelBuilder &, ArrayRef<StringRef>),
          unsigned rank>
Lowered along(graph::CallOp call, KernelBuilder &kernel) {
  if (rank == 1)
    return lower(call, kernel, {"scales"});
  if (rank == 2)
    return lower(call, kernel, {"scales_h", "scales_w"});
  return lower(call, kernel, {"scales_d", "scales_h", "scales_w"});
}

} // namespace

void registerSampling(LoweringTable &table) {
  table.add("aten::upsample_nearest1d", along<lowerNearest, 1>);
  table.add("aten::upsample_nearest2d", along<lowerNearest, 2>);
  table.add("aten::upsample_nearest3d", along<lowerNearest, 3>);
  table.add("aten::upsample_nearest1d.vec", along<lowerNearest, 1>);
  table.add("aten::upsample_nearest2d.vec", along<lowerNearest, 2>);
  table.add("aten::upsample_nearest3d.vec", along<lowerNearest, 3>);
  table.add("aten::upsample_nearest1d_backward",
            along<lowerNearestBackward, 1>);
  table.add("aten::upsample_nearest2d_backward",
            along<lowerNearestBackward, 2>);
  table.add("aten::upsample_nearest3d_backward",
            along<lowerNearestBackward, 3>);
  table.add("aten::upsample_linear1d", along<lowerLinear, 1>);
  table.add("aten::upsample_linear1d.vec", along<lowerLinear, 1>);
  table.add("aten::upsample_bilinear2d", along<lowerLinear, 2>);
  table.add("aten::upsample_bilinear2d.vec", along<lowerLinear, 2>);
}

} // namespace intarsia::lower
