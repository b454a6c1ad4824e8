//===- CPUShell.cpp - A kernel as a CPU function --------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements CPUShell.h.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/CPUShell.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace intarsia;

static Value constant(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getI64IntegerAttr(value));
}

static Value elementAt(OpBuilder &builder, Location loc, Value array,
                       int64_t place) {
  return LLVM::GEPOp::create(
      builder, loc, array.getType(), builder.getI64Type(), array,
      ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(static_cast<int32_t>(place))});
}

int64_t CPUShell::scratchBytes(graph::KernelOp kernel) const {
  return kernel::hasChecks(kernel) ? 64 : 0;
}

kernel::KernelEntry CPUShell::open(OpBuilder &builder, graph::KernelOp kernel,
                                   StringRef name) {
  Location loc = kernel.getLoc();
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto function = func::FuncOp::create(
      builder, loc, name,
      builder.getFunctionType({pointer, pointer, i64, i64, pointer}, {i64}));
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);

  auto element = [&](Value array, int64_t number, Type type) -> Value {
    Value at = elementAt(builder, loc, array, number); // pointers, too
    return LLVM::LoadOp::create(builder, loc, type, at, 8);
  };
  kernel::KernelEntry entry;
  entry.function = function;
  int64_t bufferCount = kernel.getInputs().size() + kernel.getNumResults();
  for (int64_t number = 0; number < bufferCount; ++number)
    entry.buffers.push_back(element(block->getArgument(0), number, pointer));
  int64_t symbolCount = kernel.getSymbols().size();
  for (int64_t number = 0; number < symbolCount; ++number)
    entry.symbols.push_back(element(block->getArgument(1), number, i64));
  entry.begin = block->getArgument(2);
  entry.end = block->getArgument(3);
  entry.step = constant(builder, loc, 1);
  entry.scratch = block->getArgument(4);
  if (kernel::hasChecks(kernel)) {
    // Not in the scratch memory itself, which could be one of the buffers for
    // all that LLVM knows.
    entry.status = LLVM::AllocaOp::create(builder, loc, pointer, i64,
                                          constant(builder, loc, 3), 8);
    for (int64_t place = 0; place < 3; ++place)
      LLVM::StoreOp::create(builder, loc, constant(builder, loc, 0),
                            elementAt(builder, loc, entry.status, place), 8);
  }
  return entry;
}

void CPUShell::close(OpBuilder &builder, Location loc,
                     const kernel::KernelEntry &entry) {
  if (!entry.status) {
    func::ReturnOp::create(builder, loc, constant(builder, loc, 0));
    return;
  }
  auto load = [&](int64_t place) -> Value {
    return LLVM::LoadOp::create(builder, loc, builder.getI64Type(),
                                elementAt(builder, loc, entry.status, place),
                                8);
  };
  for (int64_t place : {1, 2}) {
    Value number = load(place);
    Value to = elementAt(builder, loc, entry.scratch, place - 1);
    LLVM::StoreOp::create(builder, loc, number, to, 8);
  }
  func::ReturnOp::create(builder, loc, load(0));
}

FailureOr<kernel::Observations> intarsia::observeTrial(graph::KernelOp kernel,
                                                       kernel::Schedule plan) {
  plan.trial = true;
  OwningOpRef<ModuleOp> scrap = ModuleOp::create(kernel.getLoc());
  OpBuilder builder(kernel.getContext());
  builder.setInsertionPointToEnd(scrap->getBody());
  kernel::KernelEmitter trial(kernel, plan);
  CPUShell shell;
  if (failed(trial.emit(builder, "trial", shell)))
    return failure();
  return trial.observations();
}
