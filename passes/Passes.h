//===- Passes.h - All passes and pipelines of Intarsia ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Declares what Passes.td generates (`createNormalise()`, ..., and
// `registerIntarsiaPasses()`, which makes every pass known to intarsia-opt) and
// the pipelines of Pipelines.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PASSES_H
#define INTARSIA_PASSES_PASSES_H

#include "dialects/Graph/Graph.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace intarsia {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

/// What the pipelines of the path have in common.
struct PipelineOptions {
  /// "eager" rounds low precision where eager does; "fused" keeps f32 between
  /// implicit casts.
  std::string numerics = "eager";
  /// The widest vector of the machine, in bits.
  unsigned vectorBits = 512;
  /// Whether the machine has fused multiply-add.
  bool fma = true;
  /// Whether it converts between f16 and f32.
  bool f16c = true;
  /// Whether the machine has AVX-512F.
  bool avx512 = false;
  /// Whether kernels of the CPU's tensors are CUDA's code, emulated.
  bool emulated = false;
  /// Whether emulated CUDA kernels record their accesses.
  bool traces = false;
  /// The types of device for which calls become kernels; all others stay calls.
  std::vector<std::string> devices = {"cpu"};
};

/// The graph becomes one of values, without what carries no meaning.
void buildNormalisePipeline(mlir::OpPassManager &manager);
/// Calls that have a lowering become kernels.
void buildLowerPipeline(mlir::OpPassManager &manager,
                        const PipelineOptions &options);
/// Kernels are grouped, and equal ones merged.
void buildFusePipeline(mlir::OpPassManager &manager,
                       const PipelineOptions &options);
/// Kernels get their `decisions`, and their code appears as functions of the
/// LLVM dialect in a nested module `@kernels`.
void buildCPUPipeline(mlir::OpPassManager &manager,
                      const PipelineOptions &options);
/// The same for kernels on CUDA: functions of the LLVM and NVVM dialects in a
/// `gpu.module` `@kernels`.
void buildCUDAPipeline(mlir::OpPassManager &manager,
                       const PipelineOptions &options);
/// The same for kernels on the CPU that are to run CUDA's code: what
/// buildCPUPipeline makes, of what buildCUDAPipeline has before NVVM.
void buildSIMTPipeline(mlir::OpPassManager &manager,
                       const PipelineOptions &options);
/// The decisions about memory. `reuse`: also those that only save copies.
void buildPlanPipeline(mlir::OpPassManager &manager, bool reuse);

/// Makes the named pipelines known to intarsia-opt.
void registerIntarsiaPipelines();

} // namespace intarsia

#endif // INTARSIA_PASSES_PASSES_H
