//===- TakeApart.cpp - Composite operators as calls ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What an exported program that was not decomposed holds of operators that
// PyTorch implements with several others, or with views. They become the calls
// that eager makes, so that every result is rounded where eager rounds it.
// Composites that are one entry of the table are in Composites.cpp.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/TakeApart.h"
#include "passes/Lower/Parts.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

/// A list of views along one dimension, each where the one before it ends.
Parts takePieces(graph::CallOp call, OpBuilder &builder, int64_t dim) {
  Value self = call.operand("self");
  graph::TensorType type = typeOf(self);
  if (!type || dim >= type.getRank())
    return {};
  Parts pieces;
  SymExpr start(0);
  for (Value output : call.getOutputs()) {
    SymExpr end = start + typeOf(output).getSizeExprs()[dim];
    pieces.push_back(make(call, builder, "aten::slice.Tensor")
                         .value("self", self)
                         .integer("dim", dim)
                         .size("start", start)
                         .size("end", end)
                         .integer("step", 1)
                         .createOne(output.getType(), /*isView=*/true));
    start = end;
  }
  return pieces;
}

Parts takeTensorSplit(graph::CallOp call, OpBuilder &builder) {
  graph::TensorType type = typeOf(call.operand("self"));
  std::optional<int64_t> dim =
      type ? dimArgument(call, "dim", type.getRank()) : std::nullopt;
  return dim ? takePieces(call, builder, *dim) : Parts();
}

Parts takeHorizontalSplit(graph::CallOp call, OpBuilder &builder) {
  graph::TensorType type = typeOf(call.operand("self"));
  return type ? takePieces(call, builder, type.getRank() == 1 ? 0 : 1)
              : Parts();
}

template <int64_t dim>
Parts takeSplitAt(graph::CallOp call, OpBuilder &builder) {
  return takePieces(call, builder, dim);
}

Value expanded(graph::CallOp call, OpBuilder &builder, Value from,
               graph::TensorType to) {
  return make(call, builder, "aten::expand")
      .value("self", from)
      .sizes("size", to.getSizeExprs())
      .boolean("implicit", false)
      .createOne(to, /*isView=*/true);
}

Parts takeBroadcastTensors(graph::CallOp call, OpBuilder &builder) {
  Parts views;
  for (auto [from, to] :
       llvm::zip_equal(call.operandList("tensors"), call.getOutputs()))
    views.push_back(expanded(call, builder, from, typeOf(to)));
  return views;
}

Value unsqueezed(graph::CallOp call, OpBuilder &builder, Value from,
                 int64_t dim) {
  graph::TensorType type = typeOf(from);
  SmallVector<SymExpr> sizes = type.getSizeExprs();
  SmallVector<SymExpr> strides = type.getStrideExprs();
  SymExpr stride = dim < static_cast<int64_t>(sizes.size())
                       ? sizes[dim] * strides[dim]
                       : SymExpr(1);
  sizes.insert(sizes.begin() + dim, SymExpr(1));
  strides.insert(strides.begin() + dim, stride);
  return make(call, builder, "aten::unsqueeze")
      .value("self", from)
      .integer("dim", dim)
      .createOne(graph::TensorType::get(type.getContext(), sizes, strides,
                                        type.getDtype(), type.getDevice()),
                 /*isView=*/true);
}

/// Each tensor lies along one dimension of the grid.
Parts takeMeshgrid(graph::CallOp call, OpBuilder &builder) {
  SmallVector<Value> tensors = call.operandList("tensors");
  bool swaps = call.arg("indexing") && call.stringArg("indexing") == "xy";
  Parts views;
  for (auto [number, from, to] : llvm::enumerate(tensors, call.getOutputs())) {
    if (!typeOf(from) || typeOf(from).getRank() != 1)
      return {};
    int64_t own = number;
    if (swaps && own < 2 && tensors.size() > 1)
      own = 1 - own;
    Value view = from;
    for (int64_t dim = 0; dim < static_cast<int64_t>(tensors.size()); ++dim)
      if (dim != own)
        view = unsqueezed(call, builder, view, dim);
    views.push_back(expanded(call, builder, view, typeOf(to)));
  }
  return views;
}

//===----------------------------------------------------------------------===//
// Moves of elements
//===----------------------------------------------------------------------===//

/// A concatenation, of tensors that get dimensions until they have `rank`.
template <int64_t dim, int64_t rank>
Parts takeStack(graph::CallOp call, OpBuilder &builder) {
  SmallVector<Value> tensors = call.operandList("tensors");
  int64_t along = dim;
  for (Value &tensor : tensors) {
    graph::TensorType type = typeOf(tensor);
    if (!type || type.getRank() == 0)
      return {};
    if (type.getRank() == 1 && rank == 1)
      along = 0;
    // (n) is a row, (1, n); the third dimension comes last.
    if (type.getRank() == 1 && rank > 1)
      tensor = unsqueezed(call, builder, tensor, 0);
    if (typeOf(tensor).getRank() == 2 && rank == 3)
      tensor = unsqueezed(call, builder, tensor, 2);
  }
  NewCall cat = make(call, builder, "aten::cat");
  cat.values("tensors", tensors).integer("dim", along);
  return {cat.createOne(call.getOutputs().front().getType())};
}

/// (n) is a column.
Parts takeColumnStack(graph::CallOp call, OpBuilder &builder) {
  SmallVector<Value> tensors = call.operandList("tensors");
  for (Value &tensor : tensors) {
    graph::TensorType type = typeOf(tensor);
    if (!type || type.getRank() == 0)
      return {};
    if (type.getRank() == 1)
      tensor = unsqueezed(call, builder, tensor, 1);
  }
  NewCall cat = make(call, builder, "aten::cat");
  cat.values("tensors", tensors).integer("dim", 1);
  return {cat.createOne(call.getOutputs().front().getType())};
}

Parts takeTile(graph::CallOp call, OpBuilder &builder) {
  graph::TensorType type = typeOf(call.operand("self"));
  std::optional<SmallVector<SymExpr>> repeats = call.sizesArg("dims");
  if (!type || !repeats)
    return {};
  while (static_cast<int64_t>(repeats->size()) < type.getRank())
    repeats->insert(repeats->begin(), SymExpr(1));
  return {make(call, builder, "aten::repeat")
              .from(call, "self")
              .sizes("repeats", *repeats)
              .createOne(call.getOutputs().front().getType())};
}

template <int64_t dim>
Parts takeFlip(graph::CallOp call, OpBuilder &builder) {
  return {make(call, builder, "aten::flip")
              .from(call, "self")
              .integers("dims", {dim})
              .createOne(call.getOutputs().front().getType())};
}

/// Of neighbours, once.
Parts takeDiff(graph::CallOp call, OpBuilder &builder) {
  Value self = call.operand("self");
  graph::TensorType type = typeOf(self);
  auto result = typeOf(call.getOutputs().front());
  std::optional<int64_t> dim =
      type ? dimArgument(call, "dim", type.getRank()) : std::nullopt;
  if (!dim || call.intArg("n") != 1 || !call.isNone("prepend") ||
      !call.isNone("append") || type.getDtype() == DType::Bool)
    return {};
  auto view = graph::TensorType::get(type.getContext(), result.getSizeExprs(),
                                     type.getStrideExprs(), type.getDtype(),
                                     type.getDevice());
  auto neighbours = [&](int64_t start) {
    SymExpr end = result.getSizeExprs()[*dim] + SymExpr(start);
    return make(call, builder, "aten::slice.Tensor")
        .value("self", self)
        .integer("dim", *dim)
        .integer("start", start)
        .size("end", end)
        .integer("step", 1)
        .createOne(view, /*isView=*/true);
  };
  Value after = neighbours(1), before = neighbours(0);
  return {make(call, builder, "aten::sub.Tensor")
              .value("self", after)
              .value("other", before)
              .integer("alpha", 1)
              .createOne(result)};
}

Parts takeTakeAlongDim(graph::CallOp call, OpBuilder &builder) {
  graph::TensorType self = typeOf(call.operand("self"));
  graph::TensorType indices = typeOf(call.operand("indices"));
  std::optional<int64_t> dim =
      self ? dimArgument(call, "dim", self.getRank()) : std::nullopt;
  if (!dim || !indices || indices.getRank() != self.getRank())
    return {};
  // Sizes that differ are broadcast first.
  for (int64_t other = 0; other < self.getRank(); ++other)
    if (other != *dim &&
        self.getSizeExprs()[other] != indices.getSizeExprs()[other])
      return {};
  return {make(call, builder, "aten::gather")
              .from(call, "self")
              .integer("dim", *dim)
              .from(call, "indices", "index")
              .boolean("sparse_grad", false)
              .createOne(call.getOutputs().front().getType())};
}

/// Beyond a border lies what the other one has.
Parts takeCircularPad(graph::CallOp call, OpBuilder &builder) {
  Value padded = call.operand("self");
  graph::TensorType type = typeOf(padded);
  std::optional<SmallVector<int64_t>> pad = intsArgument(call, "pad");
  if (!type || !type.hasContiguousStrides() || !pad || pad->size() % 2 != 0 ||
      static_cast<int64_t>(pad->size()) > 2 * type.getRank())
    return {};
  for (int64_t number = 0; number < static_cast<int64_t>(pad->size() / 2);
       ++number) {
    int64_t before = (*pad)[2 * number], after = (*pad)[2 * number + 1];
    int64_t dim = type.getRank() - 1 - number;
    SmallVector<SymExpr> sizes = type.getSizeExprs();
    SymExpr size = sizes[dim];
    std::optional<int64_t> known = size.asInteger();
    // Eager cuts off what is negative.
    if (before < 0 || after < 0 || (known && std::max(before, after) > *known))
      return {};
    auto slice = [&](const SymExpr &start, const SymExpr &end) {
      SmallVector<SymExpr> part = sizes;
      part[dim] = end - start;
      auto view =
          graph::TensorType::get(type.getContext(), part, type.getStrideExprs(),
                                 type.getDtype(), type.getDevice());
      return make(call, builder, "aten::slice.Tensor")
          .value("self", padded)
          .integer("dim", dim)
          .size("start", start)
          .size("end", end)
          .integer("step", 1)
          .createOne(view, /*isView=*/true);
    };
    SmallVector<Value> pieces;
    if (before)
      pieces.push_back(slice(size - SymExpr(before), size));
    pieces.push_back(padded);
    if (after)
      pieces.push_back(slice(0, after));
    sizes[dim] = size + SymExpr(before + after);
    type = denseType(type, sizes);
    NewCall cat = make(call, builder, "aten::cat");
    cat.values("tensors", pieces).integer("dim", dim);
    padded = cat.createOne(type);
  }
  if (type != call.getOutputs().front().getType())
    return {};
  return {padded};
}

/// What lies beyond the border is a reflection, or the border itself.
Parts takePad(graph::CallOp call, OpBuilder &builder) {
  if (call.arg("mode") && call.stringArg("mode") == "circular")
    return takeCircularPad(call, builder);
  StringRef border =
      llvm::StringSwitch<StringRef>(call.stringArg("mode").value_or("constant"))
          .Case("reflect", "aten::reflection_pad")
          .Case("replicate", "aten::replication_pad")
          .Default("");
  std::optional<SmallVector<SymExpr>> pad = call.sizesArg("pad");
  if (border.empty() || !pad || pad->size() % 2 != 0 || pad->empty() ||
      pad->size() > 6)
    return {};
  std::string name = (border + Twine(pad->size() / 2) + "d").str();
  return {make(call, builder, name)
              .from(call, "self")
              .from(call, "pad", "padding")
              .createOne(call.getOutputs().front().getType())};
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Parts takeOuter(graph::CallOp call, OpBuilder &builder) {
  Value self = call.operand("self");
  if (!typeOf(self) || typeOf(self).getRank() != 1)
    return {};
  Value column = unsqueezed(call, builder, self, 1);
  return {make(call, builder, "aten::mul.Tensor")
              .value("self", column)
              .from(call, "vec2", "other")
              .createOne(call.getOutputs().front().getType())};
}

Parts takeSELU(graph::CallOp call, OpBuilder &builder) {
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  return {make(call, builder, "aten::elu")
              .from(call, "self")
              .constant("alpha", number(1.6732632423543772848170429916717))
              .constant("scale", number(1.0507009873554804934193349852946))
              .integer("input_scale", 1)
              .createOne(call.getOutputs().front().getType())};
}

/// The weight belongs to the second dimension.
Parts takePReLU(graph::CallOp call, OpBuilder &builder) {
  graph::TensorType self = typeOf(call.operand("self"));
  Value weight = call.operand("weight");
  graph::TensorType type = typeOf(weight);
  if (!self || !type || type.getRank() > 1 ||
      self.getDtype() != type.getDtype())
    return {};
  if (type.getRank() == 1 && self.getRank() > 1)
    for (int64_t dim = 2; dim < self.getRank(); ++dim)
      weight = unsqueezed(call, builder, weight, dim - 1);
  return {make(call, builder, "aten::_prelu_kernel")
              .from(call, "self")
              .value("weight", weight)
              .createOne(call.getOutputs().front().getType())};
}

/// Outside training its slope is the mean of those it would choose from.
Parts takeRReLU(graph::CallOp call, OpBuilder &builder) {
  std::optional<double> lower = call.floatArg("lower");
  std::optional<double> upper = call.floatArg("upper");
  if (call.boolArg("training") != false || !lower || !upper)
    return {};
  return {make(call, builder, "aten::leaky_relu")
              .from(call, "self")
              .constant("negative_slope",
                        builder.getF64FloatAttr((*lower + *upper) / 2))
              .createOne(call.getOutputs().front().getType())};
}

/// A vector norm, which other orders of vectors and all orders of matrices are
/// not.
Parts takeNorm(graph::CallOp call, OpBuilder &builder) {
  std::optional<SmallVector<SymExpr>> dims = call.sizesArg("dim");
  bool isVector = call.isNone("ord") || (dims && dims->size() == 1);
  if (!isVector || (!call.isNone("ord") && !call.floatArg("ord")))
    return {};
  NewCall norm = make(call, builder, "aten::linalg_vector_norm");
  norm.from(call, "self");
  if (call.isNone("ord"))
    norm.integer("ord", 2);
  else
    norm.from(call, "ord");
  return {norm.from(call, "dim")
              .from(call, "keepdim")
              .from(call, "dtype")
              .createOne(call.getOutputs().front().getType())};
}

const llvm::StringMap<Composite> &composites() {
  static const llvm::StringMap<Composite> table = [] {
    llvm::StringMap<Composite> table = {
        {"aten::broadcast_tensors", takeBroadcastTensors},
        {"aten::column_stack", takeColumnStack},
        {"aten::diff", takeDiff},
        {"aten::dsplit.array", takeSplitAt<2>},
        {"aten::dsplit.int", takeSplitAt<2>},
        {"aten::dstack", takeStack<2, 3>},
        {"aten::fliplr", takeFlip<1>},
        {"aten::flipud", takeFlip<0>},
        {"aten::ger", takeOuter},
        {"aten::hsplit.array", takeHorizontalSplit},
        {"aten::hsplit.int", takeHorizontalSplit},
        {"aten::hstack", takeStack<1, 1>},
        {"aten::linalg_norm", takeNorm},
        {"aten::meshgrid", takeMeshgrid},
        {"aten::meshgrid.indexing", takeMeshgrid},
        {"aten::outer", takeOuter},
        {"aten::pad", takePad},
        {"aten::prelu", takePReLU},
        {"aten::row_stack", takeStack<0, 2>},
        {"aten::rrelu", takeRReLU},
        {"aten::selu", takeSELU},
        {"aten::take_along_dim", takeTakeAlongDim},
        {"aten::tensor_split.indices", takeTensorSplit},
        {"aten::tensor_split.sections", takeTensorSplit},
        {"aten::tile", takeTile},
        {"aten::vsplit.array", takeSplitAt<0>},
        {"aten::vsplit.int", takeSplitAt<0>},
        {"aten::vstack", takeStack<0, 2>},
    };
    addLosses(table);
    return table;
  }();
  return table;
}

} // namespace

bool takeApart(graph::CallOp call) {
  Composite composite = composites().lookup(call.getCallee());
  if (!composite || !call.isPure() || call.getOutputs().empty() ||
      llvm::any_of(call.getOutputs(), [](Value output) {
        return !isa<graph::TensorType>(output.getType());
      }))
    return false;
  OpBuilder builder(call);
  Parts parts = composite(call, builder);
  if (parts.size() != call.getOutputs().size())
    return false;
  for (auto [output, part] : llvm::zip_equal(call.getOutputs(), parts))
    output.replaceAllUsesWith(part);
  call.erase();
  return true;
}

std::vector<StringRef> compositeOperators() {
  std::vector<StringRef> names;
  for (StringRef name : composites().keys())
    names.push_back(name);
  return names;
}

} // namespace intarsia::lower
