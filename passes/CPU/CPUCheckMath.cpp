//===- CPUCheckMath.cpp - The pass cpu-check-math -------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Ends the expansion of math: whatever is left must be an instruction. Anything
// else would become a scalar call of libm for each element, slow and not there
// to be linked.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/Pass.h"

namespace intarsia {
#define GEN_PASS_DEF_CPUCHECKMATH
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

namespace {
struct CheckMath final : intarsia::impl::CPUCheckMathBase<CheckMath> {
  void runOnOperation() override {
    bool failed = false;
    getOperation()->walk([&](Operation *op) {
      if (!isa_and_nonnull<math::MathDialect>(op->getDialect()))
        return;
      if (isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
              math::CountLeadingZerosOp, math::CountTrailingZerosOp,
              math::CtPopOp, math::FloorOp, math::FmaOp, math::IsFiniteOp,
              math::IsInfOp, math::IsNaNOp, math::IsNormalOp, math::RoundEvenOp,
              math::SqrtOp, math::TruncOp>(op))
        return;
      op->emitError("no vector code is known for '")
          << op->getName() << "' on " << op->getResult(0).getType()
          << "; its operator must stay an opaque call";
      failed = true;
    });
    if (failed)
      signalPassFailure();
  }
};
} // namespace
