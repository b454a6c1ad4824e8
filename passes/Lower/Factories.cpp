//===- Factories.cpp - Tensors made from numbers ------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Constant tensors, ranges and the identity matrix: pointwise computations
// without operands, which fusion puts into whoever reads them. `empty` stays a
// call: it computes nothing.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

#include <cmath>

using namespace mlir;

namespace intarsia::lower {
namespace {

/// Memory as every kernel's: strided, not pinned.
bool isPlainMemory(graph::CallOp call) {
  auto layout = dyn_cast_or_null<graph::LayoutAttr>(call.arg("layout"));
  return (!layout || layout.getValue().ends_with("strided")) &&
         !call.boolArg("pin_memory").value_or(false);
}

/// The same scalar everywhere.
Lowered fill(graph::CallOp call, KernelBuilder &kernel,
             llvm::function_ref<Scalar(const Scalar &)> valueLike) {
  if (!isPlainMemory(call))
    return failure();
  DType dtype = resultDType(call);
  return SmallVector<Tensor>{kernel.pointwise(
      {}, resultSizes(call), dtype,
      [&](OpBuilder &builder, Location loc, ValueRange) {
        ScalarContext context{kernel, builder, loc};
        return valueLike(Scalar(context, nullptr, dtype)).getValue();
      })};
}

template <int value>
Lowered lowerConstant(graph::CallOp call, KernelBuilder &kernel) {
  return fill(call, kernel,
              [](const Scalar &like) { return like.constant(value); });
}

Lowered lowerFull(graph::CallOp call, KernelBuilder &kernel) {
  StringRef name = call.arg("fill_value") ? "fill_value" : "s";
  return fill(call, kernel, [&](const Scalar &like) {
    return numberArgument(call, name, like);
  });
}

/// An integer argument, constant or symbolic; `byDefault` if there is none.
std::optional<SymExpr> integerArgument(graph::CallOp call, StringRef name,
                                       int64_t byDefault) {
  if (call.isNone(name))
    return SymExpr(byDefault);
  // PyTorch's kernels add whole numbers exactly, whatever their type.
  if (auto real = dyn_cast<FloatAttr>(call.arg(name))) {
    double value = real.getValueAsDouble();
    if (value != std::trunc(value) || std::abs(value) > 1e15)
      return std::nullopt;
    return SymExpr(static_cast<int64_t>(value));
  }
  return call.sizeArg(name);
}

/// start + i * step. Eager's vectors of f16 and bf16, and of fractions, round
/// in ways that depend on their length: those stay calls.
Lowered lowerRange(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<SymExpr> start = integerArgument(call, "start", 0);
  std::optional<SymExpr> step = integerArgument(call, "step", 1);
  DType dtype = resultDType(call);
  bool isWide = isInteger(dtype) || dtype == DType::F32 || dtype == DType::F64;
  if (!start || !step || !isWide || !isPlainMemory(call) ||
      resultSizes(call).size() != 1)
    return failure();
  return SmallVector<Tensor>{computeAt(
      kernel, {}, resultSizes(call), dtype,
      [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
        const Scalar &i = position.front();
        Scalar scaled = step->isInteger(1) ? i : i * exprScalar(*step, i);
        return start->isInteger(0) ? scaled : exprScalar(*start, i) + scaled;
      })};
}

Lowered lowerEye(graph::CallOp call, KernelBuilder &kernel) {
  if (!isPlainMemory(call) || resultSizes(call).size() != 2)
    return failure();
  return SmallVector<Tensor>{
      computeAt(kernel, {}, resultSizes(call), resultDType(call),
                [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
                  return position[0] == position[1];
                })};
}

/// The positions on and below (above) a diagonal, row by row: they are known
/// numbers of elements, so element i of the result follows from i.
template <bool isLower>
Lowered lowerTriangleIndices(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<int64_t> rows = call.intArg("row"),
                         columns = call.intArg("col");
  std::optional<int64_t> offset = call.intArg("offset");
  // The start of every row goes into the code.
  constexpr int64_t maxRows = 64;
  if (!rows || !columns || !offset || !isPlainMemory(call) || *rows > maxRows)
    return failure();
  struct Row {
    int64_t number, start, first;
  };
  SmallVector<Row> used;
  int64_t count = 0;
  for (int64_t row = 0; row < *rows; ++row) {
    int64_t limit = row + *offset;
    int64_t first = isLower ? 0 : std::clamp<int64_t>(limit, 0, *columns);
    int64_t end =
        isLower ? std::clamp<int64_t>(limit + 1, 0, *columns) : *columns;
    if (end > first)
      used.push_back({row, count, first});
    count += std::max<int64_t>(end - first, 0);
  }
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (used.empty() || sizes[1] != SymExpr(count))
    return failure();
  return SmallVector<Tensor>{computeAt(
      kernel, {}, sizes, resultDType(call),
      [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
        const Scalar &i = position[1];
        Scalar row = i.constant(used[0].number), start = i.constant(0),
               first = i.constant(used[0].first);
        for (const Row &next : ArrayRef(used).drop_front()) {
          Scalar isPast = i >= i.constant(next.start);
          row = select(isPast, i.constant(next.number), row);
          start = select(isPast, i.constant(next.start), start);
          first = select(isPast, i.constant(next.first), first);
        }
        return select(position[0] == i.constant(0), row, i - start + first);
      })};
}

} // namespace

void registerFactories(LoweringTable &table) {
  auto add = [&](std::initializer_list<StringRef> names, Lowering lowering) {
    for (StringRef name : names)
      table.add(name, lowering);
  };
  add({"aten::zeros", "aten::zeros_like", "aten::new_zeros"}, lowerConstant<0>);
  add({"aten::ones", "aten::ones_like", "aten::new_ones"}, lowerConstant<1>);
  add({"aten::full", "aten::full_like", "aten::new_full",
       "aten::scalar_tensor"},
      lowerFull);
  add({"aten::arange", "aten::arange.start", "aten::arange.start_step",
       "prims::iota"},
      lowerRange);
  add({"aten::eye", "aten::eye.m"}, lowerEye);
  table.add("aten::tril_indices", lowerTriangleIndices<true>);
  table.add("aten::triu_indices", lowerTriangleIndices<false>);
  for (StringRef name : {"full", "full_like", "scalar_tensor"})
    table.add(("prims::" + name).str(), table.lookup(("aten::" + name).str()));
}

} // namespace intarsia::lower
