//===- Norms.cpp - What normalisations have in common -------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Norms.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Norms.h"

using namespace mlir;

namespace intarsia::lower {

bool areFloats(ArrayRef<std::optional<Tensor>> tensors) {
  return llvm::all_of(tensors, [](const std::optional<Tensor> &tensor) {
    return tensor && isFloatingPoint(tensor->dtype);
  });
}

SmallVector<int64_t> otherDims(int64_t rank, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> others;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      others.push_back(dim);
  return others;
}

std::optional<double> correctionArgument(graph::CallOp call) {
  if (std::optional<bool> unbiased = call.boolArg("unbiased"))
    return *unbiased;
  return call.isNone("correction") ? 1.0 : call.floatArg("correction");
}

Moments moments(KernelBuilder &kernel, const Tensor &x, ArrayRef<int64_t> dims,
                DType accumulator) {
  SymExpr count = countOf(x.sizes, dims);
  Tensor total =
      reduce(kernel, Reduction::Sum, kernel.cast(x, accumulator), dims);
  Tensor mean = compute(
      kernel, {total}, total.sizes, accumulator,
      [&](ArrayRef<Scalar> v) { return v[0] / exprScalar(count, v[0]); });
  Tensor squares = compute(kernel, {x, along(mean, x.rank(), dims)}, x.sizes,
                           accumulator, [&](ArrayRef<Scalar> v) {
                             Scalar deviation = v[0].to(accumulator) - v[1];
                             return deviation * deviation;
                           });
  return {mean, reduce(kernel, Reduction::Sum, squares, dims)};
}

Tensor reciprocalDeviation(KernelBuilder &kernel, const Tensor &deviations,
                           const SymExpr &count, double eps) {
  return compute(kernel, {deviations}, deviations.sizes, deviations.dtype,
                 [&](ArrayRef<Scalar> v) {
                   return 1.0 / sqrt(v[0] / exprScalar(count, v[0]) + eps);
                 });
}

Tensor NormGradients::normalised() const {
  SmallVector<Operand> operands = {x, along(rstd, rank(), dims)};
  if (mean)
    operands.push_back(along(*mean, rank(), dims));
  return compute(kernel, operands, x.sizes, inner, [&](ArrayRef<Scalar> v) {
    Scalar deviation = mean ? v[0] - v[2].to(inner) : v[0];
    return deviation * v[1].to(inner);
  });
}

Tensor NormGradients::input(const Tensor &unit, DType result) const {
  SmallVector<Operand> operands = {grad};
  if (weight)
    operands.push_back(*weight);
  Tensor scaled =
      compute(kernel, operands, x.sizes, inner, [&](ArrayRef<Scalar> v) {
        Scalar gradient = v[0].to(inner);
        return weight ? gradient * v[1].to(inner) : gradient;
      });
  Tensor products = compute(
      kernel, {scaled, unit}, x.sizes, accumulator, [&](ArrayRef<Scalar> v) {
        return v[0].to(accumulator) * v[1].to(accumulator);
      });
  Tensor productSum = reduce(kernel, Reduction::Sum, products, dims);
  SmallVector<Operand> last = {scaled, unit, along(productSum, rank(), dims),
                               along(rstd, rank(), dims)};
  if (mean)
    last.push_back(along(
        reduce(kernel, Reduction::Sum, kernel.cast(scaled, accumulator), dims),
        rank(), dims));
  SymExpr count = countOf(x.sizes, dims);
  return compute(kernel, last, x.sizes, result, [&](ArrayRef<Scalar> v) {
    auto average = [&](const Scalar &sum) {
      return (sum / exprScalar(count, sum)).to(inner);
    };
    Scalar common = v[1] * average(v[2]);
    if (mean)
      common = common + average(v[4]);
    return v[3].to(inner) * (v[0] - common);
  });
}

Tensor NormGradients::sum(const std::optional<Tensor> &unit,
                          ArrayRef<int64_t> over, DType result) const {
  SmallVector<Operand> operands = {grad};
  if (unit)
    operands.push_back(*unit);
  Tensor terms =
      compute(kernel, operands, x.sizes, accumulator, [&](ArrayRef<Scalar> v) {
        Scalar gradient = v[0].to(accumulator);
        return unit ? gradient * v[1].to(accumulator) : gradient;
      });
  return kernel.cast(reduce(kernel, Reduction::Sum, terms, over), result);
}

} // namespace intarsia::lower
