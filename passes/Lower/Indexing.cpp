//===- Indexing.cpp - Reading at positions that are data ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Embedding, gather and the like. A position is checked with `cf.assert`, whose
// message becomes the error that the runtime raises after the kernel, and read
// clamped, so that a wrong one never touches memory that isn't the tensor's.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

bool isIndex(const std::optional<Tensor> &tensor) {
  return tensor && (tensor->dtype == DType::I64 || tensor->dtype == DType::I32);
}

/// As eager says it.
std::string outOfBounds(int64_t dim) {
  return "index {index} is out of bounds for dimension " + std::to_string(dim) +
         " with size {size}";
}

Lowered lowerEmbedding(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> weight = tensorArgument(call, kernel, "weight");
  std::optional<Tensor> indices = tensorArgument(call, kernel, "indices");
  if (!weight || weight->rank() != 2 || !isIndex(indices))
    return failure();
  // The indices run along all dimensions but the last.
  Operand access = along(*indices, indices->rank() + 1, indices->rank());
  return SmallVector<Tensor>{computeAt(
      kernel, {access}, resultSizes(call), weight->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        Scalar row =
            checkedIndex(v[0].to(DType::I64), weight->sizes[0], false,
                         "aten::embedding: index out of range in self (index "
                         "{index}, size {size})");
        return readAt(*weight, {row, position.back()});
      })};
}

Lowered lowerGather(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> index = tensorArgument(call, kernel, "index");
  if (!self || !isIndex(index) || self->rank() == 0 ||
      index->rank() != self->rank())
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  // Other dimensions of the index may be smaller than the source's; the types
  // must say that they are.
  for (int64_t other = 0; other < self->rank(); ++other) {
    const SymExpr &have = self->sizes[other], &want = index->sizes[other];
    bool fits = have == want || (have.asInteger() && want.asInteger() &&
                                 *want.asInteger() <= *have.asInteger());
    if (other != *dim && !fits)
      return failure();
  }
  return SmallVector<Tensor>{computeAt(
      kernel, {*index}, index->sizes, self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        SmallVector<Scalar> source = llvm::to_vector(position);
        source[*dim] = checkedIndex(v[0].to(DType::I64), self->sizes[*dim],
                                    false, "aten::gather: " + outOfBounds(*dim),
                                    IndexFailure::RuntimeError);
        return readAt(*self, source);
      })};
}

Lowered lowerIndexSelect(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> index = tensorArgument(call, kernel, "index");
  if (!self || !isIndex(index) || self->rank() == 0 || index->rank() != 1)
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  return SmallVector<Tensor>{computeAt(
      kernel, {Access{*index, {*dim}}}, resultSizes(call), self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        SmallVector<Scalar> source = llvm::to_vector(position);
        source[*dim] = checkedIndex(
            v[0].to(DType::I64), self->sizes[*dim], false,
            "aten::index_select: index out of range in self (index "
            "{index}, size {size})");
        return readAt(*self, source);
      })};
}

/// `x[:, i, j]`: the index tensors broadcast against each other and stand where
/// the first of them does, or in front if something is between them.
Lowered lowerIndex(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  auto list = dyn_cast_or_null<ArrayAttr>(call.arg("indices"));
  if (!self || self->rank() == 0 || !list)
    return failure();
  SmallVector<std::optional<Tensor>> indices(self->rank());
  SmallVector<int64_t> indexed;
  int64_t indexRank = 0;
  for (auto [position, element] : llvm::enumerate(list)) {
    if (isa<graph::NoneAttr>(element))
      continue;
    auto operand = dyn_cast<graph::OperandAttr>(element);
    if (!operand)
      return failure();
    Value value = call.getInputs()[operand.getIndex()];
    auto type = dyn_cast<graph::TensorType>(value.getType());
    if (!type ||
        (type.getDtype() != DType::I64 && type.getDtype() != DType::I32))
      return failure();
    indices[position] = kernel.input(value);
    indexed.push_back(static_cast<int64_t>(position));
    indexRank = std::max(indexRank, type.getRank());
  }
  if (indexed.empty())
    return failure();
  bool isAdjacent = indexed.back() - indexed.front() + 1 ==
                    static_cast<int64_t>(indexed.size());
  int64_t start = isAdjacent ? indexed.front() : 0;

  // Where each dimension of the source, and of the index tensors, is in the
  // result.
  SmallVector<SymExpr> sizes = resultSizes(call);
  int64_t rank = static_cast<int64_t>(sizes.size());
  if (rank != self->rank() - static_cast<int64_t>(indexed.size()) + indexRank)
    return failure();
  ArrayRef<SymExpr> indexSizes = ArrayRef(sizes).slice(start, indexRank);
  SmallVector<Operand> operands;
  for (int64_t dim : indexed) {
    Argument index;
    index.tensor = indices[dim];
    if (!broadcastsTo(index, indexSizes))
      return failure();
    Access access = broadcast(*indices[dim], indexSizes);
    for (int64_t &target : access.dims)
      if (target >= 0)
        target += start;
    operands.push_back(access);
  }
  return SmallVector<Tensor>{computeAt(
      kernel, operands, sizes, self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        SmallVector<Scalar> source;
        int64_t next = isAdjacent ? 0 : indexRank;
        for (int64_t dim = 0; dim < self->rank(); ++dim) {
          if (indices[dim]) {
            auto which = llvm::find(indexed, dim) - indexed.begin();
            source.push_back(checkedIndex(v[which].to(DType::I64),
                                          self->sizes[dim], true,
                                          "aten::index: " + outOfBounds(dim)));
            if (isAdjacent && dim == indexed.back())
              next = start + indexRank;
          } else {
            source.push_back(position[next++]);
          }
        }
        return readAt(*self, source);
      })};
}

/// `self` with `value(...)` where `index`, which has one element along `dim`,
/// points: no two elements go to the same place.
Lowered lowerScatter(
    graph::CallOp call, KernelBuilder &kernel,
    llvm::function_ref<std::optional<Operand>(const Tensor &self,
                                              const Tensor &index, int64_t dim)>
        source,
    llvm::function_ref<Scalar(const Scalar &like, ArrayRef<Scalar> scalars)>
        value) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> index = tensorArgument(call, kernel, "index");
  if (!self || !index || self->rank() == 0 || index->dtype != DType::I64 ||
      index->rank() != self->rank())
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  SmallVector<SymExpr> expected = self->sizes;
  expected[*dim] = 1;
  if (index->sizes != expected)
    return failure();
  SmallVector<Operand> operands = {*self, broadcast(*index, self->sizes)};
  if (std::optional<Operand> from = source(*self, *index, *dim))
    operands.push_back(*from);
  std::string message =
      call.getCallee().split('.').first.str() + ": " + outOfBounds(*dim);
  return SmallVector<Tensor>{computeAt(
      kernel, operands, self->sizes, self->dtype,
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        Scalar at = checkedIndex(v[1], self->sizes[*dim], /*wraps=*/false,
                                 message, IndexFailure::RuntimeError);
        return select(position[*dim] == at, value(v[0], v), v[0]);
      })};
}

Lowered lowerScatterValue(graph::CallOp call, KernelBuilder &kernel) {
  return lowerScatter(
      call, kernel,
      [](const Tensor &, const Tensor &, int64_t) { return std::nullopt; },
      [&](const Scalar &like, ArrayRef<Scalar>) {
        return numberArgument(call, "value", like).roundedTo(resultDType(call));
      });
}

Lowered lowerScatterSource(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> source = tensorArgument(call, kernel, "src");
  if (!source || source->dtype != resultDType(call))
    return failure();
  bool fits = true;
  Lowered result = lowerScatter(
      call, kernel,
      [&](const Tensor &self, const Tensor &index, int64_t) {
        fits = source->sizes == index.sizes;
        return fits ? std::optional(Operand(broadcast(*source, self.sizes)))
                    : std::nullopt;
      },
      [](const Scalar &like, ArrayRef<Scalar> scalars) {
        return scalars.size() == 3 ? scalars[2] : like;
      });
  if (!fits)
    return failure();
  return result;
}

/// `x[mask] = number`, which chooses element by element: what a mask of all
/// dimensions, or of the first ones, says about one number.
Lowered lowerMaskedPut(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> values = tensorArgument(call, kernel, "values");
  SmallVector<Value> indices = call.operandList("indices");
  if (!self || !values || indices.size() != 1 || !indices[0] ||
      call.boolArg("accumulate") != false || values->dtype != self->dtype ||
      llvm::any_of(values->sizes,
                   [](const SymExpr &size) { return !size.isInteger(1); }))
    return failure();
  auto type = dyn_cast<graph::TensorType>(indices[0].getType());
  if (!type || type.getDtype() != DType::Bool ||
      type.getRank() > self->rank() || type.getRank() == 0 ||
      ArrayRef(self->sizes).take_front(type.getRank()) != type.getSizeExprs())
    return failure();
  Access mask{kernel.input(indices[0]),
              llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()))};
  return SmallVector<Tensor>{
      compute(kernel, {*self, mask, broadcast(*values, self->sizes)},
              self->sizes, self->dtype,
              [](ArrayRef<Scalar> v) { return select(v[1], v[2], v[0]); })};
}

} // namespace

void registerIndexing(LoweringTable &table) {
  table.add("aten::embedding", lowerEmbedding);
  table.add("aten::gather", lowerGather);
  table.add("aten::index.Tensor", lowerIndex);
  table.add("aten::_unsafe_index.Tensor", lowerIndex);
  table.add("aten::index_put", lowerMaskedPut);
  table.add("aten::index_select", lowerIndexSelect);
  table.add("aten::scatter.src", lowerScatterSource);
  table.add("aten::scatter.value", lowerScatterValue);
}

} // namespace intarsia::lower
