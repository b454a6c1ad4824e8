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
#include "passes/Lower/Norms.h"
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

  SmallVector<int64_t> reduced() const {
    if (dims && !dims->empty())
      return *dims;
    return llvm::to_vector(llvm::seq<int64_t>(0, in.getRank()));
  }
  /// Of known sizes.
  int64_t length() const { return *in.getNumElements().asInteger() / count; }
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

StringRef baseOf(graph::CallOp call) {
  return call.getCallee().split("::").second.split('.').first;
}

std::optional<Operator> operatorOf(graph::CallOp call, DType dtype) {
  StringRef base = baseOf(call);
  MLIRContext *context = call.getContext();
  auto real = [&](double value) -> Attribute {
    return FloatAttr::get(Float64Type::get(context), value);
  };
  bool isFloat = isFloatingPoint(dtype);
  auto number = [&](int64_t value) -> Attribute {
    if (dtype == DType::Bool)
      return {};
    return isFloat ? real(double(value))
                   : IntegerAttr::get(IntegerType::get(context, 64), value);
  };
  double infinity = std::numeric_limits<double>::infinity();
  if (base == "sum" || (base == "mean" && isFloat))
    return Operator{"aten::sum.dim_IntList", number(0), /*adds=*/true,
                    base == "mean"};
  if (base == "any")
    return Operator{"aten::any.dims", number(0)};
  if (base == "all")
    return Operator{"aten::all.dims", number(1)};
  if (dtype == DType::Bool)
    return std::nullopt;
  // max and min along a dimension have a position, too.
  bool isWhole = call->getNumResults() == 1;
  if (base == "amax" || (base == "max" && isWhole && !call.arg("dim")))
    return Operator{"aten::amax", isFloat ? real(-infinity) : Attribute()};
  if (base == "amin" || (base == "min" && isWhole && !call.arg("dim")))
    return Operator{"aten::amin", isFloat ? real(infinity) : Attribute()};
  return std::nullopt;
}

/// Where a row is cut: the dimension, and into how many pieces of which size.
struct Cut {
  int64_t dim = 0, pieces = 0, size = 0;
  bool pads = false;
};

std::optional<Cut> cutOf(const Rows &rows, bool mayPad) {
  std::optional<int64_t> elements = rows.in.getNumElements().asInteger();
  if (!elements)
    return std::nullopt;
  int64_t blocks = std::max<int64_t>(1, rows.count / rows.together);
  int64_t wanted = std::min<int64_t>(llvm::divideCeil(manyBlocks, blocks),
                                     *elements / blocks / enoughForABlock);
  // The outermost, so that a piece's elements lie together.
  std::optional<Cut> padded;
  for (int64_t dim : rows.reduced()) {
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

/// Makes calls in the place of a reduction.
class Split {
public:
  Split(graph::CallOp call, const Rows &rows)
      : call(call), rows(rows), builder(call) {}

  bool inPieces();
  bool varianceInPieces(double correction, bool isDeviation);
  /// As another reduction, of what is computed for each element; null: it
  /// stays.
  graph::CallOp asAnother();

private:
  /// The call's input cut into pieces, and the dimensions that are reduced: in
  /// a piece, then those that are left, of the pieces.
  struct Pieces {
    Value value;
    SmallVector<int64_t> inside, between;
    SmallVector<SymExpr> sizes; // of what is made of each, with all dimensions
  };
  Pieces cut(Value whole, const Cut &cut, Attribute nothing);

  NewCall make(StringRef name) { return lower::make(call, builder, name); }
  graph::TensorType typeWith(ArrayRef<SymExpr> sizes, DType dtype) const {
    return graph::TensorType::get(builder.getContext(), sizes, dtype,
                                  rows.in.getDevice());
  }
  graph::TensorType resultType(DType dtype) const {
    return typeWith(rows.out.getSizeExprs(), dtype);
  }
  Value converted(Value value, DType dtype) {
    graph::TensorType type = typeOf(value);
    if (type.getDtype() == dtype)
      return value;
    return make("prims::convert_element_type")
        .value("a", value)
        .constant("dtype", graph::DTypeAttr::get(call.getContext(), dtype))
        .createOne(typeWith(type.getSizeExprs(), dtype));
  }
  Value unary(StringRef name, Value value) {
    return make(name).value("self", value).createOne(value.getType());
  }
  Value reduced(StringRef name, Value value, ArrayRef<int64_t> dims,
                bool keepdim, graph::TensorType type, bool adds) {
    NewCall made = make(name);
    made.value("self", value).integers("dim", dims).boolean("keepdim", keepdim);
    if (adds)
      made.constant("dtype",
                    graph::DTypeAttr::get(call.getContext(), type.getDtype()));
    return made.createOne(type);
  }
  NewCall variance(StringRef name, Value value, ArrayRef<int64_t> dims,
                   bool keepdim) {
    return std::move(make(name)
                         .value("self", value)
                         .integers("dim", dims)
                         .constant("correction", builder.getF64FloatAttr(0))
                         .boolean("keepdim", keepdim));
  }
  bool keepsDims() { return call.boolArg("keepdim").value_or(false); }

  graph::CallOp call;
  const Rows &rows;
  OpBuilder builder;
};

Split::Pieces Split::cut(Value whole, const Cut &cut, Attribute nothing) {
  DType dtype = typeOf(whole).getDtype();
  int64_t rank = rows.in.getRank();
  SmallVector<SymExpr> sizes = rows.in.getSizeExprs();
  SmallVector<SymExpr> strides = typeOf(whole).getStrideExprs();
  if (cut.pads) {
    int64_t missing = cut.pieces * cut.size - *sizes[cut.dim].asInteger();
    sizes[cut.dim] = SymExpr(cut.pieces * cut.size);
    // From the last dimension on.
    SmallVector<int64_t> pad(2 * (rank - cut.dim), 0);
    pad.back() = missing;
    graph::TensorType type = typeWith(sizes, dtype);
    whole = make("aten::constant_pad_nd")
                .value("self", whole)
                .integers("pad", pad)
                .constant("value", nothing)
                .createOne(type);
    strides = type.getStrideExprs();
  }
  sizes[cut.dim] = SymExpr(cut.pieces);
  sizes.insert(sizes.begin() + cut.dim + 1, SymExpr(cut.size));
  SymExpr stride = strides[cut.dim];
  strides[cut.dim] = stride * SymExpr(cut.size);
  strides.insert(strides.begin() + cut.dim + 1, stride);
  Pieces pieces;
  pieces.value =
      make("aten::view")
          .value("self", whole)
          .sizes("size", sizes)
          .createOne(graph::TensorType::get(call.getContext(), sizes, strides,
                                            dtype, rows.in.getDevice()),
                     /*isView=*/true);
  // The pieces' dimension stands before that of their elements.
  pieces.between = {cut.dim};
  for (int64_t dim : rows.reduced())
    pieces.inside.push_back(dim < cut.dim ? dim : dim + 1);
  for (int64_t dim : pieces.inside)
    sizes[dim] = SymExpr(1);
  if (!keepsDims())
    llvm::append_range(pieces.between, pieces.inside);
  llvm::sort(pieces.between);
  pieces.sizes = sizes;
  return pieces;
}

bool Split::inPieces() {
  DType from = rows.in.getDtype(), to = rows.out.getDtype();
  std::optional<Operator> op = operatorOf(call, from);
  if (!op)
    return false;
  // Sums of the halves are rounded once, at the end.
  bool isHalf = to == DType::F16 || to == DType::BF16;
  if (isHalf && op->adds && from != to)
    return false;
  // Of truth values there is no sum, and no piece of nothing.
  bool isTruth = from == DType::Bool && rows.in.hasContiguousStrides();
  DType inner = !isTruth ? from : op->adds ? to : DType::U8;
  DType between = isHalf && op->adds     ? DType::F32
                  : isTruth && !op->adds ? DType::U8
                                         : to;
  op = operatorOf(call, inner);
  std::optional<Cut> found = cutOf(rows, op->nothing != Attribute());
  if (!found)
    return false;
  Value whole = converted(call.getInputs().front(), inner);
  Pieces pieces = cut(whole, *found, op->nothing);
  Value made = reduced(op->name, pieces.value, pieces.inside, /*keepdim=*/true,
                       typeWith(pieces.sizes, between), op->adds);
  made = reduced(op->name, made, pieces.between, /*keepdim=*/false,
                 resultType(between), op->adds);
  if (op->isMean)
    made = make("aten::div.Scalar")
               .value("self", made)
               .integer("other", rows.length())
               .createOne(made.getType());
  call.getOutputs().front().replaceAllUsesWith(converted(made, to));
  call.erase();
  return true;
}

/// What the pieces vary by is what they vary inside, and what their means do.
bool Split::varianceInPieces(double correction, bool isDeviation) {
  std::optional<Cut> found = cutOf(rows, /*mayPad=*/false);
  if (!found || !rows.in.hasContiguousStrides() ||
      double(rows.length()) <= correction)
    return false;
  // As the kernels for it, in f64.
  DType dtype = DType::F64;
  Pieces pieces =
      cut(converted(call.getInputs().front(), dtype), *found, Attribute());
  graph::TensorType partial = typeWith(pieces.sizes, dtype);
  graph::TensorType type = resultType(dtype);
  graph::CallOp both =
      variance("aten::var_mean.correction", pieces.value, pieces.inside, true)
          .create({partial, partial});
  auto mean = [&](Value of) {
    return make("aten::mean.dim")
        .value("self", of)
        .integers("dim", pieces.between)
        .boolean("keepdim", false)
        .none("dtype")
        .createOne(type);
  };
  Value means = both.getOutputs()[1];
  Value varied = variance("aten::var.correction", means, pieces.between, false)
                     .createOne(type);
  Value made = make("aten::add.Tensor")
                   .value("self", mean(both.getOutputs()[0]))
                   .value("other", varied)
                   .integer("alpha", 1)
                   .createOne(type);
  double length = double(rows.length());
  made = make("aten::mul.Scalar")
             .value("self", made)
             .constant("other",
                       builder.getF64FloatAttr(length / (length - correction)))
             .createOne(type);
  if (isDeviation)
    made = unary("aten::sqrt", made);
  SmallVector<Value> results = {made};
  if (call.getOutputs().size() == 2)
    results.push_back(mean(means));
  for (auto [output, result] : llvm::zip_equal(call.getOutputs(), results))
    output.replaceAllUsesWith(converted(result, typeOf(output).getDtype()));
  call.erase();
  return true;
}

enum LossReduction : int64_t { lossMean = 1, lossSum = 2 };

graph::CallOp Split::asAnother() {
  DType from = rows.in.getDtype(), to = rows.out.getDtype();
  StringRef base = baseOf(call);
  if (!rows.in.hasContiguousStrides())
    return {};
  Value x = call.getInputs().front();
  auto whole = [&](DType dtype) {
    return typeWith(rows.in.getSizeExprs(), dtype);
  };
  Value made, result;
  if (base == "linalg_vector_norm" || base == "norm") {
    StringRef name = base == "norm" ? "p" : "ord";
    double order = 2;
    if (!call.isNone(name)) {
      std::optional<double> given = call.floatArg(name);
      if (!given)
        return {};
      order = *given;
    }
    bool isLargest = order == std::numeric_limits<double>::infinity();
    if (!isFloatingPoint(from) || (order != 1 && order != 2 && !isLargest))
      return {};
    DType inner = to == DType::F16 || to == DType::BF16 ? DType::F32 : to;
    x = converted(x, inner);
    Value terms =
        order == 2 ? make("aten::mul.Tensor")
                         .value("self", x)
                         .value("other", x)
                         .createOne(whole(inner))
                   : make("aten::abs").value("self", x).createOne(whole(inner));
    made = reduced(isLargest ? "aten::amax" : "aten::sum.dim_IntList", terms,
                   rows.reduced(), keepsDims(), resultType(inner),
                   /*adds=*/!isLargest);
    result = converted(order == 2 ? unary("aten::sqrt", made) : made, to);
  } else if (base == "count_nonzero") {
    x = make("aten::ne.Scalar")
            .value("self", x)
            .integer("other", 0)
            .createOne(whole(DType::Bool));
    result = made = reduced("aten::sum.dim_IntList", x, rows.reduced(),
                            /*keepdim=*/false, rows.out, /*adds=*/true);
  } else if (std::optional<int64_t> reduction = call.intArg("reduction");
             reduction == lossMean || reduction == lossSum) {
    // Eager rounds the elements' losses, too.
    for (Value input : call.getInputs())
      if (typeOf(input).getDtype() != to ||
          typeOf(input).getSizeExprs() != rows.in.getSizeExprs())
        return {};
    auto args = llvm::to_vector(call.getArgs());
    for (auto [name, value] : llvm::zip_equal(call.getArgNames(), args))
      if (cast<StringAttr>(name) == "reduction")
        value = builder.getI64IntegerAttr(0);
    auto losses = cast<graph::CallOp>(builder.clone(*call));
    losses.setArgsAttr(builder.getArrayAttr(args));
    losses.getOutputs().front().setType(whole(to));
    result = made = make(reduction == lossMean ? "aten::mean" : "aten::sum")
                        .value("self", losses.getOutputs().front())
                        .none("dtype")
                        .createOne(rows.out);
  } else {
    return {};
  }
  call.getOutputs().front().replaceAllUsesWith(result);
  call.erase();
  return made.getDefiningOp<graph::CallOp>();
}

} // namespace

bool hasFewLongRows(graph::CallOp call) {
  std::optional<Rows> rows = rowsOf(call);
  return rows && rows->in.getDevice().starts_with("cuda") &&
         areFewAndLong(*rows);
}

bool splitLongRows(graph::CallOp call) {
  std::optional<Rows> rows = rowsOf(call);
  if (!rows || !areFewAndLong(*rows) || isComplex(rows->in.getDtype()) ||
      isComplex(rows->out.getDtype()) || !rows->out.hasContiguousStrides())
    return false;
  Split split(call, *rows);
  StringRef base = baseOf(call);
  bool isDeviation = base.starts_with("std");
  if (isDeviation || base.starts_with("var")) {
    std::optional<double> correction = correctionArgument(call);
    return correction && isFloatingPoint(rows->in.getDtype()) &&
           split.varianceInPieces(*correction, isDeviation);
  }
  if (call.getOutputs().size() != 1)
    return false;
  if (split.inPieces())
    return true;
  if (!cutOf(*rows, /*mayPad=*/true))
    return false;
  graph::CallOp other = split.asAnother();
  return other && splitLongRows(other);
}

} // namespace intarsia::lower
