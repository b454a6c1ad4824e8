//===- Shapes.cpp - Putting elements elsewhere --------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Operators that copy elements to other places: concatenation, padding,
// repetition, reversal, triangles. Views themselves are in Views.cpp.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"
#include "passes/Lower/Views.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

std::optional<Tensor> input(graph::CallOp call, KernelBuilder &kernel) {
  return tensorArgument(call, kernel, "self");
}

/// The call's list of tensors, in the result's dtype.
std::optional<SmallVector<Tensor>> tensorList(graph::CallOp call,
                                              KernelBuilder &kernel) {
  SmallVector<Tensor> tensors;
  for (Value value : call.operandList("tensors")) {
    auto type = value ? dyn_cast<graph::TensorType>(value.getType()) : nullptr;
    if (!type)
      return std::nullopt;
    // One without elements adds nothing; eager lets one of shape [0] through
    // whatever the others are.
    if (llvm::any_of(type.getSizeExprs(),
                     [](const SymExpr &size) { return size.isInteger(0); }))
      continue;
    tensors.push_back(kernel.cast(kernel.input(value), resultDType(call)));
  }
  if (tensors.empty())
    return std::nullopt;
  return tensors;
}

Lowered lowerConcatenation(graph::CallOp call, KernelBuilder &kernel) {
  auto tensors = tensorList(call, kernel);
  SmallVector<SymExpr> sizes = resultSizes(call);
  auto dim = dimArgument(call, "dim", static_cast<int64_t>(sizes.size()));
  if (!tensors || !dim)
    return failure();
  SymExpr length = 0;
  for (const Tensor &tensor : *tensors) {
    if (tensor.rank() != static_cast<int64_t>(sizes.size()))
      return failure();
    SmallVector<SymExpr> expected = sizes;
    expected[*dim] = tensor.sizes[*dim];
    if (tensor.sizes != expected)
      return failure();
    length = length + tensor.sizes[*dim];
  }
  if (length != sizes[*dim])
    return failure();
  return SmallVector<Tensor>{kernel.concat(*tensors, *dim, sizes)};
}

Lowered lowerStack(graph::CallOp call, KernelBuilder &kernel) {
  auto tensors = tensorList(call, kernel);
  SmallVector<SymExpr> sizes = resultSizes(call);
  auto dim = dimArgument(call, "dim", static_cast<int64_t>(sizes.size()));
  if (!tensors || !dim)
    return failure();
  SmallVector<SymExpr> part = sizes;
  part.erase(part.begin() + *dim);
  for (Tensor &tensor : *tensors) {
    if (tensor.sizes != part)
      return failure();
    tensor = kernel.unsqueeze(tensor, *dim);
  }
  return SmallVector<Tensor>{kernel.concat(*tensors, *dim, sizes)};
}

/// `self` with `part` in place of its positions [start, start + length of part)
/// along `dim`.
Tensor replaced(KernelBuilder &kernel, const Tensor &self, const Tensor &part,
                int64_t dim, const SymExpr &start) {
  SymExpr end = start + part.sizes[dim];
  SymExpr after = self.sizes[dim] - end;
  SmallVector<Tensor> pieces;
  if (!start.isInteger(0))
    pieces.push_back(kernel.slice(self, dim, 0, start, 1));
  pieces.push_back(part);
  if (!after.isInteger(0))
    pieces.push_back(kernel.slice(self, dim, end, after, 1));
  return kernel.concat(pieces, dim, self.sizes);
}

/// Zeros of `sizes`, with `part` at the positions start, start + step, ...
/// along `dim`.
Lowered placed(KernelBuilder &kernel, const Tensor &part,
               ArrayRef<SymExpr> sizes, int64_t dim, const SymExpr &start,
               int64_t step) {
  SymExpr after = sizes[dim] - start - part.sizes[dim];
  if (step == 1 && start.asInteger() && after.asInteger()) {
    SmallVector<int64_t> low(sizes.size()), high(sizes.size());
    low[dim] = *start.asInteger();
    high[dim] = *after.asInteger();
    return SmallVector<Tensor>{
        kernel.pad(part, low, high,
                   constantScalar(kernel.builder(), kernel.getLoc(), part.dtype,
                                  int64_t(0)))};
  }
  return SmallVector<Tensor>{computeAt(
      kernel, {}, sizes, part.dtype,
      [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
        SmallVector<Scalar> from = llvm::to_vector(position);
        Scalar zero = from[dim].constant(0), by = from[dim].constant(step);
        Scalar end = exprScalar(part.sizes[dim], zero);
        Scalar distance = from[dim] - exprScalar(start, zero);
        Scalar at = distance, isStep = distance >= zero;
        if (step != 1) {
          at = truncDiv(distance, by);
          isStep = isStep & (truncMod(distance, by) == zero);
        }
        from[dim] = max(zero, min(at, end - from[dim].constant(1)));
        Scalar value = readAt(part, from);
        return select(isStep & (at < end), value, value.constant(0));
      })};
}

Lowered lowerSliceScatter(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  std::optional<Tensor> source = tensorArgument(call, kernel, "src");
  if (!self || !source || self->rank() != source->rank())
    return failure();
  auto dim = dimArgument(call, "dim", self->rank());
  if (!dim || call.intArg("step").value_or(1) != 1)
    return failure();
  std::optional<SymExpr> start =
      sliceStart(call, self->sizes[*dim], source->sizes[*dim]);
  SmallVector<SymExpr> expected = self->sizes;
  expected[*dim] = source->sizes[*dim];
  if (!start || source->sizes != expected)
    return failure();
  Tensor part = kernel.cast(*source, self->dtype);
  return SmallVector<Tensor>{replaced(kernel, *self, part, *dim, *start)};
}

Lowered lowerSelectScatter(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  std::optional<Tensor> source = tensorArgument(call, kernel, "src");
  if (!self || !source || self->rank() != source->rank() + 1)
    return failure();
  auto dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  std::optional<SymExpr> index = selectIndex(call, self->sizes[*dim]);
  SmallVector<SymExpr> expected = self->sizes;
  expected.erase(expected.begin() + *dim);
  if (!index || source->sizes != expected)
    return failure();
  Tensor part = kernel.unsqueeze(kernel.cast(*source, self->dtype), *dim);
  return SmallVector<Tensor>{replaced(kernel, *self, part, *dim, *index)};
}

Lowered lowerPad(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  auto pad = intsArgument(call, "pad");
  std::optional<Argument> value = argument(call, kernel, "value");
  if (!self || !pad || pad->size() % 2 != 0 ||
      static_cast<int64_t>(pad->size()) > 2 * self->rank() ||
      (call.arg("mode") && call.stringArg("mode") != "constant"))
    return failure();
  SmallVector<int64_t> low(self->rank()), high(self->rank());
  Tensor source = *self;
  // Pairs from the last dimension on; a negative one cuts off.
  for (size_t i = 0; i < pad->size() / 2; ++i) {
    int64_t dim = self->rank() - 1 - static_cast<int64_t>(i);
    low[dim] = (*pad)[2 * i];
    high[dim] = (*pad)[2 * i + 1];
    int64_t before = std::max<int64_t>(-low[dim], 0);
    int64_t after = std::max<int64_t>(-high[dim], 0);
    if (before != 0 || after != 0)
      source = kernel.slice(source, dim, before,
                            source.sizes[dim] - SymExpr(before + after), 1);
    low[dim] = std::max<int64_t>(low[dim], 0);
    high[dim] = std::max<int64_t>(high[dim], 0);
  }
  std::optional<double> constant = 0.0;
  if (!call.isNone("value"))
    constant = value ? value->constantFloat() : std::nullopt;
  if (!constant)
    return failure();
  Value filler =
      constantScalar(kernel.builder(), kernel.getLoc(), self->dtype, *constant);
  Tensor result = kernel.pad(source, low, high, filler);
  if (result.sizes != resultSizes(call))
    return failure();
  return SmallVector<Tensor>{result};
}

/// Each dimension becomes (repetitions, itself), which is then flattened.
Lowered lowerRepeat(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  auto repeats = call.sizesArg("repeats");
  if (!self || !repeats || static_cast<int64_t>(repeats->size()) < self->rank())
    return failure();
  SmallVector<SymExpr> split;
  Access access{*self, {}};
  int64_t added = static_cast<int64_t>(repeats->size()) - self->rank();
  for (auto [dim, count] : llvm::enumerate(*repeats)) {
    int64_t source = static_cast<int64_t>(dim) - added;
    if (source < 0 || !count.isInteger(1))
      split.push_back(count);
    if (source < 0)
      continue;
    access.dims.push_back(static_cast<int64_t>(split.size()));
    split.push_back(self->sizes[source]);
  }
  Tensor repeated = compute(kernel, {access}, split, self->dtype,
                            [](ArrayRef<Scalar> v) { return v[0]; });
  return SmallVector<Tensor>{withSizes(kernel, repeated, resultSizes(call))};
}

/// Reads the source where `source` says, given the position in the result.
Tensor
rearranged(KernelBuilder &kernel, const Tensor &self, ArrayRef<SymExpr> sizes,
           llvm::function_ref<void(MutableArrayRef<Scalar> position)> source) {
  return computeAt(kernel, {}, sizes, self.dtype,
                   [&](ArrayRef<Scalar>, ArrayRef<Scalar> position) {
                     SmallVector<Scalar> from = llvm::to_vector(position);
                     source(from);
                     return readAt(self, from);
                   });
}

Lowered reversed(graph::CallOp call, KernelBuilder &kernel,
                 const Tensor &self) {
  if (self.rank() == 0)
    return failure();
  auto list = intsArgument(call, "dims");
  auto dims = dimsArgument(call, "dims", self.rank());
  if (!list || list->empty() || !dims)
    return failure();
  return SmallVector<Tensor>{rearranged(
      kernel, self, resultSizes(call), [&](MutableArrayRef<Scalar> position) {
        for (int64_t dim : *dims)
          position[dim] =
              exprScalar(self.sizes[dim] - SymExpr(1), position[dim]) -
              position[dim];
      })};
}

Lowered lowerFlip(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  return self ? reversed(call, kernel, *self) : Lowered(failure());
}

Lowered lowerPrimsReverse(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "a");
  return self ? reversed(call, kernel, *self) : Lowered(failure());
}

Lowered lowerRoll(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  auto shifts = intsArgument(call, "shifts");
  auto dims = intsArgument(call, "dims");
  if (!self || !shifts || !dims)
    return failure();
  Tensor rolled = *self;
  // Without dimensions, all elements are one row.
  if (dims->empty() && self->rank() > 0) {
    SymExpr count = 1;
    for (const SymExpr &size : self->sizes)
      count = count * size;
    rolled = withSizes(kernel, *self, count);
    dims->push_back(0);
  }
  if (kernel.declined() || dims->size() != shifts->size())
    return failure();
  for (int64_t &dim : *dims) {
    if (dim < -rolled.rank() || dim >= rolled.rank())
      return failure();
    if (dim < 0)
      dim += rolled.rank();
  }
  SmallVector<SymExpr> sizes = rolled.sizes;
  for (auto [dim, shift] : llvm::zip(*dims, *shifts)) {
    const SymExpr &size = sizes[dim];
    // The last `wrapped` become the first; of nothing, none.
    SymExpr divisor = SymExpr::make(SymExpr::Kind::Max, {1, size});
    SymExpr wrapped = SymExpr::make(SymExpr::Kind::Mod, {shift, divisor});
    if (wrapped.isInteger(0))
      continue;
    SymExpr rest = size - wrapped;
    rolled = kernel.concat({kernel.slice(rolled, dim, rest, wrapped, 1),
                            kernel.slice(rolled, dim, 0, rest, 1)},
                           dim, sizes);
  }
  return SmallVector<Tensor>{withSizes(kernel, rolled, self->sizes)};
}

/// Zeros of `input_sizes`, with the gradient where the forward operator read.
Lowered lowerSliceBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  SmallVector<SymExpr> sizes = resultSizes(call);
  auto dim = dimArgument(call, "dim", static_cast<int64_t>(sizes.size()));
  std::optional<int64_t> step = call.intArg("step");
  if (!grad || !dim || !step || *step < 1)
    return failure();
  SmallVector<SymExpr> expected = sizes;
  expected[*dim] = grad->sizes[*dim];
  std::optional<SymExpr> start =
      sliceStart(call, sizes[*dim], grad->sizes[*dim]);
  if (!start || grad->sizes != expected || grad->dtype != resultDType(call))
    return failure();
  return placed(kernel, *grad, sizes, *dim, *start, *step);
}

Lowered lowerSelectBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  SmallVector<SymExpr> sizes = resultSizes(call);
  auto dim = dimArgument(call, "dim", static_cast<int64_t>(sizes.size()));
  if (!grad || sizes.empty() || !dim)
    return failure();
  std::optional<SymExpr> index = selectIndex(call, sizes[*dim]);
  SmallVector<SymExpr> expected = sizes;
  expected.erase(expected.begin() + *dim);
  if (!index || grad->sizes != expected || grad->dtype != resultDType(call))
    return failure();
  return placed(kernel, kernel.unsqueeze(*grad, *dim), sizes, *dim, *index, 1);
}

enum class Border { Reflect, Replicate };

/// Positions outside the source are those inside that a mirror or the nearest
/// edge shows. The last dimension, along which lanes mostly run, is made of
/// pieces in which positions follow one another.
template <Border border>
Lowered lowerBorderPad(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  auto pad = intsArgument(call, "padding");
  if (!self || !pad || pad->size() % 2 != 0 ||
      static_cast<int64_t>(pad->size()) > 2 * self->rank())
    return failure();
  SmallVector<SymExpr> sizes = self->sizes;
  SmallVector<int64_t> low(self->rank());
  SmallVector<bool> isPadded(self->rank());
  for (size_t i = 0; i < pad->size() / 2; ++i) {
    int64_t dim = self->rank() - 1 - static_cast<int64_t>(i);
    int64_t before = (*pad)[2 * i], after = (*pad)[2 * i + 1];
    std::optional<int64_t> size = sizes[dim].asInteger();
    // Cut off what is negative: eager has rules for that.
    if (before < 0 || after < 0 ||
        (size && border == Border::Reflect &&
         (before >= *size || after >= *size)))
      return failure();
    low[dim] = before;
    isPadded[dim] = before != 0 || after != 0;
    sizes[dim] = sizes[dim] + SymExpr(before + after);
  }
  if (sizes != resultSizes(call))
    return failure();
  int64_t last = self->rank() - 1;
  // `length` elements along the last dimension, read at first + step * i.
  auto piece = [&](const SymExpr &length, const SymExpr &first, int64_t step) {
    SmallVector<SymExpr> pieceSizes = sizes;
    pieceSizes[last] = length;
    return rearranged(
        kernel, *self, pieceSizes, [&](MutableArrayRef<Scalar> position) {
          for (int64_t dim = 0; dim < last; ++dim) {
            if (!isPadded[dim])
              continue;
            Scalar zero = position[dim].constant(0);
            Scalar edge =
                exprScalar(self->sizes[dim] - SymExpr(1), position[dim]);
            Scalar at = position[dim] - position[dim].constant(low[dim]);
            if (border == Border::Reflect)
              at = edge - abs(edge - abs(at));
            // In range whatever the sizes are, which the fake implementation
            // checked.
            position[dim] = max(zero, min(at, edge));
          }
          Scalar start = exprScalar(first, position[last]);
          if (step == 0)
            position[last] = start;
          else
            position[last] =
                step > 0 ? start + position[last] : start - position[last];
        });
  };
  int64_t step = border == Border::Reflect ? -1 : 0;
  const SymExpr &size = self->sizes[last];
  SmallVector<Tensor> pieces;
  if (low[last] != 0)
    pieces.push_back(
        piece(low[last], step == 0 ? SymExpr(0) : SymExpr(low[last]), step));
  pieces.push_back(piece(size, 0, 1));
  SymExpr after = sizes[last] - size - SymExpr(low[last]);
  if (!after.isInteger(0))
    pieces.push_back(piece(after, size - SymExpr(step == 0 ? 1 : 2), step));
  if (pieces.size() == 1)
    return pieces;
  return SmallVector<Tensor>{kernel.concat(pieces, last, sizes)};
}

/// A reshape that eager copies.
Lowered lowerPrimsReshape(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "a");
  if (!self)
    return failure();
  return SmallVector<Tensor>{withSizes(kernel, *self, resultSizes(call))};
}

/// Channels become blocks of pixels.
Lowered lowerPixelShuffle(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  std::optional<int64_t> factor = call.intArg("upscale_factor");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!self || !factor || self->rank() < 3)
    return failure();
  int64_t rest = self->rank() - 3;
  SmallVector<SymExpr> split(sizes.begin(), sizes.begin() + rest + 1);
  ArrayRef<SymExpr> image = ArrayRef(self->sizes).take_back(2);
  llvm::append_range(split,
                     ArrayRef<SymExpr>{*factor, *factor, image[0], image[1]});
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rest + 1));
  llvm::append_range(order,
                     ArrayRef<int64_t>{rest + 3, rest + 1, rest + 4, rest + 2});
  Tensor blocks = withSizes(kernel, *self, split);
  if (kernel.declined())
    return failure();
  return SmallVector<Tensor>{
      withSizes(kernel, kernel.permute(blocks, order), sizes)};
}

Lowered lowerPixelUnshuffle(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  std::optional<int64_t> factor = call.intArg("downscale_factor");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!self || !factor || self->rank() < 3)
    return failure();
  int64_t rest = self->rank() - 3;
  SmallVector<SymExpr> split(self->sizes.begin(),
                             self->sizes.begin() + rest + 1);
  ArrayRef<SymExpr> image = ArrayRef(sizes).take_back(2);
  llvm::append_range(split,
                     ArrayRef<SymExpr>{image[0], *factor, image[1], *factor});
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rest + 1));
  llvm::append_range(order,
                     ArrayRef<int64_t>{rest + 2, rest + 4, rest + 1, rest + 3});
  Tensor blocks = withSizes(kernel, *self, split);
  if (kernel.declined())
    return failure();
  return SmallVector<Tensor>{
      withSizes(kernel, kernel.permute(blocks, order), sizes)};
}

template <bool isLower>
Lowered lowerTriangle(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = input(call, kernel);
  std::optional<SymExpr> diagonal =
      call.isNone("diagonal") ? SymExpr(0) : call.sizeArg("diagonal");
  if (!self || self->rank() < 2 || !diagonal)
    return failure();
  return SmallVector<Tensor>{computeAt(
      kernel, {*self}, self->sizes, self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        Scalar distance = position.back() - position[position.size() - 2];
        Scalar limit = exprScalar(*diagonal, distance);
        return select(isLower ? distance <= limit : distance >= limit, v[0],
                      v[0].constant(0));
      })};
}

} // namespace

void registerShapes(LoweringTable &table) {
  table.add("aten::cat", lowerConcatenation);
  table.add("aten::constant_pad_nd", lowerPad);
  table.add("aten::pad", lowerPad);
  table.add("aten::flip", lowerFlip);
  table.add("aten::repeat", lowerRepeat);
  table.add("aten::pixel_shuffle", lowerPixelShuffle);
  table.add("aten::pixel_unshuffle", lowerPixelUnshuffle);
  for (StringRef rank : {"1d", "2d", "3d"}) {
    table.add(("aten::reflection_pad" + rank).str(),
              lowerBorderPad<Border::Reflect>);
    table.add(("aten::replication_pad" + rank).str(),
              lowerBorderPad<Border::Replicate>);
  }
  table.add("aten::roll", lowerRoll);
  table.add("aten::select_backward", lowerSelectBackward);
  table.add("aten::slice_backward", lowerSliceBackward);
  table.add("prims::cat", lowerConcatenation);
  table.add("prims::collapse", lowerPrimsReshape);
  table.add("prims::reshape", lowerPrimsReshape);
  table.add("prims::rev", lowerPrimsReverse);
  table.add("aten::select_scatter", lowerSelectScatter);
  table.add("aten::slice_scatter", lowerSliceScatter);
  table.add("aten::stack", lowerStack);
  table.add("aten::tril", lowerTriangle<true>);
  table.add("aten::triu", lowerTriangle<false>);
}

} // namespace intarsia::lower
