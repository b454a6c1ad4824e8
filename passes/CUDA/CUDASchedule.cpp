//===- CUDASchedule.cpp - Decide what a thread computes -------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cuda-schedule`: how many threads share a row, which threads, how
// many elements a thread moves at once, and the geometry of the launch. All of
// it is written on the kernel as `decisions`; code generation only reads them.
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

#include <limits>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CUDASCHEDULE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Threads of a block: where each has elements or rows of its own, where teams
/// share rows. Rows of one thread are few or long: smaller blocks spread them
/// over more multiprocessors.
constexpr int64_t elementThreads = 256, rowThreads = 64, teamThreads = 256;
/// Where a few blocks are all that there is.
constexpr int64_t largeTeam = 512, fewRows = 128;
/// Rows up to the first length are one thread's work, to the second a warp's.
constexpr int64_t threadLength = 4, warpLength = 1024;
/// Threads of a block that share one of its 32 columns.
constexpr int64_t columnTeam = 8;

/// Bytes that a thread moves at once, at most, and elements.
constexpr int64_t vectorBytes = 16, mostLanes = 8;
/// Fewer elements than fill a GPU are rather spread over more threads.
constexpr int64_t fewElements = 1 << 14;

SymExpr sizeAlong(const Space &space, ArrayRef<int64_t> dims) {
  return productOf(
      llvm::map_to_vector(dims, [&](int64_t dim) { return space.sizes[dim]; }));
}

SymExpr ceilDiv(const SymExpr &count, int64_t size) {
  if (size == 1)
    return count;
  return SymExpr::make(SymExpr::Kind::FloorDiv,
                       {count + SymExpr(size - 1), SymExpr(size)});
}

/// Elements that a thread of an elementwise kernel has at a time.
int64_t lanesOf(graph::KernelOp kernelOp, const Space &space,
                ArrayRef<int64_t> order) {
  std::optional<int64_t> size = space.size().asInteger();
  if (size && *size < fewElements)
    return 1;
  // What gathers, or computes a row for an element, gains nothing.
  WalkResult gathers = kernelOp.walk([](Operation *op) {
    return isa<tensor::ExtractOp>(op) || reduces(op) ? WalkResult::interrupt()
                                                     : WalkResult::advance();
  });
  if (gathers.wasInterrupted())
    return 1;
  SmallVector<SymExpr> sizes, strides(space.rank());
  for (int64_t dim : order)
    sizes.push_back(space.sizes[dim]);
  for (auto [dim, stride] :
       llvm::zip_equal(order, graph::contiguousStrides(sizes)))
    strides[dim] = stride;
  int64_t widest = 0;
  auto see = [&](Type type) {
    auto tensor = cast<graph::TensorType>(type);
    bool isLaid = tensor.getSizeExprs() == space.sizes &&
                  tensor.getStrideExprs() == strides;
    if (isLaid)
      widest = std::max<int64_t>(widest, dtypeSize(tensor.getDtype()));
    return isLaid;
  };
  bool laid = llvm::all_of(kernelOp.getResultTypes(), see);
  for (Type type : kernelOp.getInputs().getTypes())
    see(type);
  return laid ? std::clamp<int64_t>(vectorBytes / widest, 1, mostLanes) : 1;
}

/// The side of the squares that are transposed: a warp's threads. A dimension
/// of fewer elements would leave most of a square empty.
constexpr int64_t squareSide = warpThreads, fewestInSquare = 16;

/// The dimensions of an elementwise kernel whose tensors don't all lie along
/// the same one, `order` being that of the results: those that the squares'
/// columns are along, those of the rows, along which others lie, and the rest.
struct Square {
  SmallVector<int64_t> outer, rows, columns;
};

FailureOr<std::optional<Square>> squareOf(graph::KernelOp kernelOp,
                                          const Space &space,
                                          ArrayRef<int64_t> order) {
  SmallVector<int64_t> dims = llvm::filter_to_vector(
      order, [&](int64_t dim) { return !space.sizes[dim].isInteger(1); });
  if (dims.size() < 2 || llvm::any_of(kernelOp.getBody().front(),
                                      [](auto &op) { return reduces(&op); }))
    return std::optional<Square>();
  Schedule plan;
  for (int64_t dim : order) {
    plan.loops.push_back(space.sizes[dim]);
    plan.dims.push_back({dim});
  }
  plan.rowLoops = space.rank();
  FailureOr<Observations> seen = observeTrial(kernelOp, plan);
  if (failed(seen))
    return failure();
  std::map<int64_t, std::string> symbols;
  for (auto [loop, dim] : llvm::enumerate(order))
    symbols[dim] = "i" + std::to_string(loop);
  auto stride = [&](const SymExpr &offset, int64_t dim) {
    return strideAlong(offset, symbols[dim]);
  };
  // Which most tensors lie along that do not lie along the last.
  size_t rowDim = 0;
  int64_t most = 0;
  for (size_t dim = 0; dim + 1 < dims.size(); ++dim) {
    int64_t count = llvm::count_if(seen->offsets, [&](const SymExpr &offset) {
      std::optional<SymExpr> across = stride(offset, dims[dim]);
      std::optional<SymExpr> along = stride(offset, dims.back());
      return across && across->isInteger(1) && along && !along->isInteger(0) &&
             !along->isInteger(1);
    });
    if (count > most)
      most = count, rowDim = dim;
  }
  if (most == 0)
    return std::optional<Square>();
  // A dimension is one with the next where all tensors have them as one.
  auto isOne = [&](size_t dim) {
    return llvm::all_of(seen->offsets, [&](const SymExpr &offset) {
      std::optional<SymExpr> step = stride(offset, dims[dim]);
      std::optional<SymExpr> next = stride(offset, dims[dim + 1]);
      return step && next && *step == *next * space.sizes[dims[dim + 1]];
    });
  };
  size_t rowBegin = rowDim, columnBegin = dims.size() - 1;
  while (rowBegin > 0 && isOne(rowBegin - 1))
    --rowBegin;
  while (columnBegin > rowDim + 1 && isOne(columnBegin - 1))
    --columnBegin;
  Square square;
  square.rows.assign(dims.begin() + rowBegin, dims.begin() + rowDim + 1);
  square.columns.assign(dims.begin() + columnBegin, dims.end());
  for (int64_t dim : order)
    if (!llvm::is_contained(square.rows, dim) &&
        !llvm::is_contained(square.columns, dim))
      square.outer.push_back(dim);
  for (ArrayRef<int64_t> side :
       {ArrayRef(square.rows), ArrayRef(square.columns)})
    if (sizeAlong(space, side).asInteger().value_or(squareSide) <
        fewestInSquare)
      return std::optional<Square>();
  return std::optional<Square>(std::move(square));
}

struct Team {
  int64_t size = 1;
  bool across = false;
  int64_t threads = rowThreads;
};

/// Who computes a row: seen by the positions that come up, whether memory runs
/// along the rows or across them.
FailureOr<Team> teamOf(graph::KernelOp kernelOp, const Space &space,
                       bool storesRows) {
  bool isRunning = llvm::any_of(kernelOp.getBody().front(),
                                [](Operation &op) { return runs(&op); });
  Schedule plan;
  for (int64_t dim : space.order) {
    plan.loops.push_back(space.sizes[dim]);
    plan.dims.push_back({dim});
  }
  plan.rowLoops = space.rows;
  plan.vectorRoots = storesRows;
  FailureOr<Observations> observed = observeTrial(kernelOp, plan);
  if (failed(observed))
    return failure();
  const Observations &seen = *observed;
  std::set<std::string> along;
  if (storesRows)
    along.insert("v");
  for (const auto &[op, loops] : seen.reductions)
    if (!loops.empty())
      along.insert(loops.back().symbol);
  std::string row = "i" + std::to_string(space.rows - 1);
  int64_t alongCount = 0, acrossCount = 0;
  for (const SymExpr &offset : seen.offsets) {
    auto steps = [&](const std::string &symbol) {
      std::optional<SymExpr> stride = strideAlong(offset, symbol);
      return stride && stride->isInteger(1);
    };
    alongCount += llvm::any_of(along, steps);
    acrossCount += space.rows > 0 && steps(row);
  }

  // A team divides all of a reduction among its threads.
  for (const auto &[op, loops] : seen.reductions) {
    SmallVector<int64_t> together;
    for (const auto &loop : ArrayRef(loops).drop_front(!loops.empty()))
      together.push_back(loop.loop);
    if (!together.empty())
      op->setAttr(mergedAttrName,
                  Builder(op->getContext()).getDenseI64ArrayAttr(together));
  }

  std::optional<int64_t> length =
      sizeAlong(space, space.innerDims()).asInteger();
  std::optional<int64_t> count = space.rowCount().asInteger();
  // What runs along a row is passed on within a warp. Where memory runs across
  // the rows, a thread each has them side by side.
  if (isRunning)
    return acrossCount > alongCount || (length && *length <= threadLength) ||
                   space.innerDims().size() != 1
               ? Team()
               : Team{warpThreads, false, teamThreads};
  if (acrossCount > alongCount) {
    if (length && *length <= columnTeam)
      return Team();
    return Team{columnTeam, true, columnTeam * warpThreads};
  }
  if (length && *length <= threadLength)
    return Team();
  if (length && *length <= warpLength)
    return Team{warpThreads, false, teamThreads};
  int64_t threads = count && *count <= fewRows ? largeTeam : teamThreads;
  return Team{threads, false, threads};
}

LogicalResult schedule(graph::KernelOp kernelOp) {
  MLIRContext *context = kernelOp.getContext();
  Builder builder(context);
  FailureOr<Space> space = Space::of(kernelOp);
  if (failed(space))
    return failure();
  bool pure = space->isElementwise();
  addSizeSymbols(kernelOp);
  bool storesRows = llvm::any_of(kernelOp.getResults(), [&](Value result) {
    return cast<graph::TensorType>(result.getType()).getNumElements() ==
           space->size();
  });

  Team team;
  int64_t lanes = 1;
  SmallVector<int64_t> outer(space->rowDims());
  std::optional<Square> square;
  if (pure) {
    outer = loopOrder(kernelOp, space->sizes);
    FailureOr<std::optional<Square>> decided =
        squareOf(kernelOp, *space, outer);
    if (failed(decided))
      return failure();
    square = *decided;
    lanes = square ? 1 : lanesOf(kernelOp, *space, outer);
  } else {
    FailureOr<Team> decided = teamOf(kernelOp, *space, storesRows);
    if (failed(decided))
      return failure();
    team = *decided;
  }

  // All rows are one loop. A row is one for a team, else each of its
  // dimensions.
  ArrayRef<int64_t> inner = space->innerDims();
  SmallVector<Attribute> loops;
  SymExpr domain = space->rowCount();
  if (square) {
    for (ArrayRef<int64_t> dims :
         {ArrayRef(square->outer), ArrayRef(square->rows),
          ArrayRef(square->columns)})
      if (!dims.empty())
        loops.push_back(builder.getDenseI64ArrayAttr(dims));
    domain = sizeAlong(*space, square->outer) *
             ceilDiv(sizeAlong(*space, square->rows), squareSide) *
             ceilDiv(sizeAlong(*space, square->columns), squareSide);
  } else if (!outer.empty() || pure) {
    loops.push_back(builder.getDenseI64ArrayAttr(outer));
  }
  if (team.size > 1) {
    loops.push_back(builder.getDenseI64ArrayAttr(inner));
  } else {
    for (int64_t dim : inner)
      loops.push_back(builder.getDenseI64ArrayAttr({dim}));
  }

  NamedAttrList decisions(kernelOp.getDecisionsAttr());
  decisions.set("loops", builder.getArrayAttr(loops));
  decisions.set("row_loops",
                builder.getI64IntegerAttr(pure || outer.empty() ? 0 : 1));
  if (square)
    decisions.set("square", builder.getI64IntegerAttr(squareSide));
  else if (pure)
    decisions.set("flat", builder.getUnitAttr());
  else if (storesRows)
    decisions.set("vector_roots", builder.getUnitAttr());
  decisions.set("lanes", builder.getI64IntegerAttr(lanes));
  decisions.set("tail_lanes", builder.getI64IntegerAttr(1));
  decisions.set("domain", graph::ExprAttr::get(context, domain));
  int64_t threads = square ? squareWarps * warpThreads
                    : pure ? elementThreads
                           : team.threads;
  decisions.set("threads", builder.getI64IntegerAttr(threads));
  if (team.size > 1)
    decisions.set("team", builder.getI64IntegerAttr(team.size));
  if (team.across)
    decisions.set("across", builder.getUnitAttr());
  // Blocks for all of the domain, each with one turn.
  int64_t turn = square        ? 1
                 : team.across ? warpThreads
                               : lanes * threads / team.size;
  decisions.set("grid", graph::ExprAttr::get(context, ceilDiv(domain, turn)));
  SymExpr extent = extentOf(kernelOp);
  std::optional<int64_t> known = extent.asInteger();
  if (!known || *known <= std::numeric_limits<int32_t>::max())
    decisions.set("narrow", builder.getUnitAttr());
  if (!known)
    decisions.set("wide",
                  builder.getDictionaryAttr(builder.getNamedAttr(
                      "extent", graph::ExprAttr::get(context, extent))));
  kernelOp.setDecisionsAttr(decisions.getDictionary(context));
  return success();
}

class CUDASchedule final
    : public ::intarsia::impl::CUDAScheduleBase<CUDASchedule> {
public:
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](graph::KernelOp kernelOp) {
      if (hasCode(kernelOp))
        return WalkResult::advance();
      return failed(schedule(kernelOp)) ? WalkResult::interrupt()
                                        : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
