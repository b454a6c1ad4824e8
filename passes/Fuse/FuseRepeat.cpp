//===- FuseRepeat.cpp - Compute again what is smaller unread --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `fuse-repeat`: a cheap kernel whose operands take less memory than
// its result (a cast to a wider dtype, a constant) becomes one kernel for each
// kernel that reads it, so that each can take it in.
//
//===----------------------------------------------------------------------===//

#include "passes/Fuse/FuseGraph.h"
#include "passes/Kernel/Body.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::fuse;

namespace intarsia {
#define GEN_PASS_DEF_FUSEREPEAT
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// The rule: reading the operands again moves fewer bytes than reading the
/// result, and computing costs next to nothing.
bool isWorthRepeating(graph::KernelOp kernelOp) {
  if (kernelOp.getNumResults() != 1)
    return false;
  auto bytes = [](Value value) {
    return dtypeSize(cast<graph::TensorType>(value.getType()).getDtype());
  };
  unsigned read = 0, steps = 0;
  for (Value input : kernelOp.getInputs())
    read += bytes(input);
  for (Operation &op : kernelOp.getBody().front()) {
    bool isCostly = kernel::reduces(&op);
    op.walk([&](Operation *inner) {
      isCostly |= kernel::isDear(inner) || isa<tensor::ExtractOp>(inner);
    });
    steps += isa<linalg::GenericOp>(op);
    if (isCostly || steps > 1)
      return false;
  }
  return read < bytes(kernelOp.getResult(0));
}

/// Whether a call writes to memory that a kernel reads: later it would read
/// something else.
bool readsWhatIsWritten(graph::KernelOp kernelOp) {
  return llvm::any_of(
      kernelOp->getBlock()->getOps<graph::CallOp>(), [&](graph::CallOp call) {
        return llvm::any_of(call.getMutates(), [&](int64_t operand) {
          Value base = baseOf(call.getInputs()[operand]);
          return llvm::any_of(kernelOp.getInputs(), [&](Value input) {
            return baseOf(input) == base;
          });
        });
      });
}

/// The kernels that read `value`, through views too; false if anybody else
/// does.
bool collectReaders(Value value, SetVector<Operation *> &readers) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isa<graph::KernelOp>(user)) {
      readers.insert(user);
      return true;
    }
    auto call = dyn_cast<graph::CallOp>(user);
    return call && viewSource(call) == value &&
           collectReaders(call->getResult(0), readers);
  });
}

class FuseRepeat final : public ::intarsia::impl::FuseRepeatBase<FuseRepeat> {
public:
  using FuseRepeatBase::FuseRepeatBase;

  void runOnOperation() override {
    getOperation().walk([&](func::FuncOp function) {
      if (function.isExternal())
        return;
      SmallVector<graph::KernelOp> kernels(
          function.getBody().front().getOps<graph::KernelOp>());
      // What reads a repeated kernel may be repeated itself.
      for (graph::KernelOp kernelOp : llvm::reverse(kernels)) {
        SetVector<Operation *> readers;
        if (!isWorthRepeating(kernelOp) ||
            !collectReaders(kernelOp.getResult(0), readers) ||
            readers.size() < 2 || readsWhatIsWritten(kernelOp))
          continue;
        for (Operation *reader : readers.getArrayRef().drop_front())
          repeatFor(reader, kernelOp);
        ++numRepeated;
      }
    });
  }

private:
  void repeatFor(Operation *reader, graph::KernelOp kernelOp) {
    OpBuilder builder(reader);
    IRMapping copies;
    // A value that is the kernel's result or a view of it, of the copy.
    std::function<Value(Value)> copyOf = [&](Value value) {
      if (Value known = copies.lookupOrNull(value))
        return known;
      Operation *op = value.getDefiningOp();
      if (op != kernelOp)
        copyOf(viewSource(cast<graph::CallOp>(op)));
      builder.clone(*op, copies);
      return copies.lookup(value);
    };
    for (OpOperand &operand : reader->getOpOperands())
      if (producerOf(operand.get()) == kernelOp)
        operand.set(copyOf(operand.get()));
  }
};

} // namespace
