//===- CPUEmitKernels.cpp - One function for each kernel ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `cpu-emit-kernels`: every scheduled kernel of the module becomes a
// function of the nested module `@kernels`; equal kernels share one.
// The kernel operations stay and learn the function's name.
//
//===----------------------------------------------------------------------===//

#include "passes/CPU/KernelEmitter.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::cpu;

namespace intarsia {
#define GEN_PASS_DEF_CPUEMITKERNELS
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// All that decides on a kernel's code, as text.
std::string textOf(graph::KernelOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  AsmState state(kernel, OpPrintingFlags().useLocalScope());
  for (Type type : kernel.getInputs().getTypes())
    stream << type << ";";
  for (Type type : kernel.getResultTypes())
    stream << type << ";";
  stream << kernel.getSymbols() << kernel.getDecisionsAttr();
  for (Operation &op : kernel.getBody().front()) {
    op.print(stream, state);
    stream << "\n";
  }
  return text;
}

/// A readable C name: what it computes, and a number.
std::string nameOf(graph::KernelOp kernel, size_t number) {
  std::string name = "k" + std::to_string(number);
  for (Attribute op : kernel.getOps()) {
    StringRef full = cast<StringAttr>(op).getValue();
    StringRef base = full.rsplit("::").second.split('.').first;
    if (name.size() + base.size() > 60)
      break;
    name += "_";
    for (char c : base)
      name += llvm::isAlnum(c) ? c : '_';
  }
  return name;
}

class CPUEmitKernels final : public ::intarsia::impl::CPUEmitKernelsBase<CPUEmitKernels> {
public:
  using CPUEmitKernelsBase::CPUEmitKernelsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<graph::KernelOp> kernels;
    module.walk([&](graph::KernelOp kernel) { kernels.push_back(kernel); });
    if (kernels.empty())
      return;
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto code = ModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToEnd(code.getBody());
    llvm::StringMap<DictionaryAttr> known;
    for (graph::KernelOp kernel : kernels) {
      DictionaryAttr &decisions = known[textOf(kernel)];
      if (!decisions) {
        Schedule schedule = Schedule::fromDecisions(kernel);
        KernelEmitter emitter(kernel, schedule);
        std::string name = nameOf(kernel, numKernels);
        if (failed(emitter.emit(builder, name)))
          return signalPassFailure();
        ++numKernels;
        NamedAttrList list(kernel.getDecisionsAttr());
        list.set("symbol", builder.getStringAttr(name));
        list.set("scratch", graph::ExprAttr::get(&getContext(),
                                                 emitter.scratchBytes()));
        SmallVector<StringRef> messages(emitter.messages().begin(),
                                        emitter.messages().end());
        if (!messages.empty())
          list.set("messages", builder.getStrArrayAttr(messages));
        decisions = list.getDictionary(&getContext());
      } else {
        ++numShared;
      }
      kernel.setDecisionsAttr(decisions);
    }
  }
};

} // namespace
