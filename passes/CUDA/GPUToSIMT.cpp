//===- GPUToSIMT.cpp - CUDA kernels that a CPU can run --------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `gpu-to-simt`, a test aid: the code of CUDA kernels, before NVVM,
// becomes CPU kernels with the signature of KernelABI.h, which the ordinary
// runtime calls. A function for one thread has the kernel's own code; where
// that waits for other threads it is a coroutine. SIMTScheduler.h runs a grid
// of them. Loads and stores are held against the buffers that they belong to.
//
//===----------------------------------------------------------------------===//

#include "passes/CUDA/SIMTScheduler.h"
#include "passes/Kernel/ExprValue.h"
#include "passes/Kernel/KernelEmitter.h"
#include "passes/Kernel/ToLLVM.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;
using simt::Word;

namespace intarsia {
#define GEN_PASS_DEF_GPUTOSIMT
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Bytes for the frame of a coroutine. One that needs more traps.
constexpr int64_t frameBytes = 8192;
constexpr int64_t sinkBytes = 64;
constexpr int64_t warp = warpThreads;

int64_t bytesOf(Type type) {
  int64_t count = 1;
  if (auto vector = dyn_cast<VectorType>(type)) {
    count = vector.getNumElements();
    type = vector.getElementType();
  }
  if (isa<LLVM::LLVMPointerType>(type))
    return count * 8;
  return count * llvm::divideCeil(type.getIntOrFloatBitWidth(), 8);
}

/// Emits at the builder's place.
struct Code {
  OpBuilder &b;
  Location loc;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();

  Value integer(int64_t value) {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  }
  Value at(Value base, Type type, Value number) {
    return LLVM::GEPOp::create(b, loc, pointer, type, base,
                               ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(number)});
  }
  Value at(Value base, Type type, int64_t number) {
    return at(base, type, integer(number));
  }
  Value load(Value from, Type type) {
    return LLVM::LoadOp::create(b, loc, type, from, 8);
  }
  void store(Value value, Value to) {
    LLVM::StoreOp::create(b, loc, value, to, 8);
  }
  Value get(Value ctx, Word word, Type type) {
    return load(at(ctx, i64, word), type);
  }
  void set(Value ctx, Word word, Value value) {
    store(value, at(ctx, i64, word));
  }
};

/// One kernel on its way.
class Emulation {
public:
  Emulation(gpu::GPUFuncOp kernel, graph::KernelOp decided, OpBuilder &builder)
      : kernel(kernel), decided(decided), builder(builder),
        buffers(decided.getInputs().size() + decided.getNumResults()),
        symbols(decided.getSymbols().size()) {
    auto integer = [&](StringRef name) {
      return cast<IntegerAttr>(decided.getDecisionsAttr().get(name)).getInt();
    };
    threads = integer("threads");
    for (BlockArgument memory : kernel.getWorkgroupAttributions()) {
      sharedAt.push_back(sharedBytes);
      auto type = cast<MemRefType>(memory.getType());
      sharedBytes += llvm::alignTo(
          type.getNumElements() * bytesOf(type.getElementType()), 16);
    }
    kernel.walk([&](Operation *op) {
      waits |= isa<gpu::BarrierOp, gpu::ShuffleOp>(op);
    });
  }

  LogicalResult makeThread();
  /// `wide`: the same kernel's, for sizes above the limit.
  LogicalResult makeKernel(Emulation *wide, bool traces, int64_t maxBlocks,
                           int64_t narrowLimit);
  /// What the emulation keeps in the kernel's scratch memory.
  int64_t scratchBytes() const { return arenaAt() + arenaBytes(); }

private:
  std::string threadName() { return (kernel.getName() + "_thread").str(); }
  int64_t boundsAt() const { return 8 * simt::words; }
  int64_t arraysAt() const {
    return boundsAt() + 16 * (buffers + int64_t(sharedAt.size()) + 1);
  }
  int64_t sinkAt() const { return arraysAt() + 4 * 8 * threads; }
  int64_t sharedBegin() const {
    return llvm::alignTo(sinkAt() + sinkBytes, 16);
  }
  int64_t arenaAt() const {
    return llvm::alignTo(sharedBegin() + sharedBytes, 64);
  }
  int64_t arenaBytes() const { return waits ? threads * frameBytes : 0; }

  LogicalResult convert(Operation *op, Value ctx, Value thread);
  void check(Operation *op, OpOperand &pointer, Type type, int64_t alignment,
             Value ctx, Value thread);
  /// Ends the block before `op`: the thread waits, in `state`.
  void suspend(Operation *op, int64_t state, Value ctx, Value thread);

  gpu::GPUFuncOp kernel;
  graph::KernelOp decided;
  OpBuilder &builder;
  int64_t buffers, symbols, threads = 0;
  SmallVector<int64_t> sharedAt; // of each attribution
  int64_t sharedBytes = 0;
  bool waits = false;

  func::FuncOp function;
  /// Pointers to the first byte of the buffers and of shared memory, by the
  /// number that bounds have.
  DenseMap<Value, int64_t> numbers;
  int64_t places = 0, accesses = 0;
  Block *suspended = nullptr, *cleanup = nullptr;
};

LogicalResult Emulation::makeThread() {
  if (threads % warp)
    return kernel.emitError("has ")
           << threads << " threads, which is not whole warps";
  Location loc = kernel.getLoc();
  Code code{builder, loc};
  auto type = builder.getFunctionType(
      {code.pointer, code.i64}, waits ? TypeRange(code.pointer) : TypeRange());
  function = func::FuncOp::create(builder, loc, threadName(), type);
  function.setPrivate();
  function->setAttr("llvm.linkage",
                    LLVM::LinkageAttr::get(builder.getContext(),
                                           LLVM::linkage::Linkage::Internal));
  if (waits)
    function->setAttr("passthrough",
                      builder.getStrArrayAttr({"presplitcoroutine"}));

  // The kernel's blocks, whose parameters come from memory now.
  OpBuilder::InsertionGuard guard(builder);
  Region &region = function.getBody();
  region.takeBody(kernel.getBody());
  Block *first = &region.front();
  Block *entry = builder.createBlock(&region, region.begin(),
                                     {code.pointer, code.i64}, {loc, loc});
  Value ctx = entry->getArgument(0), thread = entry->getArgument(1);
  builder.setInsertionPointToEnd(entry);

  Value id, handle;
  if (waits) {
    Value null = LLVM::ZeroOp::create(builder, loc, code.pointer);
    Value alignment =
        LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(16));
    Type token = LLVM::LLVMTokenType::get(builder.getContext());
    id = LLVM::CoroIdOp::create(builder, loc, token,
                                ValueRange{alignment, null, null, null});
    Value size = LLVM::CoroSizeOp::create(builder, loc, code.i64);
    Value memory = code.get(ctx, Word::Arena, code.pointer);
    Value rounded = arith::AndIOp::create(
        builder, loc,
        arith::AddIOp::create(builder, loc, size, code.integer(15)),
        code.integer(-16));
    Value next = code.at(memory, builder.getI8Type(), rounded);
    code.set(ctx, Word::Arena, next);
    Value end = code.get(ctx, Word::ArenaEnd, code.pointer);
    Value fits =
        LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ule, next, end);
    Block *full = builder.createBlock(&region, region.end());
    LLVM::Trap::create(builder, loc);
    LLVM::UnreachableOp::create(builder, loc);
    Block *begin = builder.createBlock(&region, region.end());
    builder.setInsertionPointToEnd(entry);
    cf::CondBranchOp::create(builder, loc, fits, begin, full);
    builder.setInsertionPointToEnd(begin);
    handle = LLVM::CoroBeginOp::create(builder, loc, code.pointer,
                                       ValueRange{id, memory});
  }
  Value bufferArray = code.get(ctx, Word::Buffers, code.pointer);
  Value symbolArray = code.get(ctx, Word::Symbols, code.pointer);
  Value shared = code.get(ctx, Word::Shared, code.pointer);
  SmallVector<Value> parameters;
  for (int64_t number = 0; number < buffers; ++number) {
    Value at = code.at(bufferArray, code.pointer, number);
    parameters.push_back(code.load(at, code.pointer));
    numbers[parameters.back()] = number;
  }
  for (int64_t number = 0; number < symbols; ++number)
    parameters.push_back(
        code.load(code.at(symbolArray, code.i64, number), code.i64));
  parameters.push_back(code.get(ctx, Word::Domain, code.i64));
  // The status has the last pair of bounds.
  parameters.push_back(code.at(ctx, code.i64, Word::Status));
  numbers[parameters.back()] = buffers + sharedAt.size();
  for (auto [number, at] : llvm::enumerate(sharedAt)) {
    parameters.push_back(code.at(shared, builder.getI8Type(), at));
    numbers[parameters.back()] = buffers + number;
  }
  if (parameters.size() != first->getNumArguments())
    return kernel.emitError("has other parameters than its kernel's operation");
  cf::BranchOp::create(builder, loc, first);

  if (waits) {
    cleanup = builder.createBlock(&region, region.end());
    LLVM::CoroFreeOp::create(builder, loc, code.pointer,
                             ValueRange{id, handle});
    suspended = builder.createBlock(&region, region.end());
    Value no =
        LLVM::ConstantOp::create(builder, loc, builder.getBoolAttr(false));
    Value none = LLVM::NoneTokenOp::create(builder, loc);
    LLVM::CoroEndOp::create(builder, loc, builder.getI1Type(),
                            ValueRange{handle, no, none});
    func::ReturnOp::create(builder, loc, handle);
    builder.setInsertionPointToEnd(cleanup);
    cf::BranchOp::create(builder, loc, suspended);
  }

  for (auto [argument, value] :
       llvm::zip_equal(first->getArguments(), parameters))
    argument.replaceAllUsesWith(value);
  first->eraseArguments(0, first->getNumArguments());
  SmallVector<Operation *> ops;
  for (Block &block : llvm::make_range(first->getIterator(), region.end()))
    for (Operation &op : block)
      ops.push_back(&op);
  for (Operation *op : ops)
    if (failed(convert(op, ctx, thread)))
      return failure();
  return success();
}

void Emulation::check(Operation *op, OpOperand &pointer, Type type,
                      int64_t alignment, Value ctx, Value thread) {
  Value base = pointer.get();
  while (auto element = base.getDefiningOp<LLVM::GEPOp>()) {
    if (numbers.count(base))
      break;
    base = element.getBase();
  }
  auto number = numbers.find(base);
  if (number == numbers.end())
    return;
  Code code{builder, op->getLoc()};
  // Loads are even, stores odd.
  int64_t access = 2 * accesses++ + isa<LLVM::StoreOp, memref::StoreOp>(op);
  auto call = func::CallOp::create(
      builder, op->getLoc(), "simt_access", TypeRange(code.pointer),
      ValueRange{ctx, thread, pointer.get(), code.integer(number->second),
                 code.integer(bytesOf(type)),
                 code.integer(std::max<int64_t>(alignment, 1)),
                 code.integer(access)});
  pointer.set(call.getResult(0));
}

void Emulation::suspend(Operation *op, int64_t state, Value ctx, Value thread) {
  Location loc = op->getLoc();
  Code code{builder, loc};
  Value states = code.get(ctx, Word::States, code.pointer);
  code.store(code.integer(state), code.at(states, code.i64, thread));
  Block *before = op->getBlock();
  Block *after = before->splitBlock(op);
  builder.setInsertionPointToEnd(before);
  Value none = LLVM::NoneTokenOp::create(builder, loc);
  Value no = LLVM::ConstantOp::create(builder, loc, builder.getBoolAttr(false));
  Value next = LLVM::CoroSuspendOp::create(builder, loc, builder.getI8Type(),
                                           ValueRange{none, no});
  cf::SwitchOp::create(builder, loc, next, suspended, ValueRange(),
                       ArrayRef<APInt>{APInt(8, 0), APInt(8, 1)},
                       BlockRange{after, cleanup},
                       ArrayRef<ValueRange>{{}, {}});
  builder.setInsertionPointToStart(after);
}

LogicalResult Emulation::convert(Operation *op, Value ctx, Value thread) {
  builder.setInsertionPoint(op);
  Location loc = op->getLoc();
  Code code{builder, loc};
  auto index = [&](Value value) -> Value {
    return arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                      value);
  };
  auto replace = [&](Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
    return success();
  };
  auto isX = [&](auto id) { return id.getDimension() == gpu::Dimension::x; };
  if (auto id = dyn_cast<gpu::ThreadIdOp>(op); id && isX(id))
    return replace(index(thread));
  if (auto id = dyn_cast<gpu::BlockIdOp>(op); id && isX(id))
    return replace(index(code.get(ctx, Word::BlockId, code.i64)));
  if (auto size = dyn_cast<gpu::BlockDimOp>(op); size && isX(size))
    return replace(index(code.get(ctx, Word::Threads, code.i64)));
  if (auto size = dyn_cast<gpu::GridDimOp>(op); size && isX(size))
    return replace(index(code.get(ctx, Word::Blocks, code.i64)));
  if (isa<gpu::BarrierOp>(op)) {
    suspend(op, 2 * ++places, ctx, thread);
    op->erase();
    return success();
  }
  if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op)) {
    Value value = shuffle.getValue();
    APInt width;
    if (!value.getType().isInteger(32) || !shuffle.getValid().use_empty() ||
        !matchPattern(shuffle.getWidth(), m_ConstantInt(&width)) ||
        width != warp ||
        (shuffle.getMode() != gpu::ShuffleMode::XOR &&
         shuffle.getMode() != gpu::ShuffleMode::IDX))
      return op->emitError("cannot be emulated: only shuffles of i32 in whole "
                           "warps, by xor and by index, can");
    Value exchange = code.get(ctx, Word::Exchange, code.pointer);
    code.store(arith::ExtUIOp::create(builder, loc, code.i64, value),
               code.at(exchange, code.i64, thread));
    suspend(op, 2 * ++places + 1, ctx, thread);
    Value offset =
        arith::ExtUIOp::create(builder, loc, code.i64, shuffle.getOffset());
    Value own = thread;
    if (shuffle.getMode() == gpu::ShuffleMode::IDX)
      own = arith::AndIOp::create(builder, loc, thread, code.integer(-warp));
    Value from = arith::XOrIOp::create(builder, loc, own, offset);
    Value delivered = code.get(ctx, Word::Delivered, code.pointer);
    Value received = code.load(code.at(delivered, code.i64, from), code.i64);
    return replace(
        arith::TruncIOp::create(builder, loc, builder.getI32Type(), received));
  }
  if (isa<gpu::ReturnOp>(op)) {
    if (!waits) {
      func::ReturnOp::create(builder, loc);
    } else {
      Value states = code.get(ctx, Word::States, code.pointer);
      code.store(code.integer(0), code.at(states, code.i64, thread));
      cf::BranchOp::create(builder, loc, cleanup);
    }
    op->erase();
    return success();
  }
  // Shared memory is a pointer by now.
  auto element = [&](ValueRange indices) -> Value {
    return indices.empty() ? code.integer(0)
                           : arith::IndexCastOp::create(builder, loc, code.i64,
                                                        indices.front())
                                 .getResult();
  };
  if (auto load = dyn_cast<memref::LoadOp>(op)) {
    Type type = load.getType();
    Value pointer =
        code.at(load->getOperand(0), type, element(load.getIndices()));
    auto made =
        LLVM::LoadOp::create(builder, loc, type, pointer, bytesOf(type));
    check(made, made->getOpOperand(0), type, bytesOf(type), ctx, thread);
    made->moveAfter(made->getOperand(0).getDefiningOp());
    return replace(made);
  }
  if (auto store = dyn_cast<memref::StoreOp>(op)) {
    Value value = store->getOperand(0);
    Type type = value.getType();
    Value pointer =
        code.at(store->getOperand(1), type, element(store.getIndices()));
    auto made =
        LLVM::StoreOp::create(builder, loc, value, pointer, bytesOf(type));
    check(made, made->getOpOperand(1), type, bytesOf(type), ctx, thread);
    made->moveAfter(made->getOperand(1).getDefiningOp());
    op->erase();
    return success();
  }
  // A scalar in bf16 that is needed in another block of the program would be
  // kept in f32, with a conversion that flushes denormals: memory has its bits.
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    if (load.getType().isBF16()) {
      load.getResult().setType(builder.getI16Type());
      builder.setInsertionPointAfter(op);
      auto number =
          arith::BitcastOp::create(builder, loc, builder.getBF16Type(), load);
      load.getResult().replaceAllUsesExcept(number.getResult(), number);
      builder.setInsertionPoint(op);
    }
    check(op, load.getAddrMutable(), load.getType(),
          load.getAlignment().value_or(1), ctx, thread);
    return success();
  }
  if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
    if (store.getValue().getType().isBF16())
      store.getValueMutable().assign(arith::BitcastOp::create(
          builder, loc, builder.getI16Type(), store.getValue()));
    check(op, store.getAddrMutable(), store.getValue().getType(),
          store.getAlignment().value_or(1), ctx, thread);
    return success();
  }
  if (auto atomic = dyn_cast<LLVM::AtomicRMWOp>(op)) {
    check(op, atomic.getPtrMutable(), atomic.getVal().getType(),
          bytesOf(atomic.getVal().getType()), ctx, thread);
    return success();
  }
  if (isa<gpu::GPUDialect>(op->getDialect()) ||
      isa<memref::MemRefDialect>(op->getDialect()) ||
      isa<LLVM::MaskedLoadOp, LLVM::MaskedStoreOp, LLVM::masked_gather,
          LLVM::masked_scatter, LLVM::AllocaOp>(op))
    return op->emitError("cannot be emulated");
  return success();
}

/// The bytes from the first element of a tensor to the end of its last.
SymExpr spanOf(graph::TensorType type) {
  SymExpr last, any(1);
  for (auto [size, stride] :
       llvm::zip_equal(type.getSizeExprs(), type.getStrideExprs())) {
    last = last + (size - SymExpr(1)) * stride;
    any = any * SymExpr::make(SymExpr::Kind::Min, {SymExpr(1), size});
  }
  return (last + SymExpr(1)) * any * SymExpr(dtypeSize(type.getDtype()));
}

LogicalResult Emulation::makeKernel(Emulation *wide, bool traces,
                                    int64_t maxBlocks, int64_t narrowLimit) {
  Location loc = kernel.getLoc();
  Code code{builder, loc};
  auto entry = func::FuncOp::create(
      builder, loc, kernel.getName(),
      builder.getFunctionType(
          {code.pointer, code.pointer, code.i64, code.i64, code.pointer},
          {code.i64}));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = entry.addEntryBlock();
  builder.setInsertionPointToStart(block);
  Value ctx = block->getArgument(4);
  Type i8 = builder.getI8Type();
  auto part = [&](int64_t offset) { return code.at(ctx, i8, offset); };

  llvm::StringMap<Value> known;
  for (auto [number, symbol] : llvm::enumerate(decided.getSymbols()))
    known[cast<graph::ExprAttr>(symbol).getExpr().str()] =
        code.load(code.at(block->getArgument(1), code.i64, number), code.i64);
  auto valueOf = [&](const SymExpr &expr) -> Value {
    return emitExpr(builder, loc, expr, [&](const SymExpr &part) {
      return known.lookup(part.str());
    });
  };
  auto gridAttr = cast<graph::ExprAttr>(decided.getDecisionsAttr().get("grid"));
  Value blocks = valueOf(gridAttr.getExpr());
  if (!blocks)
    return decided.emitError("`grid` has a symbol that the kernel has not");
  // Few blocks: each has several turns.
  blocks =
      arith::MinSIOp::create(builder, loc, blocks, code.integer(maxBlocks));

  code.set(ctx, Word::Threads, code.integer(threads));
  code.set(ctx, Word::Blocks, blocks);
  code.set(ctx, Word::Fault, code.integer(0));
  code.set(ctx, Word::ArenaBegin, part(arenaAt()));
  code.set(ctx, Word::ArenaEnd, part(arenaAt() + arenaBytes()));
  code.set(ctx, Word::Buffers, block->getArgument(0));
  code.set(ctx, Word::Symbols, block->getArgument(1));
  code.set(ctx, Word::Domain, block->getArgument(3));
  for (int64_t place = 0; place < 3; ++place)
    code.store(code.integer(0), code.at(ctx, code.i64, Word::Status + place));
  constexpr Word arrays[] = {Word::States, Word::Exchange, Word::Delivered,
                             Word::Handles};
  for (auto [number, word] : llvm::enumerate(arrays))
    code.set(ctx, word, part(arraysAt() + 8 * threads * number));
  code.set(ctx, Word::Shared, part(sharedBegin()));
  code.set(ctx, Word::SharedBytes, code.integer(sharedBytes));
  code.set(ctx, Word::Sink, part(sinkAt()));
  code.set(ctx, Word::Bounds, part(boundsAt()));
  Value trace = LLVM::ZeroOp::create(builder, loc, code.pointer);
  if (traces)
    trace = code.load(LLVM::AddressOfOp::create(builder, loc, code.pointer,
                                                "intarsia_simt_trace"),
                      code.pointer);
  code.set(ctx, Word::Trace, trace);

  int64_t pairs = 0;
  auto bound = [&](Value begin, Value bytes) {
    code.store(begin, part(boundsAt() + 16 * pairs));
    code.store(code.at(begin, i8, bytes), part(boundsAt() + 16 * pairs++ + 8));
  };
  auto tensors = llvm::to_vector(decided.getInputs().getTypes());
  llvm::append_range(tensors, decided.getResultTypes());
  for (auto [number, tensor] : llvm::enumerate(tensors)) {
    Value bytes = valueOf(spanOf(cast<graph::TensorType>(tensor)));
    if (!bytes)
      return decided.emitError("a size has a symbol that the kernel has not");
    Value at = code.at(block->getArgument(0), code.pointer, number);
    bound(code.load(at, code.pointer), bytes);
  }
  for (auto [number, offset] : llvm::enumerate(sharedAt)) {
    int64_t end =
        number + 1 < sharedAt.size() ? sharedAt[number + 1] : sharedBytes;
    bound(part(sharedBegin() + offset), code.integer(end - offset));
  }
  bound(code.at(ctx, code.i64, Word::Status), code.integer(24));

  auto run = [&](Emulation &emulation) {
    func::FuncOp thread = emulation.function;
    Value body = func::ConstantOp::create(
        builder, loc, thread.getFunctionType(), thread.getSymNameAttr());
    func::CallOp::create(builder, loc,
                         waits ? "simt_run_coroutines" : "simt_run",
                         TypeRange(), ValueRange{ctx, body});
  };
  if (wide) {
    auto large = decided.getDecisionsAttr().getAs<DictionaryAttr>("wide");
    Value extent = valueOf(large.getAs<graph::ExprAttr>("extent").getExpr());
    if (!extent)
      return decided.emitError("`extent` has a symbol that the kernel has not");
    Value isLarge =
        arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sgt, extent,
                              code.integer(narrowLimit));
    auto branch =
        scf::IfOp::create(builder, loc, isLarge, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard inBranch(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    run(*wide);
    builder.setInsertionPointToStart(branch.elseBlock());
    run(*this);
  } else {
    run(*this);
  }
  // A fault has the number after the kernel's own checks.
  int64_t checks = 0;
  if (auto texts = decided.getDecisionsAttr().getAs<ArrayAttr>("checks"))
    checks = texts.size();
  Value fault = code.get(ctx, Word::Fault, code.i64);
  Value numbered =
      arith::AddIOp::create(builder, loc, fault, code.integer(checks));
  Value isFault = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne,
                                        fault, code.integer(0));
  Value status = code.get(ctx, Word::Status, code.i64);
  // As include/intarsia/Runtime/KernelABI.h has it; the grid has ended.
  for (int64_t place = 0; place < 2; ++place) {
    Value number =
        code.load(code.at(ctx, code.i64, Word::Status + 1 + place), code.i64);
    code.store(number, code.at(ctx, code.i64, place));
  }
  func::ReturnOp::create(
      builder, loc,
      arith::SelectOp::create(builder, loc, isFault, numbered, status)
          .getResult());
  return success();
}

class GPUToSIMT final : public ::intarsia::impl::GPUToSIMTBase<GPUToSIMT> {
public:
  using GPUToSIMTBase::GPUToSIMTBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto code = module.lookupSymbol<gpu::GPUModuleOp>("kernels");
    if (!code)
      return;
    if (failed(convertLoopsToBranches(code)))
      return signalPassFailure();
    OpBuilder builder(code);
    auto emulated = ModuleOp::create(builder, code.getLoc(), "kernels");
    builder.setInsertionPointToEnd(emulated.getBody());
    if (failed(parseSourceString(simt::schedulerText, emulated.getBody(),
                                 ParserConfig(&getContext()))))
      return signalPassFailure();
    if (traces)
      LLVM::GlobalOp::create(builder, code.getLoc(), builder.getI64Type(),
                             /*isConstant=*/false, LLVM::Linkage::External,
                             "intarsia_simt_trace",
                             builder.getI64IntegerAttr(0));

    llvm::StringMap<DictionaryAttr> made;
    WalkResult walked = module.walk([&](graph::KernelOp decided) {
      auto symbol = decided.getDecisionsAttr().getAs<StringAttr>("symbol");
      if (!symbol)
        return WalkResult::advance();
      StringRef name = symbol.getValue();
      DictionaryAttr &decisions = made[name];
      if (!decisions) {
        // That of another device has its code elsewhere.
        auto function = code.lookupSymbol<gpu::GPUFuncOp>(name);
        if (!function)
          return WalkResult::advance();
        Emulation emulation(function, decided, builder);
        std::optional<Emulation> wide;
        if (auto entry =
                decided.getDecisionsAttr().getAs<DictionaryAttr>("wide"))
          wide.emplace(code.lookupSymbol<gpu::GPUFuncOp>(
                           entry.getAs<StringAttr>("symbol").getValue()),
                       decided, builder);
        if (failed(emulation.makeThread()) ||
            (wide && failed(wide->makeThread())) ||
            failed(emulation.makeKernel(wide ? &*wide : nullptr, traces,
                                        maxBlocks, narrowLimit)))
          return WalkResult::interrupt();
        decisions = decisionsOf(decided, name, emulation.scratchBytes());
      }
      decided.setDecisionsAttr(decisions);
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    code.erase();
  }

private:
  /// One call runs the whole grid; the last checks are the emulation's own.
  static DictionaryAttr decisionsOf(graph::KernelOp decided, StringRef name,
                                    int64_t scratchBytes) {
    Builder builder(decided.getContext());
    NamedAttrList decisions(decided.getDecisionsAttr());
    SmallVector<Attribute> checks;
    if (auto own = decided.getDecisionsAttr().getAs<ArrayAttr>("checks"))
      llvm::append_range(checks, own);
    static constexpr StringLiteral faults[] = {
        "accesses memory outside its buffers",
        "accesses memory at an address that is not aligned",
        "has threads that wait for each other at different places"};
    for (StringRef fault : faults) {
      std::string text = ("emulated kernel " + name + " " + fault).str();
      NamedAttrList fields;
      fields.set("text", builder.getStringAttr(text));
      checks.push_back(fields.getDictionary(builder.getContext()));
    }
    decisions.set("checks", builder.getArrayAttr(checks));
    decisions.set("scratch", graph::ExprAttr::get(builder.getContext(),
                                                  SymExpr(scratchBytes)));
    decisions.erase("grain");
    decisions.erase("wide"); // the one function has both
    return decisions.getDictionary(builder.getContext());
  }
};

} // namespace
