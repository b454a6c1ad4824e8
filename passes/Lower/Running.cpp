//===- Running.cpp - Running sums, products and extrema -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each element needs the one before it along one dimension. They accumulate as
// PyTorch's CPU kernels do: float32 in double, the halves in float32, integers
// in int64, so that the results are the same to the last bit. On CUDA a row is
// at most a warp's: where few are known to be there, they stay calls, of
// PyTorch's kernels, which share out a row among blocks.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

#include <limits>

using namespace mlir;

namespace intarsia::lower {
namespace {

/// Whether a dimension from `first` on, other than `dim`, may have more than
/// one element: the rows that a kernel computes side by side.
bool hasRows(const Tensor &in, int64_t dim, int64_t first) {
  for (int64_t other = first; other < in.rank(); ++other)
    if (other != dim && !in.sizes[other].isInteger(1))
      return true;
  return false;
}

bool isOnCPU(graph::CallOp call) {
  return resultType(call).getDevice() == "cpu";
}

/// Rows that keep a GPU busy, and a length at which that does not matter.
constexpr int64_t enoughRows = 512, shortRow = 1024;

std::optional<int64_t> dimension(graph::CallOp call,
                                 const std::optional<Tensor> &in) {
  if (!in || in->rank() == 0)
    return std::nullopt;
  std::optional<int64_t> dim = dimArgument(call, "dim", in->rank());
  if (!dim || isOnCPU(call))
    return dim;
  std::optional<int64_t> length = in->sizes[*dim].asInteger();
  std::optional<int64_t> elements =
      resultType(call).getNumElements().asInteger();
  bool isShort = length && *length <= shortRow;
  bool areMany = length && elements && *elements >= enoughRows * *length;
  return isShort || areMany ? dim : std::nullopt;
}

/// The accumulator after each element; `next` gets the element and the one
/// before.
Lowered
accumulated(graph::CallOp call, KernelBuilder &kernel, double start,
            llvm::function_ref<Scalar(const Scalar &, const Scalar &)> next) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "self");
  std::optional<int64_t> dim = dimension(call, in);
  DType dtype = resultDType(call);
  if (!dim || dtype == DType::Bool)
    return failure();
  DType inner = isInteger(dtype)      ? DType::I64
                : dtype == DType::F32 ? DType::F64
                : dtype == DType::C64 ? DType::C128
                                      : computeType(dtype);
  Tensor x = kernel.cast(kernel.cast(*in, dtype), inner);
  MLIRContext *context = kernel.builder().getContext();
  Type type = storageType(context, inner);
  TypedAttr first;
  if (isComplex(inner))
    first = neutralElement(
        context, start == 0 ? Reduction::Sum : Reduction::Product, inner);
  else if (isInteger(inner))
    first = IntegerAttr::get(type, int64_t(start));
  else
    first = FloatAttr::get(type, start);
  Tensor result = kernel.run(x, *dim, first,
                             [&](OpBuilder &builder, Location loc,
                                 ValueRange values) -> SmallVector<Value> {
                               ScalarContext context{kernel, builder, loc};
                               return {next(Scalar(context, values[0], inner),
                                            Scalar(context, values[1], inner))
                                           .getValue()};
                             })[0];
  return SmallVector<Tensor>{kernel.cast(result, dtype)};
}

Lowered lowerRunningSum(graph::CallOp call, KernelBuilder &kernel) {
  return accumulated(call, kernel, 0.0, [](const Scalar &x, const Scalar &sum) {
    return sum + x;
  });
}

Lowered lowerRunningProduct(graph::CallOp call, KernelBuilder &kernel) {
  return accumulated(
      call, kernel, 1.0,
      [](const Scalar &x, const Scalar &product) { return product * x; });
}

Lowered lowerRunningLogSumExp(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "self");
  std::optional<int64_t> dim = dimension(call, in);
  // PyTorch's library is faster than one lane of ours.
  if (!dim || !isFloatingPoint(resultDType(call)) ||
      (isOnCPU(call) && !hasRows(*in, *dim, 0)))
    return failure();
  return accumulated(call, kernel, -std::numeric_limits<double>::infinity(),
                     [](const Scalar &x, const Scalar &sum) {
                       Scalar low = select(isNaN(sum), sum, stdMin(x, sum));
                       Scalar high = select(isNaN(sum), sum, stdMax(x, sum));
                       Scalar isPlain =
                           (low != high) |
                           (abs(low) < std::numeric_limits<double>::infinity());
                       return select(isPlain, log1p(exp(low - high)) + high, x);
                     });
}

/// The extremum so far and the last position that has it; the last NaN once
/// there is one.
template <bool isMax>
Lowered lowerRunningExtremum(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = tensorArgument(call, kernel, "self");
  std::optional<int64_t> dim = dimension(call, in);
  // Without rows side by side, a branch is faster than what NaN asks for.
  if (!dim || (isOnCPU(call) && isFloatingPoint(in->dtype) &&
               !hasRows(*in, *dim, *dim)))
    return failure();
  DType dtype = computeType(in->dtype);
  Tensor x = kernel.cast(*in, dtype);
  if (dtype == DType::Bool)
    x.dtype = dtype = DType::U8; // 0 and 1, compared as such
  Tensor positions =
      computeAt(kernel, {}, x.sizes, DType::I64,
                [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
                  return position[*dim];
                });
  MLIRContext *context = kernel.builder().getContext();
  TypedAttr start =
      neutralElement(context, isMax ? Reduction::Max : Reduction::Min, dtype);
  TypedAttr first = IntegerAttr::get(IntegerType::get(context, 64), 0);
  SmallVector<Tensor> results = kernel.run(
      {x, positions}, *dim, {start, first},
      [&](OpBuilder &builder, Location loc,
          ValueRange values) -> SmallVector<Value> {
        ScalarContext scalars{kernel, builder, loc};
        Scalar value(scalars, values[0], dtype), best = value.with(values[2]);
        Scalar position(scalars, values[1], DType::I64);
        Scalar take = isMax ? value >= best : value <= best;
        // Comparisons with NaN are false: it is never replaced by a number.
        if (value.isFloat())
          take = take | isNaN(value);
        return {select(take, value, best).getValue(),
                select(take, position, position.with(values[3])).getValue()};
      });
  if (in->dtype == DType::Bool)
    results[0].dtype = DType::Bool;
  results[0] = kernel.cast(results[0], in->dtype);
  return results;
}

} // namespace

void registerRunning(LoweringTable &table) {
  table.add("aten::cumsum", lowerRunningSum);
  table.add("aten::cumprod", lowerRunningProduct);
  table.add("aten::logcumsumexp", lowerRunningLogSumExp);
  table.add("aten::_logcumsumexp", lowerRunningLogSumExp);
  table.add("aten::cummax", lowerRunningExtremum<true>);
  table.add("aten::cummin", lowerRunningExtremum<false>);
}

} // namespace intarsia::lower
