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

using namespace mlir;
using namespace intarsia;

static Value constant(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getI64IntegerAttr(value));
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
    Value at = LLVM::GEPOp::create(
        builder, loc, pointer, type, array,
        ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(static_cast<int32_t>(number))});
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
    entry.status = LLVM::AllocaOp::create(builder, loc, pointer, i64,
                                          constant(builder, loc, 1), 8);
    LLVM::StoreOp::create(builder, loc, constant(builder, loc, 0), entry.status,
                          8);
  }
  return entry;
}

void CPUShell::close(OpBuilder &builder, Location loc,
                     const kernel::KernelEntry &entry) {
  Value result = entry.status
                     ? LLVM::LoadOp::create(builder, loc, builder.getI64Type(),
                                            entry.status, 8)
                           .getResult()
                     : constant(builder, loc, 0);
  func::ReturnOp::create(builder, loc, result);
}
