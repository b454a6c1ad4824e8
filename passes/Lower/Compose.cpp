//===- Compose.cpp - Kernels of several steps ---------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Compose.h on the operations of KernelBuilder.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

Tensor computeImpl(KernelBuilder &kernel, ArrayRef<Operand> operands,
                   ArrayRef<SymExpr> sizes, DType result, bool withPosition,
                   FormulaAt formula) {
  SmallVector<Access> accesses(operands.begin(), operands.end());
  return kernel.pointwiseAccess(
      accesses, sizes, result, withPosition,
      [&](OpBuilder &builder, Location loc, ValueRange values) {
        ScalarContext context{kernel, builder, loc};
        SmallVector<Scalar> scalars, position;
        for (auto [operand, value] :
             llvm::zip(operands, values.take_front(operands.size()))) {
          DType dtype = operand.tensor.dtype;
          scalars.push_back(
              Scalar(context, value, dtype).to(computeType(dtype)));
        }
        for (Value index : values.drop_front(operands.size()))
          position.emplace_back(context,
                                arith::IndexCastOp::create(
                                    builder, loc, builder.getI64Type(), index),
                                DType::I64);
        Value value = formula(scalars, position).to(result).getValue();
        for (const Scalar &coordinate : position)
          if (coordinate.getValue() != value &&
              coordinate.getValue().use_empty())
            coordinate.getValue().getDefiningOp()->erase();
        return value;
      });
}

} // namespace

Tensor compute(KernelBuilder &kernel, ArrayRef<Operand> operands,
               ArrayRef<SymExpr> sizes, DType result, Formula formula) {
  return computeImpl(kernel, operands, sizes, result, false,
                     [&](ArrayRef<Scalar> scalars, ArrayRef<Scalar>) {
                       return formula(scalars);
                     });
}

Tensor computeAt(KernelBuilder &kernel, ArrayRef<Operand> operands,
                 ArrayRef<SymExpr> sizes, DType result, FormulaAt formula) {
  return computeImpl(kernel, operands, sizes, result, true, formula);
}

TypedAttr neutralElement(MLIRContext *context, Reduction reduction,
                         DType dtype) {
  Type type = storageType(context, dtype);
  if (auto floatType = dyn_cast<FloatType>(type)) {
    double inf = std::numeric_limits<double>::infinity();
    double value = reduction == Reduction::Sum       ? 0.0
                   : reduction == Reduction::Product ? 1.0
                   : reduction == Reduction::Max     ? -inf
                                                     : inf;
    return FloatAttr::get(floatType, value);
  }
  unsigned width = type.getIntOrFloatBitWidth();
  // The real part is the lower half.
  if (isComplex(dtype)) {
    assert(reduction == Reduction::Sum || reduction == Reduction::Product);
    APInt bits = width == 64 ? APFloat(1.0f).bitcastToAPInt()
                             : APFloat(1.0).bitcastToAPInt();
    return IntegerAttr::get(type, reduction == Reduction::Sum
                                      ? APInt::getZero(width)
                                      : bits.zext(width));
  }
  bool isSigned = isSignedInteger(dtype);
  APInt value(width, 0);
  switch (reduction) {
  case Reduction::Sum:
    break;
  case Reduction::Product:
    value = 1;
    break;
  case Reduction::Max:
    if (isSigned)
      value = APInt::getSignedMinValue(width);
    break;
  case Reduction::Min:
    value = dtype == DType::Bool ? APInt(width, 1)
            : isSigned           ? APInt::getSignedMaxValue(width)
                                 : APInt::getMaxValue(width);
    break;
  }
  return IntegerAttr::get(type, value);
}

Operand along(const Tensor &reduced, int64_t rank, ArrayRef<int64_t> dims) {
  Access access{reduced, {}};
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      access.dims.push_back(dim);
  return access;
}

/// Which zero is greater takes more instructions than the rest; in eager, too,
/// it is the order of the elements that decides which one is the result.
static Value ofEitherZero(const Scalar &extremum) {
  Value value = extremum.getValue();
  if (auto op = value.getDefiningOp();
      isa_and_nonnull<arith::MaximumFOp, arith::MinimumFOp>(op))
    op->setAttr("fastmath", arith::FastMathFlagsAttr::get(
                                value.getContext(), arith::FastMathFlags::nsz));
  return value;
}

Tensor reduce(KernelBuilder &kernel, Reduction reduction, const Tensor &in,
              ArrayRef<int64_t> dims) {
  if (dims.empty())
    return in;
  // 0 and 1 as bytes: the combiner is then one operation, without conversions.
  Tensor input = in;
  if (in.dtype == DType::Bool)
    input.dtype = DType::U8;
  TypedAttr neutral =
      neutralElement(kernel.builder().getContext(), reduction, in.dtype);
  Tensor result =
      kernel.reduce(input, dims, neutral,
                    [&](OpBuilder &builder, Location loc,
                        ValueRange values) -> SmallVector<Value> {
                      ScalarContext context{kernel, builder, loc};
                      Scalar element(context, values[0], input.dtype);
                      Scalar accumulator(context, values[1], input.dtype);
                      switch (reduction) {
                      case Reduction::Sum:
                        return {(accumulator + element).getValue()};
                      case Reduction::Product:
                        return {(accumulator * element).getValue()};
                      case Reduction::Max:
                        return {ofEitherZero(max(accumulator, element))};
                      case Reduction::Min:
                        return {ofEitherZero(min(accumulator, element))};
                      }
                      llvm_unreachable("covered switch");
                    })[0];
  result.dtype = in.dtype;
  return result;
}

SymExpr countOf(ArrayRef<SymExpr> sizes, ArrayRef<int64_t> dims) {
  SymExpr count = 1;
  for (int64_t dim : dims)
    count = count * sizes[dim];
  return count;
}

Scalar exprScalar(const SymExpr &expr, const Scalar &like) {
  if (std::optional<int64_t> constant = expr.asInteger())
    return like.constant(*constant);
  const ScalarContext &context = like.getContext();
  Value value = arith::IndexCastOp::create(context.builder, context.loc,
                                           context.builder.getI64Type(),
                                           context.kernel.size(expr));
  return Scalar(context, value, DType::I64).to(like.dtype());
}

void check(const Scalar &condition, StringRef message) {
  const ScalarContext &context = condition.getContext();
  cf::AssertOp::create(context.builder, context.loc, condition.getValue(),
                       context.builder.getStringAttr(message));
}

Scalar checkedIndex(const Scalar &index, const SymExpr &size, bool wraps,
                    StringRef message, IndexFailure failure) {
  Scalar zero = index.constant(0), end = exprScalar(size, index);
  Scalar position = wraps ? select(index < zero, index + end, index) : index;
  Scalar inside = (position >= zero) & (position < end);
  const ScalarContext &context = index.getContext();
  graph::CheckIndexOp::create(context.builder, context.loc, inside.getValue(),
                              index.getValue(), end.getValue(), message,
                              failure == IndexFailure::IndexError);
  return max(zero, min(position, end - index.constant(1)));
}

Scalar readAt(const Tensor &from, ArrayRef<Scalar> position) {
  const ScalarContext &context = position.front().getContext();
  SmallVector<Value> indices;
  for (const Scalar &index : position) {
    // A coordinate that is read unchanged stays one that can be seen through.
    auto cast = index.getValue().getDefiningOp<arith::IndexCastOp>();
    if (cast && cast.getIn().getType().isIndex())
      indices.push_back(cast.getIn());
    else
      indices.push_back(arith::IndexCastOp::create(
          context.builder, context.loc, context.builder.getIndexType(),
          index.getValue()));
  }
  Value value =
      KernelBuilder::extract(context.builder, context.loc, from, indices);
  return Scalar(context, value, from.dtype).to(computeType(from.dtype));
}

Tensor withSizes(KernelBuilder &kernel, const Tensor &in,
                 ArrayRef<SymExpr> sizes) {
  Tensor result = kernel.reshape(in, sizes);
  if (!result.value)
    kernel.decline();
  return result;
}

} // namespace intarsia::lower
