//===- Pooling.cpp - Means over windows ---------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Average pooling: the elements at each place of a window are a slice of the
// image, with its step; they are added up in the order of PyTorch's kernels.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

/// More places than this are more slices than a kernel should have.
constexpr int64_t maxPlaces = 49;

/// The windows along one dimension of the image.
struct Windows {
  SymExpr size, count;
  int64_t length, step, padding;
  /// What the last window needs beyond the padding: of the ceiling.
  int64_t overhang = 0;
};

/// One number for all dimensions, or one each.
std::optional<SmallVector<int64_t>> numbers(graph::CallOp call, StringRef name,
                                            int64_t count,
                                            ArrayRef<int64_t> otherwise = {}) {
  std::optional<SmallVector<int64_t>> list = intsArgument(call, name);
  if (!list)
    return std::nullopt;
  if (list->empty())
    list->assign(otherwise.begin(), otherwise.end());
  if (list->size() == 1)
    list->assign(count, list->front());
  if (static_cast<int64_t>(list->size()) != count)
    return std::nullopt;
  return list;
}

std::optional<SmallVector<Windows>> windowsOf(graph::CallOp call,
                                              ArrayRef<SymExpr> from,
                                              ArrayRef<SymExpr> to,
                                              int64_t dims) {
  auto length = numbers(call, "kernel_size", dims);
  auto step = length ? numbers(call, "stride", dims, *length) : std::nullopt;
  auto padding = numbers(call, "padding", dims);
  std::optional<bool> isCeiling = call.boolArg("ceil_mode");
  if (!length || !step || !padding || !isCeiling)
    return std::nullopt;
  SmallVector<Windows> result;
  int64_t places = 1;
  for (int64_t dim = 0; dim < dims; ++dim) {
    Windows windows{from[dim], to[dim], (*length)[dim], (*step)[dim],
                    (*padding)[dim]};
    if (windows.length < 1 || windows.step < 1 || windows.padding < 0)
      return std::nullopt;
    if (*isCeiling) {
      std::optional<int64_t> size = from[dim].asInteger();
      std::optional<int64_t> count = to[dim].asInteger();
      if (!size || !count)
        return std::nullopt;
      windows.overhang =
          std::max<int64_t>(0, (*count - 1) * windows.step + windows.length -
                                   *size - 2 * windows.padding);
    }
    places *= windows.length;
    result.push_back(windows);
  }
  return places <= maxPlaces ? std::optional(result) : std::nullopt;
}

/// How many elements a window has, of which those of the padding count or not.
Scalar lengthAt(const Windows &windows, const Scalar &position,
                bool countsPadding) {
  Scalar zero = position.constant(0);
  Scalar size = exprScalar(windows.size, position);
  Scalar start = position * position.constant(windows.step) -
                 position.constant(windows.padding);
  Scalar end = min(start + position.constant(windows.length),
                   size + position.constant(windows.padding));
  return countsPadding ? end - start : min(end, size) - max(start, zero);
}

template <int64_t dims>
Lowered lowerAveragePool(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!self || !isFloatingPoint(self->dtype) || self->rank() < dims ||
      static_cast<int64_t>(sizes.size()) != self->rank())
    return failure();
  int64_t outer = self->rank() - dims;
  auto image = windowsOf(call, ArrayRef(self->sizes).drop_front(outer),
                         ArrayRef(sizes).drop_front(outer), dims);
  std::optional<bool> countsPadding = call.boolArg("count_include_pad");
  if (!image || !countsPadding)
    return failure();

  Tensor padded = *self;
  SmallVector<int64_t> low(self->rank()), high(self->rank());
  for (auto [number, windows] : llvm::enumerate(*image)) {
    low[outer + number] = windows.padding;
    high[outer + number] = windows.padding + windows.overhang;
  }
  bool hasPadding = llvm::any_of(high, [](int64_t width) { return width > 0; });
  if (hasPadding)
    padded = kernel.pad(padded, low, high,
                        constantScalar(kernel.builder(), kernel.getLoc(),
                                       self->dtype, int64_t(0)));

  // The elements at each place of the windows, the last dimension fastest.
  SmallVector<Operand> places;
  int64_t count = 1;
  for (const Windows &windows : *image)
    count *= windows.length;
  for (int64_t place = 0; place < count; ++place) {
    Tensor slice = padded;
    int64_t rest = place;
    for (int64_t number = dims; number-- > 0;) {
      const Windows &windows = (*image)[number];
      slice = kernel.slice(slice, outer + number, rest % windows.length,
                           windows.count, windows.step);
      rest /= windows.length;
    }
    places.push_back(slice);
  }

  std::optional<int64_t> divisor = call.intArg("divisor_override");
  bool isWhole = llvm::all_of(*image, [&](const Windows &windows) {
    return windows.overhang == 0 && (windows.padding == 0 || *countsPadding);
  });
  if (!divisor && isWhole)
    divisor = count;
  return SmallVector<Tensor>{computeAt(
      kernel, places, sizes, self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        // From 0, as eager: the sum of -0.0 is 0.
        Scalar sum = v[0] + 0.0;
        for (const Scalar &value : v.drop_front())
          sum = sum + value;
        if (divisor)
          return sum / sum.constant(*divisor);
        Scalar length = position[0].constant(1);
        for (auto [number, windows] : llvm::enumerate(*image))
          length = length *
                   lengthAt(windows, position[outer + number], *countsPadding);
        return sum / length.to(sum.dtype());
      })};
}

} // namespace

void registerPooling(LoweringTable &table) {
  table.add("aten::avg_pool1d", lowerAveragePool<1>);
  table.add("aten::avg_pool2d", lowerAveragePool<2>);
  table.add("aten::avg_pool3d", lowerAveragePool<3>);
}

} // namespace intarsia::lower
