//===- EmitKernels.cpp - One function for each kernel ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements EmitKernels.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/EmitKernels.h"

#include "mlir/IR/AsmState.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

StringRef kernel::deviceOf(graph::KernelOp kernelOp) {
  auto type = cast<graph::TensorType>(kernelOp.getOutputs().front().getType());
  return type.getDevice().split(':').first;
}

bool kernel::hasCode(graph::KernelOp kernelOp) {
  DictionaryAttr decisions = kernelOp.getDecisionsAttr();
  return decisions && decisions.contains("symbol");
}

/// All that decides on a kernel's code, as text.
static std::string textOf(graph::KernelOp kernel) {
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
static std::string nameOf(graph::KernelOp kernel, size_t number) {
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

FailureOr<EmittedKernels> kernel::emitKernels(ArrayRef<graph::KernelOp> kernels,
                                              OpBuilder &builder,
                                              KernelShell &shell) {
  EmittedKernels counts;
  llvm::StringMap<DictionaryAttr> known;
  for (graph::KernelOp kernelOp : kernels) {
    DictionaryAttr &decisions = known[textOf(kernelOp)];
    if (decisions) {
      ++counts.shared;
    } else {
      DictionaryAttr given = kernelOp.getDecisionsAttr();
      if (!given || !given.contains("loops")) {
        kernelOp.emitError("has no loops: run cpu-schedule or cuda-schedule "
                           "first");
        return failure();
      }
      Schedule schedule = Schedule::fromDecisions(kernelOp);
      KernelEmitter emitter(kernelOp, schedule);
      std::string name = nameOf(kernelOp, counts.emitted++);
      if (failed(emitter.emit(builder, name, shell)))
        return failure();
      NamedAttrList list(kernelOp.getDecisionsAttr());
      list.set("symbol", builder.getStringAttr(name));
      // The same for sizes that need positions of 64 bits.
      if (auto wide = given.getAs<DictionaryAttr>("wide")) {
        Schedule wideSchedule = schedule;
        wideSchedule.narrow = false;
        KernelEmitter wideEmitter(kernelOp, wideSchedule);
        if (failed(wideEmitter.emit(builder, name + "_wide", shell)))
          return failure();
        NamedAttrList entry(wide);
        entry.set("symbol", builder.getStringAttr(name + "_wide"));
        list.set("wide", entry.getDictionary(builder.getContext()));
      }
      list.set("scratch", graph::ExprAttr::get(builder.getContext(),
                                               emitter.scratchBytes()));
      if (!emitter.checks().empty())
        list.set("checks", builder.getArrayAttr(emitter.checks()));
      decisions = list.getDictionary(builder.getContext());
    }
    kernelOp.setDecisionsAttr(decisions);
  }
  return counts;
}
