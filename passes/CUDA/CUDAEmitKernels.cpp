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
#include "mlir/Dialect/MemRef/IR/MemRef.h"
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
/// iterations of the parallel loop, and a pointer to the status, three i64.
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
    pool.clear();
    threads = integerOf(kernelOp, "threads").value();
    team = integerOf(kernelOp, "team").value_or(1);
    across = kernelOp.getDecisionsAttr().contains("across");
    bool square = kernelOp.getDecisionsAttr().contains("square");
    function.setKnownBlockSizeAttr(
        builder.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
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

    auto x = gpu::Dimension::x;
    auto in64 = [&](Value index) -> Value {
      return arith::IndexCastOp::create(builder, loc, i64, index);
    };
    auto integer = [&](int64_t value) -> Value {
      return arith::ConstantOp::create(builder, loc,
                                       builder.getI64IntegerAttr(value));
    };
    Value block = in64(gpu::BlockIdOp::create(builder, loc, x));
    thread = in64(gpu::ThreadIdOp::create(builder, loc, x));
    Value blocks = in64(gpu::GridDimOp::create(builder, loc, x));
    // Rows that a block has at a time, and this thread's among them.
    int64_t rows = square ? 1 : across ? warpThreads : threads / team;
    entry.begin = arith::MulIOp::create(builder, loc, block, integer(rows));
    entry.step = arith::MulIOp::create(builder, loc, blocks, integer(rows));
    if (team == 1 && !square) {
      entry.begin = arith::AddIOp::create(builder, loc, entry.begin, thread);
      return entry;
    }
    warp = arith::DivUIOp::create(builder, loc, thread, integer(warpThreads));
    inWarp = arith::RemUIOp::create(builder, loc, thread, integer(warpThreads));
    if (across || square) {
      entry.member = warp;
      entry.lane = inWarp;
    } else if (team == warpThreads) {
      entry.begin = arith::AddIOp::create(builder, loc, entry.begin, warp);
      entry.member = inWarp;
    } else {
      entry.member = thread;
    }
    return entry;
  }

  SmallVector<Value> reduceTeam(OpBuilder &builder, Location loc,
                                const KernelEntry &entry,
                                ArrayRef<Value> values,
                                Combine combine) override;

  SmallVector<Value> scanTeam(OpBuilder &builder, Location loc,
                              ArrayRef<Value> values, Combine combine) override;
  SmallVector<Value> lastOfTeam(OpBuilder &builder, Location loc,
                                ArrayRef<Value> values) override;

  Value sharedArray(OpBuilder &builder, Location loc, const KernelEntry &entry,
                    Type element, int64_t count) override {
    return cast<gpu::GPUFuncOp>(entry.function)
        .addWorkgroupAttribution(sharedType(element, count), loc);
  }
  Operation *barrier(OpBuilder &builder, Location loc) override {
    return gpu::BarrierOp::create(builder, loc);
  }

  void close(OpBuilder &builder, Location loc,
             const KernelEntry &entry) override {
    gpu::ReturnOp::create(builder, loc);
  }

private:
  static MemRefType sharedType(Type element, int64_t count) {
    return MemRefType::get(
        {count}, element, MemRefLayoutAttrInterface(),
        gpu::AddressSpaceAttr::get(element.getContext(),
                                   gpu::AddressSpace::Workgroup));
  }
  static std::optional<int64_t> integerOf(graph::KernelOp kernelOp,
                                          StringRef name) {
    auto attribute = kernelOp.getDecisionsAttr().getAs<IntegerAttr>(name);
    if (!attribute)
      return std::nullopt;
    return attribute.getInt();
  }

  // Of the kernel that is being emitted.
  int64_t threads = 0, team = 1;
  bool across = false;
  Value thread, warp, inWarp; // numbers, in i64
  SmallVector<Value> pool;    // arrays in shared memory
};

/// A scalar as words of 32 bits, which is what shuffles and shared memory
/// have, and back.
SmallVector<Value> toWords(OpBuilder &b, Location loc, Value value) {
  Type i32 = b.getI32Type();
  unsigned bits = value.getType().getIntOrFloatBitWidth();
  if (isa<FloatType>(value.getType()))
    value = arith::BitcastOp::create(b, loc, b.getIntegerType(bits), value);
  if (bits < 32)
    return {arith::ExtUIOp::create(b, loc, i32, value)};
  if (bits == 32)
    return {value};
  SmallVector<Value> words = {arith::TruncIOp::create(b, loc, i32, value)};
  for (unsigned start = 32; start < bits; start += 32) {
    Value distance = arith::ConstantOp::create(
        b, loc, b.getIntegerAttr(value.getType(), start));
    Value rest = arith::ShRUIOp::create(b, loc, value, distance);
    words.push_back(arith::TruncIOp::create(b, loc, i32, rest));
  }
  return words;
}

Value fromWords(OpBuilder &b, Location loc, ArrayRef<Value> words, Type type) {
  unsigned bits = type.getIntOrFloatBitWidth();
  Type integer = b.getIntegerType(bits);
  Value value = words[0];
  if (bits < 32) {
    value = arith::TruncIOp::create(b, loc, integer, value);
  } else if (bits > 32) {
    value = arith::ExtUIOp::create(b, loc, integer, words[0]);
    for (unsigned start = 32; start < bits; start += 32) {
      Value distance =
          arith::ConstantOp::create(b, loc, b.getIntegerAttr(integer, start));
      Value word = arith::ExtUIOp::create(b, loc, integer, words[start / 32]);
      word = arith::ShLIOp::create(b, loc, word, distance);
      value = arith::OrIOp::create(b, loc, value, word);
    }
  }
  if (isa<FloatType>(type))
    value = arith::BitcastOp::create(b, loc, type, value);
  return value;
}

/// What a thread of the warp has of the values, by words.
SmallVector<Value> shuffled(OpBuilder &builder, Location loc,
                            ArrayRef<Value> values, Value number,
                            gpu::ShuffleMode mode) {
  Value width = arith::ConstantOp::create(
      builder, loc, builder.getI32IntegerAttr(warpThreads));
  return llvm::map_to_vector(values, [&](Value value) {
    SmallVector<Value> words = toWords(builder, loc, value);
    for (Value &word : words)
      word = gpu::ShuffleOp::create(builder, loc, word, number, width, mode)
                 .getShuffleResult();
    return fromWords(builder, loc, words, value.getType());
  });
}

Value integer32(OpBuilder &builder, Location loc, int32_t value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getI32IntegerAttr(value));
}

/// Each thread combines what it has with what the one `distance` before it has.
SmallVector<Value> CUDAShell::scanTeam(OpBuilder &builder, Location loc,
                                       ArrayRef<Value> values,
                                       Combine combine) {
  assert(team == warpThreads && "only a warp's values are in an order");
  Value number =
      arith::TruncIOp::create(builder, loc, builder.getI32Type(), inWarp);
  SmallVector<Value> results(values);
  for (int32_t distance = 1; distance < warpThreads; distance *= 2) {
    Value far = integer32(builder, loc, distance);
    Value has = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::uge,
                                      number, far);
    Value from = arith::SubIOp::create(builder, loc, number, far);
    from = arith::SelectOp::create(builder, loc, has, from, number);
    SmallVector<Value> both = combine(
        results, shuffled(builder, loc, results, from, gpu::ShuffleMode::IDX));
    for (auto [result, value] : llvm::zip_equal(results, both))
      result = arith::SelectOp::create(builder, loc, has, value, result);
  }
  return results;
}

SmallVector<Value> CUDAShell::lastOfTeam(OpBuilder &builder, Location loc,
                                         ArrayRef<Value> values) {
  return shuffled(builder, loc, values,
                  integer32(builder, loc, warpThreads - 1),
                  gpu::ShuffleMode::IDX);
}

/// Within a warp by shuffles; between the warps of a block through shared
/// memory, where each thread combines all that is there in the same order.
SmallVector<Value> CUDAShell::reduceTeam(OpBuilder &builder, Location loc,
                                         const KernelEntry &entry,
                                         ArrayRef<Value> values,
                                         Combine combine) {
  SmallVector<Value> results(values);
  if (!across) {
    for (int32_t distance = warpThreads / 2; distance > 0; distance /= 2)
      results = combine(results, shuffled(builder, loc, results,
                                          integer32(builder, loc, distance),
                                          gpu::ShuffleMode::XOR));
    if (team == warpThreads)
      return shuffled(builder, loc, results, integer32(builder, loc, 0),
                      gpu::ShuffleMode::IDX);
  }

  auto function = cast<gpu::GPUFuncOp>(entry.function);
  // `across` each thread has a place, of which a row has every 32nd; else each
  // warp has one.
  int64_t places = across ? threads : threads / warpThreads;
  MemRefType type = sharedType(builder.getI32Type(), places);
  auto index = [&](Value value) -> Value {
    return arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                      value);
  };
  auto integer = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getI64IntegerAttr(value));
  };
  SmallVector<SmallVector<Value>> memory;
  size_t used = 0;
  {
    OpBuilder::InsertionGuard guard(builder);
    if (!across) {
      Value leads = arith::CmpIOp::create(
          builder, loc, arith::CmpIPredicate::eq, inWarp, integer(0));
      auto branch =
          scf::IfOp::create(builder, loc, leads, /*withElseRegion=*/false);
      builder.setInsertionPointToStart(branch.thenBlock());
    }
    Value at = index(across ? thread : warp);
    for (Value result : results) {
      memory.emplace_back();
      for (Value word : toWords(builder, loc, result)) {
        // Nobody needs what is there of the value before.
        if (used == pool.size())
          pool.push_back(function.addWorkgroupAttribution(type, loc));
        memory.back().push_back(pool[used++]);
        memref::StoreOp::create(builder, loc, word, memory.back().back(), at);
      }
    }
  }
  gpu::BarrierOp::create(builder, loc);
  SmallVector<Value> combined;
  int64_t count = threads / warpThreads;
  for (int64_t number = 0; number < count; ++number) {
    Value place = integer(across ? number * warpThreads : number);
    if (across)
      place = arith::AddIOp::create(builder, loc, place, inWarp);
    Value at = index(place);
    SmallVector<Value> part;
    for (auto [words, value] : llvm::zip_equal(memory, values)) {
      SmallVector<Value> loaded;
      for (Value array : words)
        loaded.push_back(memref::LoadOp::create(builder, loc, array, at));
      part.push_back(fromWords(builder, loc, loaded, value.getType()));
    }
    combined = number == 0 ? part : combine(part, combined);
  }
  // The next value comes to the same place.
  gpu::BarrierOp::create(builder, loc);
  return combined;
}

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
