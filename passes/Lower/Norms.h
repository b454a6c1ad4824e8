//===- Norms.h - What normalisations have in common ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Moments, and the gradients of (x - mean) * rstd * weight + bias, whichever
// dimensions the statistics are taken over.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_NORMS_H
#define INTARSIA_PASSES_LOWER_NORMS_H

#include "passes/Lower/Compose.h"

namespace intarsia::lower {

bool areFloats(llvm::ArrayRef<std::optional<Tensor>> tensors);

/// The dimensions of `rank` that are not in `dims`.
llvm::SmallVector<int64_t> otherDims(int64_t rank,
                                     llvm::ArrayRef<int64_t> dims);

/// What the call of a variance takes off the count of elements: 1 by default.
/// Nothing where it is not known before the program runs.
std::optional<double> correctionArgument(graph::CallOp call);

/// With `dims` reduced away.
struct Moments {
  Tensor mean;
  /// The sum of the squared deviations from it.
  Tensor deviations;
};
/// In two passes over the data; sums in `accumulator`.
Moments moments(KernelBuilder &kernel, const Tensor &x,
                llvm::ArrayRef<int64_t> dims, DType accumulator);

/// 1 / sqrt(deviations / count + eps).
Tensor reciprocalDeviation(KernelBuilder &kernel, const Tensor &deviations,
                           const SymExpr &count, double eps);

/// The gradients of a normalisation, as far as they are wanted.
struct NormGradients {
  NormGradients(KernelBuilder &kernel, const Tensor &grad, const Tensor &x,
                const Tensor &rstd, llvm::ArrayRef<int64_t> dims)
      : kernel(kernel), grad(grad), x(x), rstd(rstd),
        dims(dims.begin(), dims.end()), inner(computeType(x.dtype)),
        accumulator(inner) {}

  KernelBuilder &kernel;
  Tensor grad, x;
  /// Without the dimensions that they were taken over.
  Tensor rstd;
  std::optional<Tensor> mean;
  std::optional<Operand> weight;
  llvm::SmallVector<int64_t> dims;
  /// What is computed in, and summed in.
  DType inner, accumulator;

  int64_t rank() const { return x.rank(); }
  /// The normalised input.
  Tensor normalised() const;
  /// Of the input.
  Tensor input(const Tensor &unit, DType result) const;
  /// Of the weight (with the normalised input) or the bias: the sum over
  /// `over`.
  Tensor sum(const std::optional<Tensor> &unit, llvm::ArrayRef<int64_t> over,
             DType result) const;
};

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_NORMS_H
