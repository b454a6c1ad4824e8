//===- Views.cpp - View operators as index maps -------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A view is no kernel of its own: it stays a call, and fusion puts it into the
// kernels that read it, as a change of positions. Inside a kernel there is no
// storage to share, so an operator that sometimes copies (reshape) is one of
// them.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Views.h"
#include "passes/Lower/Arguments.h"

using namespace mlir;

namespace intarsia::lower {

SymExpr fromFront(const SymExpr &index, const SymExpr &size) {
  if (std::optional<int64_t> value = index.asInteger())
    return *value < 0 ? index + size : index;
  return SymExpr::make(SymExpr::Kind::Select,
                       {SymExpr::make(SymExpr::Kind::Lt, {index, SymExpr(0)}),
                        index + size, index});
}

std::optional<SymExpr> sliceStart(graph::CallOp call, const SymExpr &size,
                                  const SymExpr &length) {
  if (call.isNone("start"))
    return SymExpr(0);
  std::optional<SymExpr> start = call.sizeArg("start");
  if (!start || start->isInteger(0))
    return start;
  // A slice that goes to the end starts in range: no length is negative, or
  // greater than the size.
  SymExpr last = size - length;
  if (*start == last || *start + size == last)
    return last;
  std::optional<int64_t> constant = start->asInteger();
  std::optional<int64_t> elements = length.asInteger();
  if (constant && *constant > 0 && elements && *elements > 0)
    return start;
  SymExpr atMost =
      SymExpr::make(SymExpr::Kind::Min, {fromFront(*start, size), size});
  return SymExpr::make(SymExpr::Kind::Max, {SymExpr(0), atMost});
}

std::optional<SymExpr> selectIndex(graph::CallOp call, const SymExpr &size) {
  std::optional<SymExpr> index = call.sizeArg("index");
  if (index)
    index = fromFront(*index, size);
  return index;
}

namespace {

FailureOr<Tensor> viewIdentity(graph::CallOp, KernelBuilder &,
                               const Tensor &source) {
  return source;
}

/// Every view that keeps the elements in their order.
FailureOr<Tensor> viewReshape(graph::CallOp call, KernelBuilder &kernel,
                              const Tensor &source) {
  Tensor result = kernel.reshape(source, resultSizes(call));
  if (!result.value)
    return failure();
  return result;
}

FailureOr<Tensor> viewPermute(graph::CallOp call, KernelBuilder &kernel,
                              const Tensor &source) {
  std::optional<SmallVector<int64_t>> order =
      intsArgument(call, call.arg("dims") ? "dims" : "permutation");
  if (!order || static_cast<int64_t>(order->size()) != source.rank())
    return failure();
  for (int64_t &dim : *order)
    if (dim < 0)
      dim += source.rank();
  return kernel.permute(source, *order);
}

FailureOr<Tensor> exchange(KernelBuilder &kernel, const Tensor &source,
                           int64_t first, int64_t second) {
  SmallVector<int64_t> order =
      llvm::to_vector(llvm::seq<int64_t>(0, source.rank()));
  std::swap(order[first], order[second]);
  return kernel.permute(source, order);
}

FailureOr<Tensor> viewTranspose(graph::CallOp call, KernelBuilder &kernel,
                                const Tensor &source) {
  std::optional<int64_t> first = dimArgument(call, "dim0", source.rank());
  std::optional<int64_t> second = dimArgument(call, "dim1", source.rank());
  if (!first || !second)
    return failure();
  if (*first == *second)
    return source;
  return exchange(kernel, source, *first, *second);
}

FailureOr<Tensor> viewT(graph::CallOp, KernelBuilder &kernel,
                        const Tensor &source) {
  if (source.rank() < 2)
    return source;
  return exchange(kernel, source, 0, 1);
}

FailureOr<Tensor> viewExpand(graph::CallOp call, KernelBuilder &kernel,
                             const Tensor &source) {
  SmallVector<SymExpr> sizes = resultSizes(call);
  Argument argument;
  argument.tensor = source;
  if (!broadcastsTo(argument, sizes))
    return failure();
  return kernel.expand(source, sizes);
}

/// Dimension k of the source runs with dimension `broadcast_dimensions[k]`.
FailureOr<Tensor> viewBroadcast(graph::CallOp call, KernelBuilder &kernel,
                                const Tensor &source) {
  std::optional<SmallVector<int64_t>> dims =
      intsArgument(call, "broadcast_dimensions");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!dims || static_cast<int64_t>(dims->size()) != source.rank())
    return failure();
  Access access{source, {}};
  for (auto [dim, size] : llvm::zip(*dims, source.sizes)) {
    bool isStretched = size.isInteger(1) && !sizes[dim].isInteger(1);
    if (!isStretched && size != sizes[dim])
      return failure();
    access.dims.push_back(isStretched ? -1 : dim);
  }
  return kernel.pointwiseAccess(
      access, sizes, source.dtype, /*withPosition=*/false,
      [](OpBuilder &, Location, ValueRange values) { return values[0]; });
}

FailureOr<Tensor> viewSlice(graph::CallOp call, KernelBuilder &kernel,
                            const Tensor &source) {
  std::optional<int64_t> dim = dimArgument(call, "dim", source.rank());
  int64_t step = 1;
  if (!call.isNone("step")) {
    std::optional<int64_t> given = call.intArg("step");
    if (!given || *given < 1)
      return failure();
    step = *given;
  }
  if (!dim)
    return failure();
  SymExpr length = resultSizes(call)[*dim];
  std::optional<SymExpr> start = sliceStart(call, source.sizes[*dim], length);
  if (!start)
    return failure();
  if (length == source.sizes[*dim])
    return source;
  return kernel.slice(source, *dim, *start, length, step);
}

FailureOr<Tensor> viewSelect(graph::CallOp call, KernelBuilder &kernel,
                             const Tensor &source) {
  if (source.rank() == 0)
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", source.rank());
  if (!dim)
    return failure();
  std::optional<SymExpr> index = selectIndex(call, source.sizes[*dim]);
  if (!index)
    return failure();
  return kernel.select(source, *dim, *index);
}

/// A conversion to what the tensor is already; other ones copy.
FailureOr<Tensor> viewConversion(graph::CallOp call, KernelBuilder &,
                                 const Tensor &source) {
  if (call.operand("self").getType() != resultType(call) ||
      call.boolArg("copy") == true)
    return failure();
  return source;
}

/// Outside training it returns its argument.
FailureOr<Tensor> viewDropout(graph::CallOp call, KernelBuilder &,
                              const Tensor &source) {
  if (call.boolArg("train") != false && call.floatArg("p") != 0.0)
    return failure();
  return source;
}

const llvm::StringMap<ViewLowering> &viewTable() {
  static const llvm::StringMap<ViewLowering> table = {
      {"aten::_unsafe_view", viewReshape},
      {"aten::alias", viewIdentity},
      {"aten::alpha_dropout", viewDropout},
      {"aten::atleast_1d", viewReshape},
      {"aten::atleast_2d", viewReshape},
      {"aten::atleast_3d", viewReshape},
      {"aten::broadcast_to", viewExpand},
      {"aten::contiguous", viewConversion},
      {"aten::detach", viewIdentity},
      {"aten::dropout", viewDropout},
      {"aten::expand", viewExpand},
      {"aten::expand_as", viewExpand},
      {"aten::feature_alpha_dropout", viewDropout},
      {"aten::feature_dropout", viewDropout},
      {"aten::flatten.using_ints", viewReshape},
      {"aten::permute", viewPermute},
      {"aten::positive", viewIdentity},
      {"aten::ravel", viewReshape},
      {"aten::reshape", viewReshape},
      {"aten::reshape_as", viewReshape},
      {"aten::select.int", viewSelect},
      {"aten::slice.Tensor", viewSlice},
      {"aten::squeeze", viewReshape},
      {"aten::squeeze.dim", viewReshape},
      {"aten::squeeze.dims", viewReshape},
      {"aten::t", viewT},
      {"aten::to.device", viewConversion},
      {"aten::to.dtype", viewConversion},
      {"aten::to.dtype_layout", viewConversion},
      {"aten::transpose.int", viewTranspose},
      {"aten::type_as", viewConversion},
      {"aten::unflatten.int", viewReshape},
      {"aten::unsqueeze", viewReshape},
      {"aten::view", viewReshape},
      {"aten::view_as", viewReshape},
      {"prims::broadcast_in_dim", viewBroadcast},
      {"prims::collapse_view", viewReshape},
      {"prims::split_dim", viewReshape},
      {"prims::squeeze", viewReshape},
      {"prims::transpose", viewPermute},
      {"prims::view_of", viewIdentity},
  };
  return table;
}

} // namespace

ViewLowering lookupView(StringRef name) { return viewTable().lookup(name); }

std::vector<StringRef> viewOperators() {
  std::vector<StringRef> names;
  for (StringRef name : viewTable().keys())
    names.push_back(name);
  return names;
}

} // namespace intarsia::lower
