//===- CUDASchedule.cpp - Decide what a thread computes -------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cuda-schedule`. The simplest division that is right for any
// kernel: a thread computes one element, or one whole row where the kernel
// reduces along rows. Blocks that share a row, vector loads and 32-bit
// positions are decisions for later; they belong here.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/EmitKernels.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CUDASCHEDULE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Threads of a block. Rows are few and long: smaller blocks spread them over
/// more multiprocessors.
constexpr int64_t elementThreads = 256, rowThreads = 64;

LogicalResult schedule(graph::KernelOp kernelOp) {
  MLIRContext *context = kernelOp.getContext();
  Builder builder(context);
  FailureOr<Space> space = Space::of(kernelOp);
  if (failed(space))
    return failure();
  bool pure = space->isElementwise();
  addSizeSymbols(kernelOp);

  // All rows are one loop; inside a row each dimension is a loop.
  ArrayRef<int64_t> outer = space->rowDims();
  SmallVector<Attribute> loops;
  if (!outer.empty() || pure)
    loops.push_back(builder.getDenseI64ArrayAttr(outer));
  for (int64_t dim : space->innerDims())
    loops.push_back(builder.getDenseI64ArrayAttr({dim}));
  SymExpr domain = space->rowCount();
  bool storesRows = llvm::any_of(kernelOp.getResults(), [&](Value result) {
    return cast<graph::TensorType>(result.getType()).getNumElements() ==
           space->size();
  });

  NamedAttrList decisions(kernelOp.getDecisionsAttr());
  decisions.set("loops", builder.getArrayAttr(loops));
  decisions.set("row_loops",
                builder.getI64IntegerAttr(pure || outer.empty() ? 0 : 1));
  if (pure)
    decisions.set("flat", builder.getUnitAttr());
  else if (storesRows)
    decisions.set("vector_roots", builder.getUnitAttr());
  decisions.set("lanes", builder.getI64IntegerAttr(1));
  decisions.set("tail_lanes", builder.getI64IntegerAttr(1));
  decisions.set("domain", graph::ExprAttr::get(context, domain));
  int64_t threads = pure ? elementThreads : rowThreads;
  decisions.set("threads", builder.getI64IntegerAttr(threads));
  // A block for all of them, with the grid's blocks as far as they reach.
  SymExpr blocks =
      SymExpr::make(SymExpr::Kind::FloorDiv,
                    {domain + SymExpr(threads - 1), SymExpr(threads)});
  decisions.set("grid", graph::ExprAttr::get(context, blocks));
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
