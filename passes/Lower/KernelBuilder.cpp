//===- KernelBuilder.cpp - Building the body of a kernel ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Makes the tensor operations of a kernel's body, in the language that
// Lowering.h sets down. A body is built in a region of its own, so that a
// lowering that gives up half-way leaves nothing behind.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Lower/Lowering.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

RankedTensorType builtinType(MLIRContext *context, ArrayRef<SymExpr> sizes,
                             Type element) {
  SmallVector<int64_t> shape;
  for (const SymExpr &size : sizes)
    shape.push_back(size.asInteger().value_or(ShapedType::kDynamic));
  return RankedTensorType::get(shape, element);
}

SymExpr product(ArrayRef<SymExpr> sizes) {
  SymExpr result = 1;
  for (const SymExpr &size : sizes)
    result = result * size;
  return result;
}

/// A stored scalar as computations want it: bool is an i1.
Value load(OpBuilder &builder, Location loc, Value stored, DType dtype) {
  if (dtype != DType::Bool)
    return stored;
  Value zero = arith::ConstantIntOp::create(builder, loc, stored.getType(), 0);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, stored,
                               zero);
}

Value store(OpBuilder &builder, Location loc, Value value, DType dtype) {
  if (dtype != DType::Bool)
    return value;
  return arith::ExtUIOp::create(builder, loc, builder.getI8Type(), value);
}

/// The dimensions of two shapes with equal numbers of elements, cut into the
/// finest groups that hold equal numbers.
struct DimGroups {
  SmallVector<ReassociationIndices> from, to;
};

DimGroups groupDims(ArrayRef<SymExpr> from, ArrayRef<SymExpr> to) {
  DimGroups groups;
  size_t fromDone = 0, toDone = 0;
  SymExpr fromSize = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    fromSize = fromSize * from[i];
    SymExpr toSize = 1;
    for (size_t j = toDone; j < to.size(); ++j) {
      toSize = toSize * to[j];
      if (toSize != fromSize)
        continue;
      groups.from.push_back(
          llvm::to_vector(llvm::seq<int64_t>(fromDone, i + 1)));
      groups.to.push_back(llvm::to_vector(llvm::seq<int64_t>(toDone, j + 1)));
      fromDone = i + 1;
      toDone = j + 1;
      fromSize = 1;
      break;
    }
  }
  // What is left over on one side has size 1 if the sizes are equal.
  if (fromDone < from.size() || toDone < to.size()) {
    if (groups.from.empty())
      return {};
    for (size_t i = fromDone; i < from.size(); ++i) {
      if (!from[i].isInteger(1))
        return {};
      groups.from.back().push_back(i);
    }
    for (size_t j = toDone; j < to.size(); ++j) {
      if (!to[j].isInteger(1))
        return {};
      groups.to.back().push_back(j);
    }
  }
  return groups;
}

} // namespace

Type storageType(MLIRContext *context, DType dtype) {
  return graph::kernelElementType(context, dtype);
}

DType computeType(DType dtype) {
  return isFloatingPoint(dtype) && dtypeSize(dtype) < 4 ? DType::F32 : dtype;
}

Access broadcast(const Tensor &tensor, ArrayRef<SymExpr> sizes) {
  Access access{tensor, {}};
  int64_t skipped = static_cast<int64_t>(sizes.size()) - tensor.rank();
  for (auto [dim, size] : llvm::enumerate(tensor.sizes)) {
    int64_t target = skipped + static_cast<int64_t>(dim);
    bool isStretched = size.isInteger(1) && !sizes[target].isInteger(1);
    access.dims.push_back(isStretched ? -1 : target);
  }
  return access;
}

KernelBuilder::KernelBuilder(OpBuilder &outer, Location loc)
    : outer(outer), loc(loc), block(new Block), inner(outer.getContext()) {
  region.push_back(block);
  inner.setInsertionPointToEnd(block);
}

KernelBuilder::~KernelBuilder() = default;

Tensor KernelBuilder::input(Value graphTensor) {
  auto type = mlir::cast<graph::TensorType>(graphTensor.getType());
  Tensor result{nullptr, type.getSizeExprs(), type.getDtype()};
  auto *found = llvm::find(operands, graphTensor);
  auto index = static_cast<unsigned>(found - operands.begin());
  if (found == operands.end()) {
    Type element = storageType(outer.getContext(), type.getDtype());
    block->insertArgument(
        index, builtinType(outer.getContext(), result.sizes, element),
        graphTensor.getLoc());
    operands.push_back(graphTensor);
  }
  result.value = block->getArgument(index);
  return result;
}

Value KernelBuilder::size(const SymExpr &expr) {
  if (std::optional<int64_t> constant = expr.asInteger())
    return arith::ConstantIndexOp::create(inner, loc, *constant);
  auto *found = llvm::find(symbols, expr);
  auto index = static_cast<unsigned>(found - symbols.begin());
  if (found == symbols.end()) {
    symbols.push_back(expr);
    return block->addArgument(inner.getIndexType(), loc);
  }
  return block->getArgument(operands.size() + index);
}

OpFoldResult KernelBuilder::foldedSize(const SymExpr &expr) {
  if (std::optional<int64_t> constant = expr.asInteger())
    return inner.getIndexAttr(*constant);
  return size(expr);
}

/// A SymFloat, as far as it is made of constants and integers that are
/// converted or divided; null for others.
Value KernelBuilder::floatValue(const SymExpr &expr) {
  if (std::optional<double> constant = expr.asReal())
    return arith::ConstantFloatOp::create(inner, loc, inner.getF64Type(),
                                          APFloat(*constant));
  auto fromInteger = [&](const SymExpr &integer) -> Value {
    Value wide = arith::IndexCastOp::create(inner, loc, inner.getI64Type(),
                                            size(integer));
    return arith::SIToFPOp::create(inner, loc, inner.getF64Type(), wide);
  };
  switch (expr.kind()) {
  case SymExpr::Kind::ToFloat:
    return fromInteger(expr.operands()[0]);
  case SymExpr::Kind::TrueDiv: {
    SmallVector<Value, 2> operands;
    for (const SymExpr &operand : expr.operands()) {
      operands.push_back(operand.mayBeReal() ? floatValue(operand)
                                             : fromInteger(operand));
      if (!operands.back())
        return nullptr;
    }
    return arith::DivFOp::create(inner, loc, operands[0], operands[1]);
  }
  default:
    return nullptr;
  }
}

Value KernelBuilder::symbolScalar(Value graphScalar, DType dtype) {
  std::optional<SymExpr> known = graph::symbolicValue(graphScalar);
  if (!known)
    return nullptr;
  const SymExpr &expr = *known;
  if (graphScalar.getType().isIndex()) {
    Value wide =
        arith::IndexCastOp::create(inner, loc, inner.getI64Type(), size(expr));
    return convertScalar(inner, loc, wide, DType::I64, dtype);
  }
  if (!graphScalar.getType().isF64())
    return nullptr;
  Value value = floatValue(expr);
  return value ? convertScalar(inner, loc, value, DType::F64, dtype) : nullptr;
}

Value KernelBuilder::emptyTensor(ArrayRef<SymExpr> sizes, Type element) {
  SmallVector<Value> dynamic;
  for (const SymExpr &expr : sizes)
    if (!expr.asInteger())
      dynamic.push_back(size(expr));
  return tensor::EmptyOp::create(
      inner, loc, builtinType(inner.getContext(), sizes, element), dynamic);
}

Tensor KernelBuilder::pointwise(ArrayRef<Tensor> inputs,
                                ArrayRef<SymExpr> sizes, DType result,
                                ScalarBody body) {
  SmallVector<Access> accesses;
  for (const Tensor &input : inputs)
    accesses.push_back(broadcast(input, sizes));
  return pointwiseAccess(accesses, sizes, result, false, body);
}

Tensor KernelBuilder::pointwiseAt(ArrayRef<Tensor> inputs,
                                  ArrayRef<SymExpr> sizes, DType result,
                                  ScalarBody body) {
  SmallVector<Access> accesses;
  for (const Tensor &input : inputs)
    accesses.push_back(broadcast(input, sizes));
  return pointwiseAccess(accesses, sizes, result, true, body);
}

Tensor KernelBuilder::pointwiseAccess(ArrayRef<Access> inputs,
                                      ArrayRef<SymExpr> sizes, DType result,
                                      bool withPosition, ScalarBody body) {
  MLIRContext *context = inner.getContext();
  auto rank = static_cast<int64_t>(sizes.size());
  SmallVector<Value> values;
  SmallVector<AffineMap> maps;
  for (const Access &access : inputs) {
    SmallVector<AffineExpr> exprs;
    for (int64_t dim : access.dims)
      exprs.push_back(dim < 0 ? getAffineConstantExpr(0, context)
                              : getAffineDimExpr(dim, context));
    values.push_back(access.tensor.value);
    maps.push_back(AffineMap::get(rank, 0, exprs, context));
  }
  maps.push_back(AffineMap::getMultiDimIdentityMap(rank, context));
  Value init = emptyTensor(sizes, storageType(context, result));
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      inner, loc, init.getType(), values, init, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange arguments) {
        SmallVector<Value> scalars;
        for (auto [access, argument] :
             llvm::zip(inputs, arguments.take_front(inputs.size())))
          scalars.push_back(load(builder, loc, argument, access.tensor.dtype));
        if (withPosition)
          for (int64_t dim = 0; dim < rank; ++dim)
            scalars.push_back(linalg::IndexOp::create(builder, loc, dim));
        Value value = body(builder, loc, scalars);
        for (Value scalar : ArrayRef(scalars).drop_front(inputs.size()))
          if (scalar != value && scalar.use_empty())
            scalar.getDefiningOp()->erase();
        linalg::YieldOp::create(builder, loc,
                                store(builder, loc, value, result));
      });
  return {generic.getResult(0), llvm::to_vector(sizes), result};
}

SmallVector<Tensor> KernelBuilder::reduce(ArrayRef<Tensor> inputs,
                                          ArrayRef<int64_t> dims,
                                          ArrayRef<TypedAttr> neutral,
                                          ScalarsBody combine) {
  return accumulate(inputs, dims, /*keepsAll=*/false, neutral, combine);
}

SmallVector<Tensor> KernelBuilder::run(ArrayRef<Tensor> inputs, int64_t dim,
                                       ArrayRef<TypedAttr> start,
                                       ScalarsBody combine) {
  return accumulate(inputs, dim, /*keepsAll=*/true, start, combine);
}

SmallVector<Tensor> KernelBuilder::accumulate(ArrayRef<Tensor> inputs,
                                              ArrayRef<int64_t> dims,
                                              bool keepsAll,
                                              ArrayRef<TypedAttr> neutral,
                                              ScalarsBody combine) {
  MLIRContext *context = inner.getContext();
  int64_t rank = inputs.front().rank();
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  for (int64_t dim : dims)
    iterators[dim] = utils::IteratorType::reduction;
  SmallVector<SymExpr> sizes;
  SmallVector<AffineExpr> kept;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (keepsAll || iterators[dim] == utils::IteratorType::parallel) {
      sizes.push_back(inputs.front().sizes[dim]);
      kept.push_back(getAffineDimExpr(dim, context));
    }

  SmallVector<Value> values, starts;
  SmallVector<Type> types;
  SmallVector<AffineMap> maps(inputs.size(),
                              AffineMap::getMultiDimIdentityMap(rank, context));
  for (auto [input, start] : llvm::zip(inputs, neutral)) {
    values.push_back(input.value);
    Type element = storageType(context, input.dtype);
    Value constant = arith::ConstantOp::create(inner, loc, start);
    starts.push_back(linalg::FillOp::create(inner, loc, constant,
                                            emptyTensor(sizes, element))
                         .getResult(0));
    types.push_back(starts.back().getType());
    maps.push_back(AffineMap::get(rank, 0, kept, context));
  }
  auto generic = linalg::GenericOp::create(
      inner, loc, types, values, starts, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange arguments) {
        SmallVector<Value> scalars;
        for (auto [index, argument] : llvm::enumerate(arguments))
          scalars.push_back(load(builder, loc, argument,
                                 inputs[index % inputs.size()].dtype));
        SmallVector<Value> combined = combine(builder, loc, scalars);
        for (auto [input, value] : llvm::zip(inputs, combined))
          value = store(builder, loc, value, input.dtype);
        linalg::YieldOp::create(builder, loc, combined);
      });
  SmallVector<Tensor> results;
  for (auto [input, value] : llvm::zip(inputs, generic.getResults()))
    results.push_back({value, sizes, input.dtype});
  return results;
}

Tensor KernelBuilder::permute(const Tensor &in, ArrayRef<int64_t> order) {
  Access access{in, SmallVector<int64_t>(order.size())};
  SmallVector<SymExpr> sizes;
  for (auto [target, source] : llvm::enumerate(order)) {
    access.dims[source] = static_cast<int64_t>(target);
    sizes.push_back(in.sizes[source]);
  }
  return pointwiseAccess(
      access, sizes, in.dtype, false,
      [](OpBuilder &, Location, ValueRange values) { return values[0]; });
}

Tensor KernelBuilder::expand(const Tensor &in, ArrayRef<SymExpr> sizes) {
  return pointwise(
      in, sizes, in.dtype,
      [](OpBuilder &, Location, ValueRange values) { return values[0]; });
}

Tensor KernelBuilder::reshape(const Tensor &in, ArrayRef<SymExpr> sizes) {
  if (ArrayRef<SymExpr>(in.sizes) == sizes)
    return in;
  Tensor none{nullptr, llvm::to_vector(sizes), in.dtype};
  if (product(in.sizes) != product(sizes))
    return none;
  MLIRContext *context = inner.getContext();
  Type element = storageType(context, in.dtype);
  DimGroups groups;
  bool isScalar = in.sizes.empty() || sizes.empty();
  if (!isScalar) {
    groups = groupDims(in.sizes, sizes);
    if (groups.from.empty()) {
      groups.from.assign(
          1, llvm::to_vector(llvm::seq<int64_t>(0, in.sizes.size())));
      groups.to.assign(1, llvm::to_vector(llvm::seq<int64_t>(0, sizes.size())));
    }
  }
  auto isTrivial = [](ArrayRef<ReassociationIndices> groups) {
    return !groups.empty() && llvm::all_of(groups, [](const auto &group) {
      return group.size() == 1;
    });
  };
  Value value = in.value;
  SmallVector<SymExpr> middle;
  for (const ReassociationIndices &group : groups.from) {
    SymExpr count = 1;
    for (int64_t dim : group)
      count = count * in.sizes[dim];
    middle.push_back(count);
  }
  // MLIR wants a group's size to be static exactly if its dimensions are.
  for (auto [fromGroup, toGroup, count] :
       llvm::zip(groups.from, groups.to, middle)) {
    auto isStatic = [](ArrayRef<SymExpr> sizes, ArrayRef<int64_t> dims) {
      return llvm::all_of(dims, [&](int64_t dim) {
        return sizes[dim].asInteger().has_value();
      });
    };
    bool middleStatic = count.asInteger().has_value();
    if (isStatic(in.sizes, fromGroup) != middleStatic ||
        isStatic(sizes, toGroup) != middleStatic)
      return none;
  }
  if (!isTrivial(groups.from) && !in.sizes.empty())
    value = tensor::CollapseShapeOp::create(
        inner, loc, builtinType(context, middle, element), value, groups.from);
  if (!isTrivial(groups.to) && !sizes.empty()) {
    SmallVector<OpFoldResult> shape;
    for (const SymExpr &expr : sizes)
      shape.push_back(foldedSize(expr));
    value = tensor::ExpandShapeOp::create(inner, loc,
                                          builtinType(context, sizes, element),
                                          value, groups.to, shape);
  }
  return {value, llvm::to_vector(sizes), in.dtype};
}

Tensor KernelBuilder::unsqueeze(const Tensor &in, int64_t dim) {
  SmallVector<SymExpr> sizes = in.sizes;
  sizes.insert(sizes.begin() + dim, 1);
  return reshape(in, sizes);
}

Tensor KernelBuilder::slice(const Tensor &in, int64_t dim, const SymExpr &start,
                            const SymExpr &length, int64_t step) {
  Tensor result = in;
  result.sizes[dim] = length;
  SmallVector<OpFoldResult> offsets(in.rank(), inner.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(in.rank(), inner.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  for (const SymExpr &expr : result.sizes)
    sizes.push_back(foldedSize(expr));
  // An empty slice has no first element, and MLIR refuses one beyond the end.
  offsets[dim] = foldedSize(length.isInteger(0) ? SymExpr(0) : start);
  strides[dim] = inner.getIndexAttr(step);
  Type element = storageType(inner.getContext(), in.dtype);
  result.value = tensor::ExtractSliceOp::create(
      inner, loc, builtinType(inner.getContext(), result.sizes, element),
      in.value, offsets, sizes, strides);
  return result;
}

Tensor KernelBuilder::select(const Tensor &in, int64_t dim,
                             const SymExpr &index) {
  SmallVector<OpFoldResult> offsets(in.rank(), inner.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(in.rank(), inner.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  for (const SymExpr &expr : in.sizes)
    sizes.push_back(foldedSize(expr));
  offsets[dim] = foldedSize(index);
  sizes[dim] = inner.getIndexAttr(1);
  Tensor result = in;
  result.sizes.erase(result.sizes.begin() + dim);
  Type element = storageType(inner.getContext(), in.dtype);
  result.value = tensor::ExtractSliceOp::create(
      inner, loc, builtinType(inner.getContext(), result.sizes, element),
      in.value, offsets, sizes, strides);
  return result;
}

Tensor KernelBuilder::cast(const Tensor &in, DType dtype) {
  if (in.dtype == dtype)
    return in;
  return pointwise(in, in.sizes, dtype,
                   [&](OpBuilder &builder, Location loc, ValueRange values) {
                     return convertScalar(builder, loc, values[0], in.dtype,
                                          dtype);
                   });
}

Tensor KernelBuilder::concat(ArrayRef<Tensor> inputs, int64_t dim,
                             ArrayRef<SymExpr> sizes) {
  SmallVector<Value> values;
  for (const Tensor &input : inputs)
    values.push_back(input.value);
  DType dtype = inputs.front().dtype;
  Type element = storageType(inner.getContext(), dtype);
  auto op = tensor::ConcatOp::create(
      inner, loc, builtinType(inner.getContext(), sizes, element), dim, values);
  return {op.getResult(), llvm::to_vector(sizes), dtype};
}

Tensor KernelBuilder::pad(const Tensor &in, ArrayRef<int64_t> low,
                          ArrayRef<int64_t> high, Value value) {
  Tensor result = in;
  SmallVector<OpFoldResult> lowSizes, highSizes;
  for (auto [dim, before, after] : llvm::enumerate(low, high)) {
    result.sizes[dim] = in.sizes[dim] + SymExpr(before + after);
    lowSizes.push_back(inner.getIndexAttr(before));
    highSizes.push_back(inner.getIndexAttr(after));
  }
  Type element = storageType(inner.getContext(), in.dtype);
  result.value = tensor::PadOp::create(
      inner, loc, builtinType(inner.getContext(), result.sizes, element),
      in.value, lowSizes, highSizes, store(inner, loc, value, in.dtype));
  return result;
}

Value KernelBuilder::extract(OpBuilder &builder, Location loc,
                             const Tensor &from, ValueRange position) {
  Value stored = tensor::ExtractOp::create(builder, loc, from.value, position);
  return load(builder, loc, stored, from.dtype);
}

graph::KernelOp KernelBuilder::finish(ArrayRef<Tensor> results,
                                      ArrayRef<graph::TensorType> types,
                                      StringRef opName) {
  assert(!isDeclined && "the call has no kernel");
  SmallVector<Value> values;
  for (const Tensor &result : results) {
    // A result is memory of its own, so an argument is copied.
    bool isArgument = isa<BlockArgument>(result.value);
    values.push_back(isArgument ? expand(result, result.sizes).value
                                : result.value);
  }
  graph::YieldOp::create(inner, loc, values);
  // What was made for outputs that nobody uses.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
    if (isOpTriviallyDead(&op))
      op.erase();
  for (unsigned index = block->getNumArguments(); index-- > 0;) {
    if (!block->getArgument(index).use_empty())
      continue;
    block->eraseArgument(index);
    if (index < operands.size())
      operands.erase(operands.begin() + index);
    else
      symbols.erase(symbols.begin() + (index - operands.size()));
  }

  SmallVector<Attribute> expressions;
  for (const SymExpr &symbol : symbols)
    expressions.push_back(graph::ExprAttr::get(outer.getContext(), symbol));
  SmallVector<Type> resultTypes(types.begin(), types.end());
  auto kernel = graph::KernelOp::create(
      outer, loc, resultTypes, operands, outer.getArrayAttr(expressions),
      outer.getStrArrayAttr(opName), /*decisions=*/nullptr);
  kernel.getBody().takeBody(region);
  return kernel;
}

} // namespace intarsia::lower
