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
  if (isa_and_nonnull<arith::RemFOp>(op))
    return true;
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
         !isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::FloorOp,
              math::TruncOp, math::RoundEvenOp, math::RoundOp, math::CopySignOp,
              math::FmaOp, math::SqrtOp, math::RsqrtOp, math::IsNaNOp,
              math::IsInfOp, math::IsFiniteOp, math::IsNormalOp>(op);
}

Space Space::ofElements(ArrayRef<SymExpr> sizes) {
  Space space;
  space.sizes.assign(sizes.begin(), sizes.end());
  space.rows = space.rank();
  space.order = llvm::to_vector(llvm::seq<int64_t>(0, space.rank()));
  return space;
}

FailureOr<Space> Space::of(graph::KernelOp kernel) {
  DictionaryAttr decisions = kernel.getDecisionsAttr();
  auto sizes = decisions ? decisions.getAs<ArrayAttr>("space") : ArrayAttr();
  auto rows = decisions ? decisions.getAs<IntegerAttr>("rows") : IntegerAttr();
  if (!sizes || !rows)
    return kernel.emitError("has no iteration space: run fuse-analyse first");
  SmallVector<SymExpr> exprs;
  for (Attribute size : sizes)
    exprs.push_back(cast<graph::ExprAttr>(size).getExpr());
  Space space = ofElements(exprs);
  space.rows = rows.getInt();
  if (auto order = decisions.getAs<DenseI64ArrayAttr>("order"))
    space.order.assign(order.asArrayRef().begin(), order.asArrayRef().end());
  return space;
}

void Space::set(NamedAttrList &decisions, MLIRContext *context) const {
  Builder builder(context);
  SmallVector<Attribute> exprs;
  for (const SymExpr &size : sizes)
    exprs.push_back(graph::ExprAttr::get(context, size));
  decisions.set("space", builder.getArrayAttr(exprs));
  decisions.set("rows", builder.getI64IntegerAttr(rows));
  if (!isTrailing())
    decisions.set("order", builder.getDenseI64ArrayAttr(order));
}

SymExpr Space::rowCount() const {
  SymExpr count(1);
  for (int64_t dim : rowDims())
    count = count * sizes[dim];
  return count;
}

SymExpr Space::rowOf(ArrayRef<SymExpr> index) const {
  SmallVector<SymExpr> rowIndex, rowSizes;
  for (int64_t dim : rowDims()) {
    rowIndex.push_back(index[dim]);
    rowSizes.push_back(sizes[dim]);
  }
  return linearize(rowIndex, rowSizes);
}

bool Space::hasRowsOf(const Space &other) const {
  if (isTrailing() && other.isTrailing())
    return size() == other.size() && rowCount() == other.rowCount();
  return rows == other.rows && order == other.order && sizes == other.sizes;
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
    for (const ReassociationIndices &group :
         collapse.getReassociationIndices()) {
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

void kernel::addSizeSymbols(graph::KernelOp kernelOp) {
  std::set<std::string> names;
  auto collect = [&](TypeRange types) {
    for (Type type : types) {
      auto tensor = cast<graph::TensorType>(type);
      for (const SymExpr &expr : tensor.getSizeExprs())
        expr.collectSymbols(names);
      for (const SymExpr &expr : tensor.getStrideExprs())
        expr.collectSymbols(names);
    }
  };
  collect(kernelOp.getInputs().getTypes());
  collect(kernelOp.getResultTypes());
  SmallVector<Attribute> symbols(kernelOp.getSymbols().getValue());
  for (Attribute symbol : kernelOp.getSymbols())
    cast<graph::ExprAttr>(symbol).getExpr().collectSymbols(names);
  Builder builder(kernelOp.getContext());
  for (const std::string &name : names) {
    auto attr =
        graph::ExprAttr::get(kernelOp.getContext(), SymExpr::symbol(name));
    if (llvm::is_contained(symbols, attr))
      continue;
    symbols.push_back(attr);
    kernelOp.getBody().front().addArgument(builder.getIndexType(),
                                           kernelOp.getLoc());
  }
  kernelOp.setSymbolsAttr(builder.getArrayAttr(symbols));
}

SymExpr kernel::extentOf(graph::KernelOp kernelOp) {
  constexpr int64_t margin = int64_t(1) << 24;
  std::vector<SymExpr> most;
  auto add = [&](const SymExpr &expr) {
    if (!llvm::is_contained(most, expr))
      most.push_back(expr);
  };
  auto span = [&](Type type) {
    auto tensor = cast<graph::TensorType>(type);
    SymExpr last(1);
    for (auto [size, stride] :
         llvm::zip_equal(tensor.getSizeExprs(), tensor.getStrideExprs()))
      last = last + size * stride;
    add(last);
    add(tensor.getNumElements());
  };
  llvm::for_each(kernelOp.getInputs().getTypes(), span);
  llvm::for_each(kernelOp.getResultTypes(), span);
  kernelOp.walk([&](Operation *op) {
    if (op != kernelOp)
      for (Value result : op->getResults())
        if (isa<RankedTensorType>(result.getType()))
          add(productOf(sizesOf(result)));
  });
  for (Attribute symbol : kernelOp.getSymbols()) {
    SymExpr expr = cast<graph::ExprAttr>(symbol).getExpr();
    add(expr);
    add(SymExpr(-1) * expr);
  }
  SymExpr largest =
      most.size() == 1 ? most[0] : SymExpr::make(SymExpr::Kind::Max, most);
  return SymExpr(2) * largest + SymExpr(margin);
}

bool kernel::reduces(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0;
}

bool kernel::runs(Operation *op) {
  if (!reduces(op))
    return false;
  auto generic = cast<linalg::GenericOp>(op);
  return generic.getMatchingIndexingMap(generic.getDpsInitOperand(0))
      .isIdentity();
}

bool kernel::contains(Value tensor, bool (*isSuch)(Operation *)) {
  SmallVector<Value> work{tensor};
  SmallPtrSet<Operation *, 16> seen;
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isSuch(op))
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

std::optional<SmallVector<SymExpr>> kernel::sourceIndex(Operation *op,
                                                        ArrayRef<SymExpr> index,
                                                        const Ranges &ranges) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    SmallVector<SymExpr> source;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    size_t next = 0;
    for (auto [dim, offset, stride] :
         llvm::enumerate(slice.getMixedOffsets(), slice.getMixedStrides())) {
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

/// A size for comparisons only: what decides on speed, never on results.
static int64_t typical(const SymExpr &expr) {
  std::optional<SymValue> value =
      expr.evaluate([](const std::string &) -> std::optional<SymValue> {
        return int64_t(64);
      });
  if (const int64_t *integer = value ? std::get_if<int64_t>(&*value) : nullptr)
    return *integer;
  return 64;
}

SmallVector<int64_t> kernel::loopOrder(graph::KernelOp kernelOp,
                                       ArrayRef<SymExpr> space) {
  SmallVector<int64_t> order =
      llvm::to_vector(llvm::seq<int64_t>(0, space.size()));
  for (Value result : kernelOp.getResults()) {
    auto type = cast<graph::TensorType>(result.getType());
    if (ArrayRef(type.getSizeExprs()) != space)
      continue;
    SmallVector<SymExpr> strides = type.getStrideExprs();
    llvm::stable_sort(order, [&](int64_t a, int64_t b) {
      return typical(strides[a]) > typical(strides[b]);
    });
    break;
  }
  return order;
}
