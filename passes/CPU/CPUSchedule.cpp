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

#include "passes/CPU/KernelEmitter.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::cpu;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CPUSCHEDULE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// A size for comparisons only: what decides on speed, never on results.
int64_t typical(const SymExpr &expr) {
  std::optional<SymValue> value = expr.evaluate(
      [](const std::string &) -> std::optional<SymValue> { return int64_t(64); });
  if (const int64_t *integer = value ? std::get_if<int64_t>(&*value) : nullptr)
    return *integer;
  return 64;
}

/// Work, in elements of simple arithmetic, that is worth a thread: PyTorch's
/// own grain size; a transcendental operation counts for several.
constexpr int64_t grainElements = 32768;

class CPUSchedule final : public ::intarsia::impl::CPUScheduleBase<CPUSchedule> {
public:
  using CPUScheduleBase::CPUScheduleBase;
  void runOnOperation() override {
    WalkResult result = getOperation().walk([&](graph::KernelOp kernelOp) {
      return failed(schedule(kernelOp)) ? WalkResult::interrupt()
                                      : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  LogicalResult schedule(graph::KernelOp kernelOp);
};

/// The dimensions in loop order: as the first result lies in memory.
SmallVector<int64_t> loopOrder(graph::KernelOp kernelOp,
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

/// True if the loops over `outer` and `inner` (of size `size`) can be one: every
/// position moves along both as along one.
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

LogicalResult CPUSchedule::schedule(graph::KernelOp kernelOp) {
  MLIRContext *context = kernelOp.getContext();
  Builder builder(context);
  DictionaryAttr decided = kernelOp.getDecisionsAttr();
  if (!decided || !decided.contains("space"))
    return kernelOp.emitError("has no iteration space: run fuse-analyse first");
  SmallVector<SymExpr> space;
  for (Attribute size : cast<ArrayAttr>(decided.get("space")))
    space.push_back(cast<graph::ExprAttr>(size).getExpr());
  int64_t rank = space.size();
  int64_t rows = cast<IntegerAttr>(decided.get("rows")).getInt();
  bool pure = rows == rank;

  // Every size symbol must be an argument of its own.
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
  for (const std::string &name : names) {
    auto attr = graph::ExprAttr::get(context, SymExpr::symbol(name));
    if (!llvm::is_contained(symbols, attr)) {
      symbols.push_back(attr);
      kernelOp.getBody().front().addArgument(builder.getIndexType(),
                                           kernelOp.getLoc());
    }
  }
  kernelOp.setSymbolsAttr(builder.getArrayAttr(symbols));

  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (pure)
    order = loopOrder(kernelOp, space);

  SymExpr spaceSize(1), rowSize(1);
  for (auto [dim, size] : llvm::enumerate(space)) {
    spaceSize = spaceSize * size;
    if (static_cast<int64_t>(dim) < rows)
      rowSize = rowSize * size;
  }
  bool hasFullRoot = llvm::any_of(kernelOp.getResults(), [&](Value result) {
    return cast<graph::TensorType>(result.getType()).getNumElements() ==
           spaceSize;
  });

  Schedule plan;
  plan.trial = true;
  for (int64_t dim : order) {
    plan.loops.push_back(space[dim]);
    plan.dims.push_back({dim});
  }
  plan.rowLoops = pure ? std::max<int64_t>(rank - 1, 0) : rows;
  plan.vectorRoots = rank > 0 && (pure || hasFullRoot);
  plan.lanes = plan.tailLanes = 4;

  // See what positions come up.
  OwningOpRef<ModuleOp> scrap = ModuleOp::create(kernelOp.getLoc());
  OpBuilder scrapBuilder(context);
  scrapBuilder.setInsertionPointToEnd(scrap->getBody());
  KernelEmitter trial(kernelOp, plan);
  if (failed(trial.emit(scrapBuilder, "trial")))
    return failure();
  const Observations &seen = trial.observations();

  // One loop for what lies one after the other, rows and the rest apart.
  auto symbolOf = [&](int64_t loop) {
    return plan.vectorRoots && loop == rank - 1 ? std::string("v")
                                                : "i" + std::to_string(loop);
  };
  SmallVector<SmallVector<int64_t>> loops;
  int64_t rowLoops = 0;
  for (int64_t loop = 0; loop < rank; ++loop) {
    bool startsInner = !pure && loop == rows;
    bool extends = !loops.empty() && !startsInner &&
                   canMerge(seen, symbolOf(loop - 1), symbolOf(loop),
                            plan.loops[loop]);
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
  bool flat = pure && loops.size() == 1;
  if (pure && !loops.empty())
    rowLoops = loops.size() - 1;

  auto sizeOf = [&](ArrayRef<int64_t> dims) {
    SymExpr size(1);
    for (int64_t dim : dims)
      size = size * space[dim];
    return size;
  };

  // Lanes: four vectors at once hide the latency of arithmetic.
  int64_t tail = vectorBits / 32;
  int64_t lanes = 4 * tail;
  if (!loops.empty() && !flat) {
    std::optional<int64_t> extent = sizeOf(loops.back()).asInteger();
    while (extent && lanes > 2 && *extent <= lanes / 2)
      lanes /= 2;
    tail = std::min(tail, lanes);
  }

  for (const auto &entry : seen.dearValues)
    if (entry.second.loops.size() > 1)
      entry.second.op->setAttr(cachedAttrName, builder.getUnitAttr());

  SymExpr domain(1), inner(1);
  if (flat) {
    domain = spaceSize;
  } else {
    for (auto [loop, dims] : llvm::enumerate(loops)) {
      SymExpr &part = static_cast<int64_t>(loop) < rowLoops ? domain : inner;
      part = part * sizeOf(dims);
    }
  }
  int64_t work = std::max<int64_t>(grainElements / (1 + seen.dearOps), 1);
  SymExpr grain = SymExpr::make(
      SymExpr::Kind::Max,
      {SymExpr(1),
       SymExpr::make(SymExpr::Kind::FloorDiv,
                     {SymExpr(work),
                      SymExpr::make(SymExpr::Kind::Max, {SymExpr(1), inner})})});

  NamedAttrList decisions(decided);
  SmallVector<Attribute> loopAttrs;
  for (ArrayRef<int64_t> dims : loops)
    loopAttrs.push_back(builder.getDenseI64ArrayAttr(dims));
  decisions.set("loops", builder.getArrayAttr(loopAttrs));
  decisions.set("row_loops", builder.getI64IntegerAttr(rowLoops));
  if (flat)
    decisions.set("flat", builder.getUnitAttr());
  if (plan.vectorRoots)
    decisions.set("vector_roots", builder.getUnitAttr());
  decisions.set("lanes", builder.getI64IntegerAttr(lanes));
  decisions.set("tail_lanes", builder.getI64IntegerAttr(tail));
  decisions.set("domain", graph::ExprAttr::get(context, domain));
  decisions.set("grain", graph::ExprAttr::get(context, grain));
  kernelOp.setDecisionsAttr(decisions.getDictionary(context));
  return success();
}

} // namespace
