//===- Reductions.cpp - Sums, extrema, moments, norms -------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What makes fewer elements out of many. Integers and bool accumulate in the
// result's dtype, f16 and bf16 in f32, variances in f64 as in PyTorch's CPU
// kernels (so that values whose squares overflow f32 have one). The order of
// additions is the only thing that may differ from eager's.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Norms.h"

#include <cmath>

using namespace mlir;

namespace intarsia::lower {
namespace {

std::optional<Tensor> input(graph::CallOp call, KernelBuilder &kernel) {
  return tensorArgument(call, kernel, call.arg("self") ? "self" : "inp");
}

/// The dimensions to reduce; prims call them otherwise.
std::optional<SmallVector<int64_t>> reducedDims(graph::CallOp call,
                                                const Tensor &in) {
  // Prims with an empty list reduce nothing, unlike operators.
  auto list = dyn_cast_or_null<ArrayAttr>(call.arg("dims"));
  if (list && list.empty())
    return std::nullopt;
  return dimsArgument(call, call.arg("dims") ? "dims" : "dim", in.rank());
}

/// What follows a reduction: the result's dtype and sizes.
Lowered finishAs(graph::CallOp call, KernelBuilder &kernel,
                 const Tensor &reduced, unsigned index = 0) {
  return SmallVector<Tensor>{
      withSizes(kernel, kernel.cast(reduced, resultDType(call, index)),
                resultSizes(call, index))};
}

/// The input in `dtype`, as the accumulation wants it.
Tensor converted(KernelBuilder &kernel, const Tensor &in, DType dtype) {
  if (in.dtype == dtype && computeType(dtype) == dtype)
    return in;
  return compute(kernel, {in}, in.sizes, computeType(dtype),
                 [&](ArrayRef<Scalar> v) { return v[0].to(dtype); });
}

Tensor dividedBy(KernelBuilder &kernel, const Tensor &in,
                 const SymExpr &count) {
  return compute(kernel, {in}, in.sizes, in.dtype, [&](ArrayRef<Scalar> v) {
    return v[0] / exprScalar(count, v[0]);
  });
}

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

template <Reduction reduction, bool isMean = false>
Lowered lowerSum(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  DType dtype = resultDType(call);
  if (!dims || dtype == DType::Bool || (isMean && isInteger(dtype)))
    return failure();
  Tensor result =
      reduce(kernel, reduction, converted(kernel, *in, dtype), *dims);
  if (isMean)
    result = dividedBy(kernel, result, countOf(in->sizes, *dims));
  return finishAs(call, kernel, result);
}

/// The sum of what is not NaN.
Lowered lowerNanSum(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  DType dtype = resultDType(call);
  if (!dims || !isFloatingPoint(in->dtype) || !isFloatingPoint(dtype))
    return failure();
  Tensor x = converted(kernel, *in, dtype);
  Tensor numbers =
      compute(kernel, {x}, x.sizes, x.dtype, [](ArrayRef<Scalar> v) {
        return select(isNaN(v[0]), v[0].constant(0.0), v[0]);
      });
  return finishAs(call, kernel, reduce(kernel, Reduction::Sum, numbers, *dims));
}

Lowered lowerCountNonzero(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  if (!dims)
    return failure();
  Tensor ones =
      compute(kernel, {*in}, in->sizes, DType::I64,
              [](ArrayRef<Scalar> v) { return v[0].to(DType::Bool); });
  return finishAs(call, kernel, reduce(kernel, Reduction::Sum, ones, *dims));
}

template <Reduction reduction>
Lowered lowerTruth(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  // An empty list reduces nothing here, unlike with the others.
  auto list = dyn_cast_or_null<ArrayAttr>(call.arg("dim"));
  if (!dims || (list && list.empty()))
    return failure();
  Tensor truth =
      compute(kernel, {*in}, in->sizes, DType::Bool,
              [](ArrayRef<Scalar> v) { return v[0].to(DType::Bool); });
  return finishAs(call, kernel, reduce(kernel, reduction, truth, *dims));
}

//===----------------------------------------------------------------------===//
// Extrema
//===----------------------------------------------------------------------===//

template <Reduction reduction>
Lowered lowerExtremum(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  if (!dims)
    return failure();
  return finishAs(
      call, kernel,
      reduce(kernel, reduction, converted(kernel, *in, in->dtype), *dims));
}

Lowered lowerBothExtrema(graph::CallOp call, KernelBuilder &kernel) {
  Lowered low = lowerExtremum<Reduction::Min>(call, kernel);
  Lowered high = lowerExtremum<Reduction::Max>(call, kernel);
  if (failed(low) || failed(high))
    return failure();
  return SmallVector<Tensor>{(*low)[0], (*high)[0]};
}

struct Extremum {
  Tensor value, index;
};

/// The first NaN if there is one, else the first of the greatest (least)
/// elements, and its position in the space of `dims`.
Extremum argReduce(KernelBuilder &kernel, const Tensor &in,
                   ArrayRef<int64_t> dims, bool isMax) {
  Tensor x = converted(kernel, in, in.dtype);
  if (in.dtype == DType::Bool)
    x.dtype = DType::U8; // 0 and 1, compared as such
  Tensor positions = computeAt(
      kernel, {}, x.sizes, DType::I64,
      [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
        Scalar linear = position[dims.front()];
        for (int64_t dim : dims.drop_front())
          linear = linear * exprScalar(x.sizes[dim], linear) + position[dim];
        return linear;
      });
  MLIRContext *context = kernel.builder().getContext();
  TypedAttr start =
      neutralElement(context, isMax ? Reduction::Max : Reduction::Min, x.dtype);
  TypedAttr afterAll = IntegerAttr::get(IntegerType::get(context, 64),
                                        std::numeric_limits<int64_t>::max());
  SmallVector<Tensor> results =
      kernel.reduce({x, positions}, dims, {start, afterAll},
                    [&](OpBuilder &builder, Location loc,
                        ValueRange values) -> SmallVector<Value> {
                      ScalarContext scalars{kernel, builder, loc};
                      Scalar value(scalars, values[0], x.dtype);
                      Scalar index(scalars, values[1], DType::I64);
                      Scalar best(scalars, values[2], x.dtype);
                      Scalar bestIndex(scalars, values[3], DType::I64);
                      Scalar isBetter = isMax ? value > best : value < best;
                      Scalar isTie = value == best;
                      if (value.isFloat()) {
                        Scalar valueNaN = isNaN(value), bestNaN = isNaN(best);
                        isBetter = isBetter | (valueNaN & ~bestNaN);
                        isTie = isTie | (valueNaN & bestNaN);
                      }
                      Scalar take = isBetter | (isTie & (index < bestIndex));
                      return {select(take, value, best).getValue(),
                              select(take, index, bestIndex).getValue()};
                    });
  if (in.dtype == DType::Bool)
    results[0].dtype = DType::Bool;
  return {results[0], results[1]};
}

/// (values, indices) along one dimension.
template <bool isMax>
Lowered lowerExtremumWithIndex(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in || in->rank() == 0)
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", in->rank());
  if (!dim)
    return failure();
  Extremum found = argReduce(kernel, *in, *dim, isMax);
  return SmallVector<Tensor>{
      withSizes(kernel, kernel.cast(found.value, in->dtype),
                resultSizes(call, 0)),
      withSizes(kernel, found.index, resultSizes(call, 1))};
}

template <bool isMax>
Lowered lowerArgExtremum(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  // Eager refuses bool.
  if (!in || in->rank() == 0 || in->dtype == DType::Bool)
    return failure();
  auto dims = reducedDims(call, *in);
  if (!dims)
    return failure();
  return finishAs(call, kernel, argReduce(kernel, *in, *dims, isMax).index);
}

//===----------------------------------------------------------------------===//
// Moments and norms
//===----------------------------------------------------------------------===//

/// var, std and those that return the mean beside it.
template <bool isDeviation, bool withMean>
Lowered lowerVariance(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in || !isFloatingPoint(in->dtype))
    return failure();
  auto dims = reducedDims(call, *in);
  if (!dims)
    return failure();
  std::optional<double> correction = correctionArgument(call);
  if (!correction)
    return failure();
  Tensor x = kernel.cast(*in, DType::F64);
  SymExpr count = countOf(x.sizes, *dims);
  Tensor mean =
      dividedBy(kernel, reduce(kernel, Reduction::Sum, x, *dims), count);
  Tensor squares = compute(kernel, {x, along(mean, x.rank(), *dims)}, x.sizes,
                           DType::F64, [](ArrayRef<Scalar> v) {
                             Scalar deviation = v[0] - v[1];
                             return deviation * deviation;
                           });
  Tensor total = reduce(kernel, Reduction::Sum, squares, *dims);
  Tensor variance = compute(kernel, {total}, total.sizes, resultDType(call, 0),
                            [&](ArrayRef<Scalar> v) {
                              Scalar divisor =
                                  stdMax(exprScalar(count, v[0]) - *correction,
                                         v[0].constant(0.0));
                              Scalar result = v[0] / divisor;
                              return isDeviation ? sqrt(result) : result;
                            });
  SmallVector<Tensor> results = {
      withSizes(kernel, variance, resultSizes(call, 0))};
  if (withMean)
    results.push_back(withSizes(kernel, kernel.cast(mean, resultDType(call, 1)),
                                resultSizes(call, 1)));
  return results;
}

/// As a chain of operators of the input's dtype, each of which rounds.
Lowered lowerLogSumExp(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in || in->rank() == 0)
    return failure();
  auto dims = reducedDims(call, *in);
  DType dtype = resultDType(call);
  if (!dims || !isFloatingPoint(dtype))
    return failure();
  Tensor x = converted(kernel, *in, dtype);
  Tensor highest = reduce(kernel, Reduction::Max, x, *dims);
  Tensor shift = compute(kernel, {highest}, highest.sizes, x.dtype,
                         [](ArrayRef<Scalar> v) {
                           return select(isInf(v[0]), v[0].constant(0.0), v[0]);
                         });
  Tensor powers =
      compute(kernel, {x, along(shift, x.rank(), *dims)}, x.sizes, x.dtype,
              [&](ArrayRef<Scalar> v) {
                return exp((v[0] - v[1]).roundedTo(dtype)).roundedTo(dtype);
              });
  Tensor total = reduce(kernel, Reduction::Sum, powers, *dims);
  return finishAs(call, kernel,
                  compute(kernel, {total, shift}, total.sizes, dtype,
                          [&](ArrayRef<Scalar> v) {
                            return log(v[0].roundedTo(dtype)).roundedTo(dtype) +
                                   v[1];
                          }));
}

Lowered lowerNorm(graph::CallOp call, KernelBuilder &kernel, StringRef order) {
  std::optional<Tensor> in = input(call, kernel);
  if (!in)
    return failure();
  auto dims = reducedDims(call, *in);
  DType dtype = resultDType(call);
  double p = 2;
  if (!call.isNone(order)) {
    std::optional<double> given = call.floatArg(order);
    if (!given)
      return failure();
    p = *given;
  }
  if (!dims || !isFloatingPoint(dtype) || !isFloatingPoint(in->dtype))
    return failure();
  bool isInfinite = std::isinf(p);
  if (p != 0 && p != 1 && p != 2 && !isInfinite)
    return failure();
  Tensor x = converted(kernel, *in, dtype);
  // PyTorch neither squares nor takes a root where there is nothing to add.
  bool squares = p == 2 && !llvm::all_of(*dims, [&](int64_t dim) {
                   return x.sizes[dim].isInteger(1);
                 });
  Tensor terms =
      compute(kernel, {x}, x.sizes, x.dtype, [&](ArrayRef<Scalar> v) {
        if (p == 0)
          return (v[0] != 0.0).to(v[0].dtype());
        return squares ? v[0] * v[0] : abs(v[0]);
      });
  Reduction reduction = !isInfinite ? Reduction::Sum
                        : p > 0     ? Reduction::Max
                                    : Reduction::Min;
  Tensor result = reduce(kernel, reduction, terms, *dims);
  if (squares)
    result = compute(kernel, {result}, result.sizes, result.dtype,
                     [](ArrayRef<Scalar> v) { return sqrt(v[0]); });
  return finishAs(call, kernel, result);
}

Lowered lowerVectorNorm(graph::CallOp call, KernelBuilder &kernel) {
  return lowerNorm(call, kernel, "ord");
}

Lowered lowerOldNorm(graph::CallOp call, KernelBuilder &kernel) {
  return lowerNorm(call, kernel, "p");
}

} // namespace

void registerReductions(LoweringTable &table) {
  auto add = [&](std::initializer_list<StringRef> names, Lowering lowering) {
    for (StringRef name : names)
      table.add(name, lowering);
  };
  add({"aten::sum", "aten::sum.dim_IntList"}, lowerSum<Reduction::Sum>);
  add({"aten::mean", "aten::mean.dim"}, lowerSum<Reduction::Sum, true>);
  add({"aten::prod", "aten::prod.dim_int"}, lowerSum<Reduction::Product>);
  table.add("aten::nansum", lowerNanSum);
  add({"aten::count_nonzero", "aten::count_nonzero.dim_IntList"},
      lowerCountNonzero);
  add({"aten::any", "aten::any.dim", "aten::any.dims"},
      lowerTruth<Reduction::Max>);
  add({"aten::all", "aten::all.dim", "aten::all.dims"},
      lowerTruth<Reduction::Min>);
  add({"aten::amax", "aten::max"}, lowerExtremum<Reduction::Max>);
  add({"aten::amin", "aten::min"}, lowerExtremum<Reduction::Min>);
  table.add("aten::aminmax", lowerBothExtrema);
  table.add("aten::max.dim", lowerExtremumWithIndex<true>);
  table.add("aten::min.dim", lowerExtremumWithIndex<false>);
  table.add("aten::argmax", lowerArgExtremum<true>);
  table.add("aten::argmin", lowerArgExtremum<false>);
  add({"aten::var", "aten::var.dim", "aten::var.correction"},
      lowerVariance<false, false>);
  add({"aten::std", "aten::std.dim", "aten::std.correction"},
      lowerVariance<true, false>);
  add({"aten::var_mean", "aten::var_mean.dim", "aten::var_mean.correction"},
      lowerVariance<false, true>);
  add({"aten::std_mean", "aten::std_mean.dim", "aten::std_mean.correction"},
      lowerVariance<true, true>);
  table.add("aten::logsumexp", lowerLogSumExp);
  for (StringRef name : {"amax", "amin", "prod", "sum", "var"})
    table.add(("prims::" + name).str(), table.lookup(("aten::" + name).str()));
  table.add("aten::linalg_vector_norm", lowerVectorNorm);
  add({"aten::norm.Scalar", "aten::norm.ScalarOpt_dim",
       "aten::norm.ScalarOpt_dtype", "aten::norm.ScalarOpt_dim_dtype"},
      lowerOldNorm);
}

} // namespace intarsia::lower
