//===- LLVMModule.cpp - LLVM IR on the way to code ------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements LLVMModule.h.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/LLVMModule.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace llvm;
using intarsia::TargetError;

std::unique_ptr<llvm::Module> intarsia::translate(mlir::Operation *module,
                                                  LLVMContext &context) {
  // Registration is not thread-safe; a context that is shared by two threads is
  // possible.
  static std::mutex registration;
  {
    std::lock_guard lock(registration);
    mlir::registerBuiltinDialectTranslation(*module->getContext());
    mlir::registerLLVMDialectTranslation(*module->getContext());
    mlir::registerGPUDialectTranslation(*module->getContext());
    mlir::registerNVVMDialectTranslation(*module->getContext());
  }
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(module->getContext(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          messages += "\n  " + diagnostic.str();
                                          return mlir::success();
                                        });
  std::unique_ptr<llvm::Module> result =
      mlir::translateModuleToLLVMIR(module, context, "intarsia");
  if (!result)
    throw TargetError("the kernels can't be translated to LLVM IR:" + messages);
  return result;
}

/// Refuses what would make results differ from eager's: contraction, and every
/// relaxation but the order of additions and which zero an extremum is. Such a
/// flag is a fault of a pass.
static void checkFastMathFlags(const llvm::Module &module) {
  for (const llvm::Function &function : module)
    for (const Instruction &instruction : instructions(function)) {
      const auto *op = dyn_cast<FPMathOperator>(&instruction);
      if (!op)
        continue;
      FastMathFlags flags = op->getFastMathFlags();
      flags.setAllowReassoc(false);
      if (auto *call = dyn_cast<IntrinsicInst>(&instruction);
          call && (call->getIntrinsicID() == Intrinsic::maximum ||
                   call->getIntrinsicID() == Intrinsic::minimum))
        flags.setNoSignedZeros(false);
      if (!flags.any())
        continue;
      std::string text;
      raw_string_ostream(text) << instruction;
      throw TargetError("kernel '" + function.getName().str() +
                        "' has an instruction with a fast-math flag other than "
                        "reassoc:" +
                        text);
    }
}

void intarsia::checkModule(const llvm::Module &module) {
  checkFastMathFlags(module);
  std::string problem;
  raw_string_ostream problemStream(problem);
  if (verifyModule(module, &problemStream))
    throw TargetError("the kernels are not valid LLVM IR: " + problem);
}

void intarsia::optimize(llvm::Module &module, TargetMachine &machine) {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager callGraph;
  ModuleAnalysisManager modules;
  // Loops are vectorised and unrolled already; LLVM, told the trip count, would
  // unroll a row's whole loop, which halved the speed of kernels with static
  // sizes.
  PipelineTuningOptions tuning;
  tuning.LoopUnrolling = false;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(OptimizationLevel::O3)
      .run(module, modules);
}

SmallString<0> intarsia::generateCode(llvm::Module &module,
                                      TargetMachine &machine,
                                      CodeGenFileType form) {
  SmallString<0> code;
  raw_svector_ostream stream(code);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, form))
    throw TargetError("LLVM can't generate code for " +
                      machine.getTargetTriple().str());
  passes.run(module);
  return code;
}
