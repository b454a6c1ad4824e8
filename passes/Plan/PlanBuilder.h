//===- PlanBuilder.h - From the dialect to a plan -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The translation that ends the path of the host program: a module on which
// `plan-inplace` has run becomes a plan::Plan.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PLAN_PLANBUILDER_H
#define INTARSIA_PASSES_PLAN_PLANBUILDER_H

#include "intarsia/Plan/Plan.h"
#include "mlir/IR/BuiltinOps.h"

namespace intarsia {

struct PlanOptions {
  /// Views of a known form are made by the plan itself, not by a call.
  bool stridedViews = true;
  /// Buffers between kernels lie in an arena.
  bool arena = true;
  /// Other strides of a result than its fake's are errors.
  bool strict = false;
  plan::Products products = plan::Products::Auto;
};

/// Translates `module`, whose entry is `@main` or its only public function.
/// Faults are reported as diagnostics on the operation concerned.
mlir::FailureOr<plan::Plan> buildPlan(mlir::ModuleOp module,
                                      const PlanOptions &options);

} // namespace intarsia

#endif // INTARSIA_PASSES_PLAN_PLANBUILDER_H
