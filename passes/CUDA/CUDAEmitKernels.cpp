//===- CUDAEmitKernels.cpp - Kernels as gpu.func --------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cuda-emit-kernels`: every scheduled kernel becomes a `gpu.func`
// of the module `@kernels`, with the loops of passes/Kernel/KernelEmitter.h run
// by threads in steps of the whole grid. Any launch geometry is right, then,
// and the one that is decided is a matter of speed.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/EmitKernels.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_CUDAEMITKERNELS
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Parameters: a pointer for each input and result, an i64 for each symbol, the
/// iterations of the parallel loop, and a pointer to the status, an i64.
class CUDAShell final : public KernelShell {
public:
  KernelEntry open(OpBuilder &builder, graph::KernelOp kernelOp,
                   StringRef name) override {
    Location loc = kernelOp.getLoc();
    Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
    Type i64 = builder.getI64Type();
    int64_t buffers = kernelOp.getInputs().size() + kernelOp.getNumResults();
    int64_t symbols = kernelOp.getSymbols().size();
    SmallVector<Type> types(buffers, pointer);
    types.append(symbols + 1, i64);
    types.push_back(pointer);
    auto function = gpu::GPUFuncOp::create(builder, loc, name,
                                           builder.getFunctionType(types, {}));
    function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                      builder.getUnitAttr());
    auto threads =
        cast<IntegerAttr>(kernelOp.getDecisionsAttr().get("threads"));
    function.setKnownBlockSizeAttr(builder.getDenseI32ArrayAttr(
        {static_cast<int32_t>(threads.getInt()), 1, 1}));
    Block &body = function.getBody().front();
    builder.setInsertionPointToStart(&body);

    KernelEntry entry;
    entry.function = function;
    ArrayRef<BlockArgument> arguments = body.getArguments();
    llvm::append_range(entry.buffers, arguments.take_front(buffers));
    llvm::append_range(entry.symbols, arguments.slice(buffers, symbols));
    entry.end = arguments[buffers + symbols];
    if (kernel::hasChecks(kernelOp))
      entry.status = arguments.back();

    auto in64 = [&](Value index) -> Value {
      return arith::IndexCastOp::create(builder, loc, i64, index);
    };
    // Fewer threads than decided must be right, too.
    auto x = gpu::Dimension::x;
    Value blockSize = in64(gpu::BlockDimOp::create(builder, loc, x));
    Value block = in64(gpu::BlockIdOp::create(builder, loc, x));
    Value thread = in64(gpu::ThreadIdOp::create(builder, loc, x));
    Value blocks = in64(gpu::GridDimOp::create(builder, loc, x));
    entry.begin = arith::AddIOp::create(
        builder, loc, arith::MulIOp::create(builder, loc, block, blockSize),
        thread);
    entry.step = arith::MulIOp::create(builder, loc, blocks, blockSize);
    return entry;
  }

  void close(OpBuilder &builder, Location loc,
             const KernelEntry &entry) override {
    gpu::ReturnOp::create(builder, loc);
  }
};

class CUDAEmitKernels final
    : public ::intarsia::impl::CUDAEmitKernelsBase<CUDAEmitKernels> {
public:
  using CUDAEmitKernelsBase::CUDAEmitKernelsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<graph::KernelOp> kernels;
    WalkResult walked = module.walk([&](graph::KernelOp kernelOp) {
      if (hasCode(kernelOp))
        return WalkResult::advance();
      StringRef device = deviceOf(kernelOp);
      if (!emulated && device != "cuda") {
        kernelOp.emitError("is on ")
            << device << ", not on cuda: pass lower-calls the option "
            << "devices=cuda";
        return WalkResult::interrupt();
      }
      kernels.push_back(kernelOp);
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    if (kernels.empty())
      return;
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto code = gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToEnd(&code.getBodyRegion().front());
    CUDAShell shell;
    FailureOr<EmittedKernels> counts = emitKernels(kernels, builder, shell);
    if (failed(counts))
      return signalPassFailure();
    numKernels += counts->emitted;
    numShared += counts->shared;
  }
};

} // namespace
