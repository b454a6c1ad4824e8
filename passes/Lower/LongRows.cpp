//===- LongRows.cpp - Reductions of few long rows ---------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements LongRows.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/LongRows.h"
#include "passes/Lower/Parts.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace intarsia::lower {
namespace {

const llvm::StringSet<> reductions = {
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "count_nonzero",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linalg_vector_norm",
    "logsumexp",
    "max",
    "mean",
    "min",
    "mse_loss",
    "nansum",
    "norm",
    "prod",
    "smooth_l1_loss",
    "soft_margin_loss",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
};

/// Blocks that are few, and those that a split makes; elements that are many
/// for one, and those that are enough.
constexpr int64_t fewBlocks = 64, manyBlocks = 512;
constexpr int64_t muchForABlock = 1 << 17, enoughForABlock = 1 << 13;

struct Rows {
  graph::TensorType in, out;
  std::optional<SmallVector<int64_t>> dims; // that are reduced
  int64_t count = 0;                        // of rows
  int64_t together = 1;                     // that are one block's
};

/// Of a reduction whose result has a known size.
std::optional<Rows> rowsOf(graph::CallOp call) {
  auto [space, rest] = call.getCallee().split("::");
  if (space != "aten" || !reductions.contains(rest.split('.').first))
    return std::nullopt;
  Rows rows;
  rows.in = typeOf(call.getInputs().front());
  rows.out = typeOf(call.getOutputs().front());
  std::optional<int64_t> count;
  if (rows.in && rows.out)
    count = rows.out.getNumElements().asInteger();
  if (!count)
    return std::nullopt;
  rows.count = *count;
  if (call.arg("dim"))
    rows.dims = dimsArgument(call, "dim", rows.in.getRank());
  bool across = rows.dims && !rows.dims->empty() &&
                !llvm::is_contained(*rows.dims, rows.in.getRank() - 1) &&
                rows.in.hasContiguousStrides();
  if (across)
    rows.together = std::clamp<int64_t>(rows.count, 1, 32);
  return rows;
}

bool areFewAndLong(const Rows &rows) {
  if (rows.count == 0 || rows.count / rows.together >= fewBlocks)
    return false;
  std::optional<int64_t> elements = rows.in.getNumElements().asInteger();
  return !elements || *elements / rows.count * rows.together > muchForABlock;
}

/// An operator that makes of pieces what it makes of the whole.
struct Operator {
  StringRef name; // with a list of dimensions
  /// What a piece of nothing is, for a padded input; null: none known.
  Attribute nothing;
  bool adds = false, isMean = false;
};

std::optional<Operator> operatorOf(graph::CallOp call, DType dtype) {
  StringRef base = call.getCallee().split("::").second.split('.').first;
  MLIRContext *context = call.getContext();
  auto number = [&](double value) -> Attribute {
    return FloatAttr::get(Float64Type::get(context), value);
  };
  bool isFloat = isFloatingPoint(dtype);
  Attribute zero =
      isFloat ? number(0) : IntegerAttr::get(IntegerType::get(context, 64), 0);
  double infinity = std::numeric_limits<double>::infinity();
  if (base == "sum" || (base == "mean" && isFloat))
    return Operator{"aten::sum.dim_IntList",
                    dtype == DType::Bool ? Attribute() : zero, /*adds=*/true,
                    base == "mean"};
  if (dtype == DType::Bool)
    return std::nullopt;
  // max and min along a dimension have a position, too.
  bool isWhole = call->getNumResults() == 1;
  if (base == "amax" || (base == "max" && isWhole && !call.arg("dim")))
    return Operator{"aten::amax", isFloat ? number(-infinity) : Attribute()};
  if (base == "amin" || (base == "min" && isWhole && !call.arg("dim")))
    return Operator{"aten::amin", isFloat ? number(infinity) : Attribute()};
  return std::nullopt;
}

/// Where a row is cut: the dimension, and into how many pieces of which size.
struct Cut {
  int64_t dim = 0, pieces = 0, size = 0;
  bool pads = false;
};

std::optional<Cut> cutOf(const Rows &rows, ArrayRef<int64_t> dims,
                         bool mayPad) {
  std::optional<int64_t> elements = rows.in.getNumElements().asInteger();
  if (!elements)
    return std::nullopt;
  int64_t blocks = std::max<int64_t>(1, rows.count / rows.together);
  int64_t wanted = std::min<int64_t>(llvm::divideCeil(manyBlocks, blocks),
                                     *elements / blocks / enoughForABlock);
  // The outermost, so that a piece's elements lie together.
  std::optional<Cut> padded;
  for (int64_t dim : dims) {
    int64_t size = *rows.in.getSizeExprs()[dim].asInteger();
    for (int64_t more = 0; more <= 3 * wanted; ++more)
      for (int64_t pieces : {wanted + more, wanted - more / 4})
        if (pieces > 1 && pieces <= size && size % pieces == 0)
          return Cut{dim, pieces, size / pieces};
    if (!padded && size >= 4 * wanted)
      padded = Cut{dim, wanted, int64_t(llvm::divideCeil(size, wanted)), true};
  }
  return mayPad ? padded : std::nullopt;
}

} // namespace

bool hasFewLongRows(graph::CallOp call) {
  std::optional<Rows> rows = rowsOf(call);
  return rows && rows->in.getDevice().starts_with("cuda") &&
         areFewAndLong(*rows);
}

bool splitLongRows(graph::CallOp call) {
  std::optional<Rows> rows = rowsOf(call);
  if (!rows || !areFewAndLong(*rows) || call.getOutputs().size() != 1)
    return false;
  DType from = rows->in.getDtype(), to = rows->out.getDtype();
  std::optional<Operator> op = operatorOf(call, from);
  if (!op || isComplex(from) || isComplex(to))
    return false;
  // Sums of the halves are rounded once, at the end.
  bool isHalf = to == DType::F16 || to == DType::BF16;
  if ((isHalf && op->adds && from != to) || !rows->out.hasContiguousStrides())
    return false;
  DType between = isHalf && op->adds ? DType::F32 : to;

  int64_t rank = rows->in.getRank();
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (rows->dims && !rows->dims->empty())
    dims = *rows->dims;
  std::optional<Cut> cut = cutOf(*rows, dims, op->nothing != Attribute());
  if (!cut)
    return false;

  MLIRContext *context = call.getContext();
  OpBuilder builder(call);
  auto typeWith = [&](ArrayRef<SymExpr> sizes, DType dtype) {
    return graph::TensorType::get(context, sizes, dtype, rows->in.getDevice());
  };
  Value whole = call.getInputs().front();
  SmallVector<SymExpr> sizes = rows->in.getSizeExprs();
  SmallVector<SymExpr> strides = rows->in.getStrideExprs();
  if (cut->pads) {
    int64_t missing = cut->pieces * cut->size - *sizes[cut->dim].asInteger();
    sizes[cut->dim] = SymExpr(cut->pieces * cut->size);
    // From the last dimension on.
    SmallVector<int64_t> pad(2 * (rank - cut->dim), 0);
    pad.back() = missing;
    graph::TensorType type = typeWith(sizes, from);
    whole = make(call, builder, "aten::constant_pad_nd")
                .value("self", whole)
                .integers("pad", pad)
                .constant("value", op->nothing)
                .createOne(type);
    strides = type.getStrideExprs();
  }
  sizes[cut->dim] = SymExpr(cut->pieces);
  sizes.insert(sizes.begin() + cut->dim + 1, SymExpr(cut->size));
  SymExpr stride = strides[cut->dim];
  strides[cut->dim] = stride * SymExpr(cut->size);
  strides.insert(strides.begin() + cut->dim + 1, stride);
  Value pieces =
      make(call, builder, "aten::view")
          .value("self", whole)
          .sizes("size", sizes)
          .createOne(graph::TensorType::get(context, sizes, strides, from,
                                            rows->in.getDevice()),
                     /*isView=*/true);

  // The pieces' dimension stands before that of their elements.
  SmallVector<int64_t> inPieces, ofPieces{cut->dim};
  for (int64_t dim : dims)
    inPieces.push_back(dim < cut->dim ? dim : dim + 1);
  for (int64_t dim : inPieces)
    sizes[dim] = SymExpr(1);
  bool keeps = call.boolArg("keepdim").value_or(false);
  if (!keeps)
    llvm::append_range(ofPieces, inPieces);
  llvm::sort(ofPieces);
  auto reduce = [&](Value value, ArrayRef<int64_t> dims, bool keepdim,
                    graph::TensorType type) {
    NewCall made = make(call, builder, op->name);
    made.value("self", value).integers("dim", dims).boolean("keepdim", keepdim);
    if (op->adds)
      made.constant("dtype", graph::DTypeAttr::get(context, between));
    return made.createOne(type);
  };
  Value made =
      reduce(pieces, inPieces, /*keepdim=*/true, typeWith(sizes, between));
  made = reduce(made, ofPieces, /*keepdim=*/false,
                typeWith(rows->out.getSizeExprs(), between));
  if (op->isMean) {
    int64_t count = *rows->in.getNumElements().asInteger() / rows->count;
    made = make(call, builder, "aten::div.Scalar")
               .value("self", made)
               .integer("other", count)
               .createOne(made.getType());
  }
  if (between != to)
    made = make(call, builder, "prims::convert_element_type")
               .value("a", made)
               .constant("dtype", graph::DTypeAttr::get(context, to))
               .createOne(rows->out);
  call.getOutputs().front().replaceAllUsesWith(made);
  call.erase();
  return true;
}

} // namespace intarsia::lower
