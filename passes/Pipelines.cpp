//===- Pipelines.cpp - The stages of the path as pass pipelines -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Which passes make a stage, in which order: the only place that says so. The
// compiler runs the stages one after the other; intarsia-opt runs any of them
// by name.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace intarsia {

void buildNormalisePipeline(OpPassManager &manager) {
  manager.addPass(createInlineRegions());
  manager.addPass(createFunctionalise());
  manager.addPass(createRestoreUpdates());
  manager.addPass(createNormalise());
}

void buildLowerPipeline(OpPassManager &manager,
                        const PipelineOptions &options) {
  // Updates in place stay calls.
  manager.addPass(createPlanInplace());
  LowerCallsOptions lower;
  lower.devices.assign(options.devices.begin(), options.devices.end());
  lower.emulated = options.emulated;
  manager.addPass(createLowerCalls(lower));
}

void buildFusePipeline(OpPassManager &manager, const PipelineOptions &options) {
  manager.addPass(createFuseRepeat());
  manager.addPass(createFuseAnalyse());
  manager.addPass(createFuseDecide());
  manager.addPass(createFuseApply());
  if (options.numerics == "fused")
    manager.addPass(createFuseWiden());
}

void buildCPUPipeline(OpPassManager &manager, const PipelineOptions &options) {
  CPUScheduleOptions schedule;
  schedule.vectorBits = options.vectorBits;
  manager.addPass(createCPUSchedule(schedule));
  manager.addPass(createCPUEmitKernels());
  OpPassManager &kernels = manager.nest<ModuleOp>();
  CPUExpandMathOptions math;
  math.fma = options.fma;
  math.avx512 = options.avx512;
  kernels.addPass(createCPUExpandMath(math));
  kernels.addPass(createCPUCheckMath());
  kernels.addPass(createCPUExpandComplex());
  CPUExpandConversionsOptions conversions;
  conversions.f16c = options.f16c;
  conversions.integers = true;
  kernels.addPass(createCPUExpandConversions(conversions));
  kernels.addPass(createCPUToLLVM());
}

void buildCUDAPipeline(OpPassManager &manager, const PipelineOptions &options) {
  manager.addPass(createCUDASchedule());
  manager.addPass(createCUDAEmitKernels());
  OpPassManager &kernels = manager.nest<gpu::GPUModuleOp>();
  // What makes scalar or vector code of math and of low precision is the same.
  kernels.addPass(createCPUExpandMath());
  kernels.addPass(createCPUCheckMath());
  kernels.addPass(createCUDAPackArithmetic());
  CPUExpandConversionsOptions conversions;
  conversions.bf16 = true;
  kernels.addPass(createCPUExpandConversions(conversions));
  kernels.addPass(createCUDAToNVVM());
}

void buildSIMTPipeline(OpPassManager &manager, const PipelineOptions &options) {
  manager.addPass(createCUDASchedule());
  CUDAEmitKernelsOptions emit;
  emit.emulated = true;
  manager.addPass(createCUDAEmitKernels(emit));
  OpPassManager &code = manager.nest<gpu::GPUModuleOp>();
  CPUExpandMathOptions math;
  math.fma = options.fma;
  code.addPass(createCPUExpandMath(math));
  code.addPass(createCPUCheckMath());
  CPUExpandConversionsOptions conversions;
  conversions.f16c = options.f16c;
  code.addPass(createCPUExpandConversions(conversions));
  GPUToSIMTOptions simt;
  simt.traces = options.traces;
  // Both entries of a kernel are run by tests: with 10000 elements, the wide.
  simt.narrowLimit = (int64_t(1) << 24) + 20000;
  manager.addPass(createGPUToSIMT(simt));
  manager.nest<ModuleOp>().addPass(createCPUToLLVM());
}

void buildPlanPipeline(OpPassManager &manager, bool reuse) {
  PlanInplaceOptions options;
  options.reuse = reuse;
  options.own = reuse;
  manager.addPass(createPlanInplace(options));
  // Where every node is a call, all run where they stand.
  if (reuse)
    manager.addPass(createPlanWaits());
}

namespace {
struct StageOptions : PassPipelineOptions<StageOptions> {
  Option<std::string> numerics{
      *this, "numerics",
      llvm::cl::desc("'eager' rounds low precision where eager does, 'fused' "
                     "keeps f32 between implicit casts"),
      llvm::cl::init("eager")};
  Option<unsigned> vectorBits{
      *this, "vector-bits",
      llvm::cl::desc("The widest vector of the machine, in bits"),
      llvm::cl::init(512)};

  Option<bool> fma{*this, "fma",
                   llvm::cl::desc("Whether the CPU has fused multiply-add"),
                   llvm::cl::init(true)};

  Option<bool> avx512{*this, "avx512",
                      llvm::cl::desc("Whether the CPU has AVX-512F"),
                      llvm::cl::init(false)};

  Option<bool> traces{*this, "traces",
                      llvm::cl::desc("Whether emulated kernels record their "
                                     "accesses (gpu-to-simt)"),
                      llvm::cl::init(false)};

  ListOption<std::string> devices{
      *this, "devices",
      llvm::cl::desc("Types of device to make kernels for; default: cpu")};

  operator PipelineOptions() const {
    PipelineOptions options;
    if (!devices.empty())
      options.devices.assign(devices.begin(), devices.end());
    options.fma = fma;
    options.avx512 = avx512;
    options.traces = traces;
    options.numerics = numerics;
    options.vectorBits = vectorBits;
    return options;
  }
};
} // namespace

void registerIntarsiaPipelines() {
  PassPipelineRegistration<StageOptions>(
      "lower", "Normalise, then make kernels of the calls with a lowering",
      [](OpPassManager &manager, const StageOptions &options) {
        buildNormalisePipeline(manager);
        buildLowerPipeline(manager, options);
      });
  PassPipelineRegistration<StageOptions>(
      "fuse", "Group kernels",
      [](OpPassManager &manager, const StageOptions &options) {
        buildFusePipeline(manager, options);
      });
  PassPipelineRegistration<StageOptions>(
      "cpu", "Schedule the kernels and emit their code in the LLVM dialect",
      [](OpPassManager &manager, const StageOptions &options) {
        buildCPUPipeline(manager, options);
      });
  PassPipelineRegistration<StageOptions>(
      "cuda",
      "Schedule the kernels and emit their code in the LLVM and NVVM dialects",
      [](OpPassManager &manager, const StageOptions &options) {
        buildCUDAPipeline(manager, options);
      });
  PassPipelineRegistration<StageOptions>(
      "simt", "Make CPU kernels that emulate the CUDA kernels",
      [](OpPassManager &manager, const StageOptions &options) {
        buildSIMTPipeline(manager, options);
      });
  PassPipelineRegistration<>("plan", "Decide what is written in place",
                             [](OpPassManager &manager) {
                               buildPlanPipeline(manager, /*reuse=*/true);
                             });
}

} // namespace intarsia
