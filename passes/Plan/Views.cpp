//===- Views.cpp - View operators with a known form -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One table from operator name to the function that computes where the view
// starts. Operators that may copy (reshape, contiguous, flatten) are views only
// where they certainly do not.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/Views.h"
#include "passes/Lower/Views.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using intarsia::graph::CallOp;
using Tensor = intarsia::graph::TensorType;
using intarsia::lower::fromFront;

namespace intarsia {

namespace {
using Offsets = SmallVector<SymExpr, 1>;
using Rule = std::optional<Offsets> (*)(CallOp call, Tensor source);
} // namespace

static std::optional<Offsets> atStart(CallOp, Tensor) {
  return Offsets{SymExpr(0)};
}

/// A reshape of a contiguous tensor to a contiguous one copies nothing.
static std::optional<Offsets> reshape(CallOp call, Tensor source) {
  auto result = dyn_cast<Tensor>(call.getOutputs().front().getType());
  if (!result || !source.hasContiguousStrides() ||
      !result.hasContiguousStrides())
    return std::nullopt;
  return Offsets{SymExpr(0)};
}

static std::optional<Offsets> contiguous(CallOp call, Tensor source) {
  auto result = dyn_cast<Tensor>(call.getOutputs().front().getType());
  if (!result || result != source || !source.hasContiguousStrides())
    return std::nullopt;
  return Offsets{SymExpr(0)};
}

/// Outside training it returns its argument.
static std::optional<Offsets> dropout(CallOp call, Tensor) {
  if (call.boolArg("train") != false && call.floatArg("p") != 0.0)
    return std::nullopt;
  return Offsets{SymExpr(0)};
}

/// A conversion to what the tensor is already.
static std::optional<Offsets> conversion(CallOp call, Tensor source) {
  auto result = dyn_cast<Tensor>(call.getOutputs().front().getType());
  if (!result || result != source || call.boolArg("copy") == true)
    return std::nullopt;
  return Offsets{SymExpr(0)};
}

/// The argument `dim`, counted from the front.
static std::optional<int64_t> dimension(CallOp call, Tensor source,
                                        StringRef name = "dim") {
  std::optional<int64_t> dim = call.intArg(name);
  if (!dim)
    return std::nullopt;
  if (*dim < 0)
    *dim += source.getRank();
  if (*dim < 0 || *dim >= source.getRank())
    return std::nullopt;
  return dim;
}

static std::optional<Offsets> select(CallOp call, Tensor source) {
  std::optional<int64_t> dim = dimension(call, source);
  std::optional<SymExpr> index = call.sizeArg("index");
  if (!dim || !index)
    return std::nullopt;
  return Offsets{fromFront(*index, source.getSizeExprs()[*dim]) *
                 source.getStrideExprs()[*dim]};
}

static std::optional<Offsets> slice(CallOp call, Tensor source) {
  std::optional<int64_t> dim = dimension(call, source);
  if (!dim)
    return std::nullopt;
  if (call.isNone("start"))
    return Offsets{SymExpr(0)};
  std::optional<SymExpr> start = call.sizeArg("start");
  if (!start)
    return std::nullopt;
  SymExpr size = source.getSizeExprs()[*dim];
  SymExpr first = fromFront(*start, size);
  // A start outside of the tensor means its edge.
  std::optional<int64_t> known = first.asInteger();
  if (!known || *known < 0)
    first = SymExpr::make(SymExpr::Kind::Max, {SymExpr(0), first});
  if (!first.isInteger(0))
    first = SymExpr::make(SymExpr::Kind::Min, {first, size});
  return Offsets{first * source.getStrideExprs()[*dim]};
}

static std::optional<Offsets> narrow(CallOp call, Tensor source) {
  std::optional<int64_t> dim = dimension(call, source);
  std::optional<SymExpr> start = call.sizeArg("start");
  if (!dim || !start)
    return std::nullopt;
  return Offsets{fromFront(*start, source.getSizeExprs()[*dim]) *
                 source.getStrideExprs()[*dim]};
}

static std::optional<Offsets> diagonal(CallOp call, Tensor source) {
  std::optional<int64_t> dim1 = dimension(call, source, "dim1");
  std::optional<int64_t> dim2 = dimension(call, source, "dim2");
  std::optional<int64_t> offset = call.intArg("offset");
  if (!dim1 || !dim2 || !offset)
    return std::nullopt;
  if (*offset >= 0)
    return Offsets{SymExpr(*offset) * source.getStrideExprs()[*dim2]};
  return Offsets{SymExpr(-*offset) * source.getStrideExprs()[*dim1]};
}

/// The members of a list of pieces along one dimension, one after the other.
static std::optional<Offsets> pieces(CallOp call, Tensor source) {
  std::optional<int64_t> dim = dimension(call, source);
  if (!dim)
    return std::nullopt;
  Offsets offsets;
  SymExpr start;
  for (Value output : call.getOutputs()) {
    auto type = dyn_cast<Tensor>(output.getType());
    if (!type)
      return std::nullopt;
    offsets.push_back(start * source.getStrideExprs()[*dim]);
    // unbind drops the dimension.
    start =
        start + (type.getRank() == source.getRank() ? type.getSizeExprs()[*dim]
                                                    : SymExpr(1));
  }
  return offsets;
}

static const llvm::StringMap<Rule> &rules() {
  static const llvm::StringMap<Rule> table = {
      {"aten::alias", atStart},
      {"aten::alpha_dropout", dropout},
      {"aten::atleast_1d", reshape},
      {"aten::atleast_2d", reshape},
      {"aten::atleast_3d", reshape},
      {"aten::broadcast_to", atStart},
      {"aten::chunk", pieces},
      {"aten::contiguous", contiguous},
      {"aten::dropout", dropout},
      {"aten::expand_as", atStart},
      {"aten::feature_alpha_dropout", dropout},
      {"aten::feature_dropout", dropout},
      {"aten::mT", atStart},
      {"aten::movedim.int", atStart},
      {"aten::reshape_as", reshape},
      {"aten::split.sizes", pieces},
      {"aten::swapaxes", atStart},
      {"aten::swapdims", atStart},
      {"aten::to.dtype", conversion},
      {"aten::to.device", conversion},
      {"aten::type_as", conversion},
      {"aten::view_as", atStart},
      {"aten::detach", atStart},
      {"aten::diagonal", diagonal},
      {"aten::expand", atStart},
      {"aten::flatten.using_ints", reshape},
      {"aten::lift_fresh", atStart},
      {"aten::narrow", narrow},
      {"aten::permute", atStart},
      {"aten::positive", atStart},
      {"aten::ravel", reshape},
      {"aten::reshape", reshape},
      {"aten::select.int", select},
      {"aten::slice.Tensor", slice},
      {"aten::split.Tensor", pieces},
      {"aten::split_with_sizes", pieces},
      {"aten::squeeze", atStart},
      {"aten::squeeze.dim", atStart},
      {"aten::squeeze.dims", atStart},
      {"aten::t", atStart},
      {"aten::transpose.int", atStart},
      {"aten::unbind.int", pieces},
      {"aten::unflatten.int", reshape},
      {"aten::unfold", atStart},
      {"aten::unsqueeze", atStart},
      {"aten::view", atStart},
      {"aten::_unsafe_view", atStart},
  };
  return table;
}

std::optional<StridedView> stridedView(CallOp call) {
  auto rule = rules().find(call.getCallee());
  if (rule == rules().end() || call.getAliasing() || call.getEffectful() ||
      !call.getMutates().empty() || call.getOutputs().empty() ||
      (call.getBinds() && !call.getBinds()->empty()))
    return std::nullopt;
  Value source = call.operand("self");
  if (!source)
    source = call.operand("input");
  auto type = source ? dyn_cast<Tensor>(source.getType()) : Tensor();
  if (!type || isComplex(type.getDtype()))
    return std::nullopt;
  for (Value output : call.getOutputs()) {
    auto result = dyn_cast<Tensor>(output.getType());
    if (!result || result.getDtype() != type.getDtype())
      return std::nullopt;
  }
  std::optional<Offsets> offsets = rule->second(call, type);
  if (!offsets || offsets->size() != call.getOutputs().size())
    return std::nullopt;
  return StridedView{source, std::move(*offsets)};
}

std::optional<SymExpr> writtenOffset(CallOp call) {
  auto type = cast<Tensor>(call.operand("self").getType());
  std::optional<Offsets> offsets = call.getCallee() == "aten::slice_scatter"
                                       ? slice(call, type)
                                       : select(call, type);
  if (!offsets)
    return std::nullopt;
  return offsets->front();
}

std::optional<SymExpr> offsetWithin(Value value, Value base) {
  SymExpr offset;
  while (value != base) {
    auto call = value.getDefiningOp<CallOp>();
    std::optional<StridedView> view =
        call ? stridedView(call) : std::optional<StridedView>();
    if (!view)
      return std::nullopt;
    offset = offset + view->offsets[cast<OpResult>(value).getResultNumber()];
    value = view->source;
  }
  return offset;
}

} // namespace intarsia
