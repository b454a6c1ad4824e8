//===- CPUExpandMath.cpp - The pass cpu-expand-math -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Replaces operations of the math dialect by vector code (MathEmitters.h),
// after vectorisation and before the conversion of scf.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/MathEmitters.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"

namespace intarsia {
#define GEN_PASS_DEF_CPUEXPANDMATH
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

namespace {
struct ExpandMath final : intarsia::impl::CPUExpandMathBase<ExpandMath> {
  using CPUExpandMathBase::CPUExpandMathBase;

  void runOnOperation() override {
    MathOptions options;
    options.fma = fma;
    options.avx512 = avx512;
    getOperation()->walk([&](Operation *op) {
      std::optional<MathFunction> function = getMathFunction(op);
      if (!function ||
          !canEmitMath(*function, getElementTypeOrSelf(op->getResult(0))))
        return;
      OpBuilder builder(op);
      Value result = emitMath(builder, op->getLoc(), *function,
                              op->getOperands(), options);
      op->getResult(0).replaceAllUsesWith(result);
      op->erase();
      ++numExpanded;
    });
  }
};
} // namespace
