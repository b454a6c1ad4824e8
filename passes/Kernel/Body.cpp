//===- Body.cpp - Reading the body of a kernel ----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Body.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/Body.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;
using Kind = SymExpr::Kind;

bool kernel::isDear(Operation *op) {
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
         !isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::FloorOp,
              math::TruncOp, math::RoundEvenOp, math::RoundOp,
              math::CopySignOp, math::FmaOp, math::SqrtOp, math::RsqrtOp,
              math::IsNaNOp, math::IsInfOp, math::IsFiniteOp,
              math::IsNormalOp>(op);
}

static graph::KernelOp kernelOf(Block *block) {
  return cast<graph::KernelOp>(block->getParentOp());
}

FailureOr<SymExpr> kernel::exprOfIndex(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    graph::KernelOp kernel = kernelOf(argument.getOwner());
    unsigned symbol = argument.getArgNumber() - kernel.getInputs().size();
    return cast<graph::ExprAttr>(kernel.getSymbols()[symbol]).getExpr();
  }
  Operation *op = value.getDefiningOp();
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return SymExpr(cast<IntegerAttr>(constant.getValue()).getInt());
  std::optional<Kind> kind =
      llvm::TypeSwitch<Operation *, std::optional<Kind>>(op)
          .Case<arith::AddIOp>([](auto) { return Kind::Add; })
          .Case<arith::MulIOp>([](auto) { return Kind::Mul; })
          .Case<arith::SubIOp>([](auto) { return Kind::Add; })
          .Case<arith::FloorDivSIOp, arith::DivUIOp>(
              [](auto) { return Kind::FloorDiv; })
          .Case<arith::MinSIOp, arith::MinUIOp>([](auto) { return Kind::Min; })
          .Case<arith::MaxSIOp, arith::MaxUIOp>([](auto) { return Kind::Max; })
          .Default([](auto) { return std::nullopt; });
  if (!kind)
    return failure();
  FailureOr<SymExpr> a = exprOfIndex(op->getOperand(0));
  FailureOr<SymExpr> c = exprOfIndex(op->getOperand(1));
  if (failed(a) || failed(c))
    return failure();
  if (isa<arith::SubIOp>(op))
    return *a - *c;
  return SymExpr::make(*kind, {*a, *c});
}

SymExpr kernel::exprOfFold(OpFoldResult value) {
  if (auto attr = dyn_cast<Attribute>(value))
    return SymExpr(cast<IntegerAttr>(attr).getInt());
  FailureOr<SymExpr> expr = exprOfIndex(cast<Value>(value));
  return succeeded(expr) ? *expr : SymExpr::symbol("?");
}

static SmallVector<SymExpr> exprsOf(ArrayRef<OpFoldResult> values) {
  return llvm::map_to_vector(values, exprOfFold);
}

SmallVector<SymExpr> kernel::sizesOf(Value tensor) {
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    graph::KernelOp kernel = kernelOf(argument.getOwner());
    return cast<graph::TensorType>(
               kernel.getInputs()[argument.getArgNumber()].getType())
        .getSizeExprs();
  }
  Operation *op = tensor.getDefiningOp();
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return exprsOf(empty.getMixedSizes());
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return sizesOf(
        generic.getDpsInits()[cast<OpResult>(tensor).getResultNumber()]);
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return sizesOf(fill.getDpsInits()[0]);
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    SmallVector<SymExpr> sizes;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    for (auto [dim, size] : llvm::enumerate(slice.getMixedSizes()))
      if (!dropped.test(dim))
        sizes.push_back(exprOfFold(size));
    return sizes;
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    SmallVector<SymExpr> source = sizesOf(collapse.getSrc()), sizes;
    for (const ReassociationIndices &group : collapse.getReassociationIndices()) {
      SymExpr size(1);
      for (int64_t dim : group)
        size = size * source[dim];
      sizes.push_back(size);
    }
    return sizes;
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return exprsOf(expand.getMixedOutputShape());
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    SmallVector<SymExpr> sizes = sizesOf(concat.getInputs()[0]);
    for (Value input : concat.getInputs().drop_front())
      sizes[concat.getDim()] =
          sizes[concat.getDim()] + sizesOf(input)[concat.getDim()];
    return sizes;
  }
  if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    SmallVector<SymExpr> sizes = sizesOf(pad.getSource());
    for (auto [size, low, high] :
         llvm::zip_equal(sizes, pad.getMixedLowPad(), pad.getMixedHighPad()))
      size = size + exprOfFold(low) + exprOfFold(high);
    return sizes;
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return sizesOf(cast.getSource());
  if (auto type = dyn_cast<RankedTensorType>(tensor.getType());
      type && type.hasStaticShape())
    return llvm::map_to_vector(type.getShape(),
                               [](int64_t size) { return SymExpr(size); });
  llvm_unreachable("a tensor outside the kernel language");
}

bool kernel::reduces(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0;
}

bool kernel::containsReduction(Value tensor) {
  SmallVector<Value> work{tensor};
  SmallPtrSet<Operation *, 16> seen;
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (reduces(op))
      return true;
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        work.push_back(operand);
    op->walk([&](tensor::ExtractOp extract) {
      work.push_back(extract.getTensor());
    });
  }
  return false;
}

std::optional<SmallVector<SymExpr>>
kernel::sourceIndex(Operation *op, ArrayRef<SymExpr> index, const Ranges &ranges) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    SmallVector<SymExpr> source;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    size_t next = 0;
    for (auto [dim, offset, stride] : llvm::enumerate(
             slice.getMixedOffsets(), slice.getMixedStrides())) {
      SymExpr position = exprOfFold(offset);
      if (!dropped.test(dim))
        position = position + index[next++] * exprOfFold(stride);
      source.push_back(position);
    }
    return source;
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    SmallVector<SymExpr> sizes = sizesOf(collapse.getSrc());
    SmallVector<SymExpr> source(sizes.size());
    for (auto [group, position] :
         llvm::zip_equal(collapse.getReassociationIndices(), index)) {
      SmallVector<SymExpr> groupSizes;
      for (int64_t dim : group)
        groupSizes.push_back(sizes[dim]);
      SmallVector<SymExpr> parts = delinearize(position, groupSizes, ranges);
      for (auto [dim, part] : llvm::zip_equal(group, parts))
        source[dim] = part;
    }
    return source;
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    SmallVector<SymExpr> sizes = sizesOf(expand.getResult());
    SmallVector<SymExpr> source;
    for (const ReassociationIndices &group : expand.getReassociationIndices()) {
      SmallVector<SymExpr> part, partSizes;
      for (int64_t dim : group) {
        part.push_back(index[dim]);
        partSizes.push_back(sizes[dim]);
      }
      source.push_back(linearize(part, partSizes));
    }
    return source;
  }
  if (isa<tensor::CastOp>(op))
    return SmallVector<SymExpr>(index);
  return std::nullopt;
}

SmallVector<SymExpr> kernel::applyMap(AffineMap map, ArrayRef<SymExpr> index) {
  SmallVector<SymExpr> result;
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      result.push_back(index[dim.getPosition()]);
    else
      result.push_back(SymExpr(cast<AffineConstantExpr>(expr).getValue()));
  }
  return result;
}
