//===- CPUSchedule.cpp - Decide how each kernel becomes loops -------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cpu-schedule`: which dimensions become one loop, which loop runs
// along vector lanes, which loops PyTorch's thread pool divides, how many lanes
// and what is kept in scratch memory. All of it is written on the kernel as
// `decisions`; code generation only reads them.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/CPUShell.h"
#include "passes/Kernel/EmitKernels.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CPUSCHEDULE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Work, in elements of simple arithmetic, that is worth a thread; a
/// transcendental operation counts for several. Measured with two threads,
/// which cost 3 us: what takes them gains from 50,000 elements of a sum or a
/// GELU on, and from 20,000 of a softmax.
constexpr int64_t grainElements = 32768;

/// Rows of a block whose operands are packed, and elements of it.
constexpr int64_t leastPackedRows = 16, mostPackedRows = 64;
constexpr int64_t packedElements = int64_t(1) << 18;

class CPUSchedule final
    : public ::intarsia::impl::CPUScheduleBase<CPUSchedule> {
public:
  using CPUScheduleBase::CPUScheduleBase;
  void runOnOperation() override {
    if (vectorBits < 32 || vectorBits > 2048 ||
        !llvm::isPowerOf2_64(vectorBits)) {
      getOperation().emitError("cpu-schedule: the option vector-bits is ")
          << int64_t(vectorBits)
          << "; a power of two from 32 to 2048 is a vector";
      return signalPassFailure();
    }
    WalkResult result = getOperation().walk([&](graph::KernelOp kernelOp) {
      if (kernel::deviceOf(kernelOp) != "cpu")
        return WalkResult::advance();
      return failed(schedule(kernelOp)) ? WalkResult::interrupt()
                                        : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  /// Where lanes run in a kernel that reduces: along rows that lie side by
  /// side, or along a row.
  enum class Lanes { AsDimensions, AlongRow, AcrossRows };
  /// Across the rows, they run along the dimension `across`.
  LogicalResult schedule(graph::KernelOp kernelOp,
                         Lanes direction = Lanes::AsDimensions,
                         int64_t across = -1);
};

/// True if the loops over `outer` and `inner` (of size `size`) can be one:
/// every position moves along both as along one.
bool canMerge(const Observations &seen, const std::string &outer,
              const std::string &inner, const SymExpr &size) {
  for (const SymExpr &position : seen.conditions)
    if (dependsOn(position, outer) || dependsOn(position, inner))
      return false;
  return llvm::all_of(seen.offsets, [&](const SymExpr &offset) {
    std::optional<SymExpr> outerStride = strideAlong(offset, outer);
    std::optional<SymExpr> innerStride = strideAlong(offset, inner);
    return outerStride && innerStride && *outerStride == *innerStride * size;
  });
}

/// True if something is read along the innermost loop of a reduction and across
/// the lanes.
bool readsAcrossLanes(const Observations &seen) {
  return llvm::any_of(seen.reductions, [&](const auto &reduction) {
    return llvm::any_of(seen.offsets, [&](const SymExpr &offset) {
      std::optional<SymExpr> along =
          strideAlong(offset, reduction.second.back().symbol);
      std::optional<SymExpr> across = strideAlong(offset, "v");
      return along && along->isInteger(1) && across && !across->isInteger(0) &&
             !across->isInteger(1);
    });
  });
}

/// Elements between what is read of a row and of the next one that may be on
/// another page.
constexpr int64_t farElements = 256;

/// True if a reduction over many rows reads a piece of each, far apart.
bool readsFarApart(const Observations &seen) {
  return llvm::any_of(seen.reductions, [&](const auto &reduction) {
    SymExpr rows(1);
    for (const Observations::ReductionLoop &loop : reduction.second)
      rows = rows * loop.extent;
    if (rows.asInteger().value_or(tiledRows) < tiledRows)
      return false;
    return llvm::any_of(seen.offsets, [&](const SymExpr &offset) {
      std::optional<SymExpr> along =
          strideAlong(offset, reduction.second.back().symbol);
      std::optional<SymExpr> across = strideAlong(offset, "v");
      return along && along->asInteger().value_or(farElements) >= farElements &&
             across && across->isInteger(1);
    });
  });
}

/// The fewest elements of a piece that is worth a loop of its own.
constexpr int64_t leastPiece = 16;
/// Extents whose bytes, too, have 32 bits.
constexpr int64_t narrowExtent = int64_t(1) << 27;

/// What is read along "v", which has `size` elements, may begin again after so
/// many: as a loop of its own, each piece is read as it lies.
std::optional<SymExpr> pieceOf(const Observations &seen, const SymExpr &size) {
  SymExpr lanes = SymExpr::symbol("v");
  std::optional<SymExpr> longest;
  std::function<void(const SymExpr &)> visit = [&](const SymExpr &expr) {
    llvm::for_each(expr.operands(), visit);
    bool divides = expr.kind() == SymExpr::Kind::FloorDiv ||
                   expr.kind() == SymExpr::Kind::Mod;
    if (!divides || *expr.operands().begin() != lanes)
      return;
    const SymExpr &length = *(expr.operands().begin() + 1);
    std::optional<int64_t> known = length.asInteger();
    SymExpr count = SymExpr::make(SymExpr::Kind::FloorDiv, {size, length});
    if (dependsOn(length, "v") || known.value_or(leastPiece) < leastPiece ||
        count * length != size)
      return;
    if (!longest || known.value_or(0) > longest->asInteger().value_or(0))
      longest = length;
  };
  llvm::for_each(seen.offsets, visit);
  llvm::for_each(seen.conditions, visit);
  return longest;
}

/// Whether lanes are at positions that have no common step.
bool gathers(const Observations &seen) {
  return llvm::any_of(seen.offsets, [](const SymExpr &offset) {
    return !strideAlong(offset, "v");
  });
}

/// Whether memory is read or written along one of these loops as it lies.
bool runsAlong(const Observations &seen, const std::set<std::string> &loops) {
  return llvm::any_of(seen.offsets, [&](const SymExpr &offset) {
    return llvm::any_of(loops, [&](const std::string &loop) {
      std::optional<SymExpr> stride = strideAlong(offset, loop);
      return stride && stride->isInteger(1);
    });
  });
}

LogicalResult CPUSchedule::schedule(graph::KernelOp kernelOp, Lanes direction,
                                    int64_t across) {
  MLIRContext *context = kernelOp.getContext();
  Builder builder(context);
  FailureOr<Space> decidedSpace = Space::of(kernelOp);
  if (failed(decidedSpace))
    return failure();
  const Space &space = *decidedSpace;
  int64_t rank = space.rank(), rows = space.rows;
  bool pure = space.isElementwise();

  addSizeSymbols(kernelOp);

  SmallVector<int64_t> order =
      pure ? loopOrder(kernelOp, space.sizes) : space.order;
  bool hasFullRoot = llvm::any_of(kernelOp.getResults(), [&](Value result) {
    return cast<graph::TensorType>(result.getType()).getNumElements() ==
           space.size();
  });
  // Rows lie side by side when the innermost dimension is one of theirs.
  bool columns = direction == Lanes::AcrossRows;
  if (direction == Lanes::AsDimensions && !pure)
    for (int64_t dim : llvm::seq<int64_t>(0, rank))
      if (!space.sizes[dim].isInteger(1))
        columns = llvm::is_contained(space.rowDims(), dim);
  if (across >= 0) {
    order.erase(llvm::find(order, across));
    order.insert(order.begin() + rows - 1, across);
  }
  // What is carried from one element to the next leaves lanes to the rows, even
  // to rows that lie apart if it is dear.
  bool isCarried = false;
  for (Operation &op : kernelOp.getBody().front())
    if (runs(&op)) {
      isCarried = true;
      op.walk([&](Operation *inner) { columns |= rows > 0 && isDear(inner); });
    }

  Schedule plan;
  for (int64_t dim : order) {
    plan.loops.push_back(space.sizes[dim]);
    plan.dims.push_back({dim});
  }
  plan.columns = columns;
  plan.rowLoops = pure      ? std::max<int64_t>(rank - 1, 0)
                  : columns ? rows - 1
                            : rows;
  plan.vectorRoots = rank > 0 && (pure || (hasFullRoot && !isCarried));
  plan.lanes = plan.tailLanes = 4;

  // See what positions come up.
  FailureOr<Observations> observed = observeTrial(kernelOp, plan);
  if (failed(observed))
    return failure();
  const Observations &seen = *observed;
  // Lanes along the reduction read that as it lies, and what lies side by side
  // is packed; of many rows far apart it is that which lies along them.
  bool mayTurn = direction == Lanes::AsDimensions && !pure && !isCarried;
  bool isAcross = columns && !hasFullRoot && readsAcrossLanes(seen);
  bool isFar = columns && !hasFullRoot && !isCarried && readsFarApart(seen);
  if (isAcross && !isFar && mayTurn)
    return schedule(kernelOp, Lanes::AlongRow);
  // Memory may lie otherwise than the dimensions do.
  if (mayTurn && rows > 0) {
    std::set<std::string> inside;
    for (int64_t loop = rows; loop < rank; ++loop)
      inside.insert(plan.vectorRoots && !columns && loop + 1 == rank
                        ? std::string("v")
                        : "i" + std::to_string(loop));
    for (const auto &[op, loops] : seen.reductions)
      for (const Observations::ReductionLoop &loop : loops)
        inside.insert(loop.symbol);
    bool isAlongRow = runsAlong(seen, inside);
    if (columns && isAlongRow && !runsAlong(seen, {"v"}))
      return schedule(kernelOp, Lanes::AlongRow);
    for (int64_t loop = 0; loop < rows && !columns && !isAlongRow; ++loop)
      if (runsAlong(seen, {"i" + std::to_string(loop)}))
        return schedule(kernelOp, Lanes::AcrossRows, order[loop]);
  }

  // What is read in pieces along the last dimension makes it two.
  if (pure && rank > 0 && llvm::is_sorted(order))
    if (std::optional<SymExpr> piece = pieceOf(seen, space.sizes.back())) {
      SmallVector<SymExpr> sizes = space.sizes;
      sizes.back() =
          SymExpr::make(SymExpr::Kind::FloorDiv, {sizes.back(), *piece});
      sizes.push_back(*piece);
      NamedAttrList decisions(kernelOp.getDecisionsAttr());
      Space::ofElements(sizes).set(decisions, context);
      kernelOp.setDecisionsAttr(decisions.getDictionary(context));
      return schedule(kernelOp);
    }

  // One loop for what lies one after the other, rows and the rest apart.
  int64_t laneLoop = columns ? rows - 1 : plan.vectorRoots ? rank - 1 : -1;
  auto symbolOf = [&](int64_t loop) {
    return loop == laneLoop ? std::string("v") : "i" + std::to_string(loop);
  };
  SmallVector<SmallVector<int64_t>> loops;
  int64_t rowLoops = 0;
  for (int64_t loop = 0; loop < rank; ++loop) {
    bool startsInner = !pure && loop == rows;
    bool extends =
        !loops.empty() && !startsInner &&
        canMerge(seen, symbolOf(loop - 1), symbolOf(loop), plan.loops[loop]);
    // Whether a row is one loop or several matters to nobody unless results
    // are stored along it.
    if (!pure && loop > rows && !plan.vectorRoots)
      extends = true;
    if (extends)
      loops.back().push_back(order[loop]);
    else
      loops.push_back({order[loop]});
    if (pure || loop < rows)
      rowLoops = loops.size();
  }
  // The loop along lanes is not one of those around it.
  if ((pure && !loops.empty()) || columns)
    --rowLoops;
  bool flat = rowLoops == 0 && (columns || (pure && loops.size() == 1));

  auto sizeOf = [&](ArrayRef<int64_t> dims) {
    SymExpr size(1);
    for (int64_t dim : dims)
      size = size * space.sizes[dim];
    return size;
  };

  // Lanes: four vectors at once hide the latency of arithmetic. Registers of
  // one float have none. A complex number of 128 bits takes four registers.
  bool hasWide = false;
  kernelOp->walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      hasWide |= getElementTypeOrSelf(type).isInteger(128);
  });
  int64_t tail = std::max<int64_t>(vectorBits / 32, 1);
  int64_t lanes = tail == 1 ? 1 : (hasWide ? 2 : 4) * tail;
  if (!loops.empty() && !flat) {
    std::optional<int64_t> extent =
        sizeOf(columns ? loops[rowLoops] : loops.back()).asInteger();
    while (extent && lanes > 2 && *extent <= lanes / 2)
      lanes /= 2;
    tail = std::min(tail, lanes);
  }

  // A reduction's loops, too, are one where they lie one after the other.
  std::map<Operation *, SmallVector<int64_t>> merged;
  for (const auto &[op, loops] : seen.reductions) {
    SmallVector<int64_t> together;
    for (size_t inner = 1; inner < loops.size(); ++inner)
      if (canMerge(seen, loops[inner - 1].symbol, loops[inner].symbol,
                   loops[inner].extent))
        together.push_back(loops[inner].loop);
    auto [found, isNew] = merged.try_emplace(op, together);
    if (!isNew)
      llvm::erase_if(found->second, [&](int64_t loop) {
        return !llvm::is_contained(together, loop);
      });
  }
  for (auto &[op, loops] : merged)
    if (!loops.empty())
      op->setAttr(mergedAttrName, builder.getDenseI64ArrayAttr(loops));

  for (const auto &entry : seen.dearValues)
    if (entry.second.loops.size() > 1)
      entry.second.op->setAttr(cachedAttrName, builder.getUnitAttr());

  // Lanes that run across memory along which rows run.
  bool packs = false;
  if (rowLoops > 0 && !columns && lanes > 1) {
    std::set<std::string> along;
    if (plan.vectorRoots)
      along.insert("v");
    for (const auto &[op, loops] : seen.reductions)
      along.insert(loops.back().symbol);
    int64_t rowDims = 0;
    for (ArrayRef<int64_t> dims : ArrayRef(loops).take_front(rowLoops))
      rowDims += dims.size();
    std::string row = symbolOf(rowDims - 1);
    packs = llvm::any_of(seen.offsets, [&](const SymExpr &offset) {
      std::optional<SymExpr> across = strideAlong(offset, row);
      return across && across->isInteger(1) &&
             llvm::any_of(along, [&](const std::string &lane) {
               std::optional<SymExpr> stride = strideAlong(offset, lane);
               return stride && !stride->isInteger(0) && !stride->isInteger(1);
             });
    });
  }

  SymExpr domain(1), inner(1);
  for (auto [loop, dims] : llvm::enumerate(loops)) {
    bool isParallel = static_cast<int64_t>(loop) < (flat ? 1 : rowLoops);
    SymExpr &part = isParallel ? domain : inner;
    part = part * sizeOf(dims);
  }
  int64_t work = std::max<int64_t>(grainElements / (1 + seen.dearOps), 1);
  SymExpr grain = SymExpr::make(
      SymExpr::Kind::Max,
      {SymExpr(1),
       SymExpr::make(SymExpr::Kind::FloorDiv,
                     {SymExpr(work), SymExpr::make(SymExpr::Kind::Max,
                                                   {SymExpr(1), inner})})});

  // Whole lines are read across the rows, and the more of one place at once the
  // better, while a block fits into the second cache.
  auto limited = [](SymExpr::Kind kind, int64_t limit, const SymExpr &value) {
    return SymExpr::make(kind, {SymExpr(limit), value});
  };
  SymExpr blockRows;
  bool tiles = isFar && lanes > 1;
  if (tiles && isAcross) {
    packs = true;
    blockRows = SymExpr(mostPackedRows);
  } else if (packs) {
    SymExpr fitting = SymExpr::make(
        SymExpr::Kind::FloorDiv,
        {SymExpr(packedElements), limited(SymExpr::Kind::Max, 1, inner)});
    blockRows = limited(SymExpr::Kind::Max, leastPackedRows,
                        limited(SymExpr::Kind::Min, mostPackedRows, fitting));
    grain = limited(SymExpr::Kind::Max, leastPackedRows, grain);
  }

  NamedAttrList decisions(kernelOp.getDecisionsAttr());
  SmallVector<Attribute> loopAttrs;
  for (ArrayRef<int64_t> dims : loops)
    loopAttrs.push_back(builder.getDenseI64ArrayAttr(dims));
  decisions.set("loops", builder.getArrayAttr(loopAttrs));
  decisions.set("row_loops", builder.getI64IntegerAttr(rowLoops));
  if (flat)
    decisions.set("flat", builder.getUnitAttr());
  if (columns)
    decisions.set("columns", builder.getUnitAttr());
  if (tiles)
    decisions.set("tiles", builder.getUnitAttr());
  if (plan.vectorRoots)
    decisions.set("vector_roots", builder.getUnitAttr());
  if (packs)
    decisions.set("packs", graph::ExprAttr::get(context, blockRows));
  // What may be too large for the caches.
  SmallVector<int64_t> streams;
  for (OpResult result : kernelOp->getResults()) {
    auto type = cast<graph::TensorType>(result.getType());
    std::optional<int64_t> elements = type.getNumElements().asInteger();
    if (!elements || *elements * dtypeSize(type.getDtype()) >= streamBytes)
      streams.push_back(result.getResultNumber());
  }
  if (plan.vectorRoots && !streams.empty())
    decisions.set("streams", builder.getDenseI64ArrayAttr(streams));
  // Twice as many positions are in a vector then.
  if (pure && !packs && gathers(seen) &&
      extentOf(kernelOp).asInteger().value_or(narrowExtent) < narrowExtent)
    decisions.set("narrow", builder.getUnitAttr());
  decisions.set("lanes", builder.getI64IntegerAttr(lanes));
  decisions.set("tail_lanes", builder.getI64IntegerAttr(tail));
  decisions.set("domain", graph::ExprAttr::get(context, domain));
  decisions.set("grain", graph::ExprAttr::get(context, grain));
  kernelOp.setDecisionsAttr(decisions.getDictionary(context));
  return success();
}

} // namespace
