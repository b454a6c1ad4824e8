//===- EmbeddingGradient.cpp - Gradients of tied embeddings ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/EmbeddingGradient.h"
#include "passes/Lower/Parts.h"
#include "passes/Plan/Views.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

/// Tables of fewer elements aren't worth the calls.
constexpr int64_t fewestElements = 1 << 18;

/// What the value is a view of, if that is the same tensor: a product that is
/// transposed twice.
Value beforeViews(Value value) {
  Value same = value;
  SymExpr offset;
  while (auto call = value.getDefiningOp<graph::CallOp>()) {
    std::optional<StridedView> view = stridedView(call);
    if (!view)
      break;
    offset = offset + view->offsets[cast<OpResult>(value).getResultNumber()];
    value = view->source;
    if (value.getType() == same.getType() && offset.isInteger(0))
      same = value;
  }
  return same;
}

/// The sum of a table's gradients, taken apart into its terms.
struct TiedGradient {
  Value product;
  graph::CallOp embedding;
};

std::optional<TiedGradient> tiedGradient(graph::CallOp add) {
  if (add.getCallee() != "aten::add.Tensor" || add.intArg("alpha") != 1)
    return std::nullopt;
  for (auto [name, other] :
       {std::pair("self", "other"), std::pair("other", "self")}) {
    Value term = add.operand(other), product = add.operand(name);
    auto embedding =
        term ? term.getDefiningOp<graph::CallOp>() : graph::CallOp();
    if (product && embedding && term.hasOneUse() &&
        embedding.getCallee() == "aten::embedding_dense_backward" &&
        product.getType() == term.getType() &&
        product.getType() == add.getOutputs().front().getType())
      return TiedGradient{product, embedding};
  }
  return std::nullopt;
}

} // namespace

bool addRowsOfEmbedding(graph::CallOp add) {
  std::optional<TiedGradient> sum = tiedGradient(add);
  if (!sum)
    return false;
  graph::CallOp embedding = sum->embedding;
  Value gradient = embedding.operand("grad_output");
  Value indices = embedding.operand("indices");
  graph::TensorType type = typeOf(sum->product), rows = typeOf(gradient),
                    positions = typeOf(indices);
  std::optional<int64_t> padding = embedding.intArg("padding_idx");
  std::optional<int64_t> elements = type.getNumElements().asInteger(),
                         count = positions.getNumElements().asInteger();
  bool isFloat = type.getDtype() == DType::F32 || type.getDtype() == DType::F64;
  // Elsewhere rows are added in no certain order.
  if (type.getDevice() != "cpu" || !isFloat || !elements || !count ||
      !padding || embedding.boolArg("scale_grad_by_freq") != false ||
      rows.getDtype() != type.getDtype() || positions.getDtype() != DType::I64)
    return false;
  int64_t words = *type.getSizeExprs()[0].asInteger();
  if (*elements < fewestElements || *count == 0 || *count > words / 4)
    return false;

  OpBuilder builder(add);
  auto step = [&](StringRef name) { return make(embedding, builder, name); };
  SymExpr number(*count);
  graph::TensorType list = denseType(positions, {number});
  graph::TensorType table = denseType(type, {number, type.getSizeExprs()[1]});
  auto viewed = [&](Value value, graph::TensorType to) -> Value {
    if (value.getType() == to)
      return value;
    graph::TensorType dense =
        denseType(typeOf(value), typeOf(value).getSizeExprs());
    if (!typeOf(value).hasContiguousStrides())
      value = step("aten::clone")
                  .value("self", value)
                  .constant("memory_format",
                            graph::MemoryFormatAttr::get(builder.getContext(),
                                                         "contiguous_format"))
                  .createOne(dense);
    return step("aten::view")
        .value("self", value)
        .sizes("size", to.getSizeExprs())
        .createOne(to, /*isView=*/true);
  };
  auto fromFactory = [&](NewCall call, graph::TensorType to) {
    MLIRContext *context = builder.getContext();
    return call.constant("dtype", graph::DTypeAttr::get(context, to.getDtype()))
        .none("layout")
        .constant("device", graph::DeviceAttr::get(context, to.getDevice()))
        .none("pin_memory")
        .createOne(to);
  };
  auto full = [&](graph::TensorType to, TypedAttr value) {
    return fromFactory(step("aten::full")
                           .sizes("size", to.getSizeExprs())
                           .constant("fill_value", value),
                       to);
  };
  auto addRows = [&](Value to, Value index, Value from) {
    return step("aten::index_add")
        .value("self", to)
        .integer("dim", 0)
        .value("index", index)
        .value("source", from)
        .integer("alpha", 1)
        .createOne(to.getType());
  };

  // For each position, the first one of the same word.
  Value index = viewed(indices, list);
  Value numbers =
      fromFactory(step("aten::arange").integer("end", *count), list);
  Value none = full(denseType(positions, {SymExpr(words)}),
                    builder.getI64IntegerAttr(*count));
  Value firsts = step("aten::scatter_reduce.two")
                     .value("self", none)
                     .integer("dim", 0)
                     .value("index", index)
                     .value("src", numbers)
                     .constant("reduce", builder.getStringAttr("amin"))
                     .boolean("include_self", true)
                     .createOne(none.getType());
  Value first = step("aten::index_select")
                    .value("self", firsts)
                    .integer("dim", 0)
                    .value("index", index)
                    .createOne(list);
  // There its rows are added up; the others keep a zero.
  Value sums = addRows(full(table, builder.getF64FloatAttr(0)), first,
                       viewed(gradient, table));
  if (*padding >= 0) {
    auto flags = [&](graph::TensorType like) {
      return graph::TensorType::get(like.getContext(), like.getSizeExprs(),
                                    DType::Bool, like.getDevice());
    };
    Value isPadding = step("aten::eq.Scalar")
                          .value("self", index)
                          .integer("other", *padding)
                          .createOne(flags(list));
    isPadding = viewed(isPadding, flags(denseType(list, {number, SymExpr(1)})));
    sums = step("aten::masked_fill.Scalar")
               .value("self", sums)
               .value("mask", isPadding)
               .integer("value", 0)
               .createOne(table);
  }
  Value result = addRows(beforeViews(sum->product), index, sums);
  add.getOutputs().front().replaceAllUsesWith(result);
  add.erase();
  embedding.erase();
  return true;
}

} // namespace intarsia::lower
