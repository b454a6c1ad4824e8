//===- PlanPrint.cpp - Print the plan of a module -------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `plan-print`, with which the plan builder is tested on .mlir
// files.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/Plan/PlanBuilder.h"

#include "llvm/Support/raw_ostream.h"

namespace intarsia {
#define GEN_PASS_DEF_PLANPRINT
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

struct PlanPrint final : intarsia::impl::PlanPrintBase<PlanPrint> {
  using PlanPrintBase::PlanPrintBase;

  void runOnOperation() override {
    intarsia::PlanOptions options;
    options.stridedViews = stridedViews;
    options.strict = strict;
    mlir::FailureOr<intarsia::plan::Plan> plan =
        intarsia::buildPlan(getOperation(), options);
    if (failed(plan))
      return signalPassFailure();
    llvm::outs() << intarsia::plan::print(*plan);
    llvm::outs().flush();
    markAllAnalysesPreserved();
  }
};

} // namespace
