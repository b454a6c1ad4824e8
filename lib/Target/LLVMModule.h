//===- LLVMModule.h - LLVM IR on the way to code ----------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The steps from the LLVM dialect to code that are the same for every target.
// All of them throw TargetError.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_TARGET_LLVMMODULE_H
#define INTARSIA_LIB_TARGET_LLVMMODULE_H

#include "intarsia/Target/Target.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CodeGen.h"

#include <memory>

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
} // namespace llvm

namespace intarsia {

/// Translates a module (builtin or gpu) in which only the LLVM and NVVM
/// dialects are left.
std::unique_ptr<llvm::Module> translate(mlir::Operation *module,
                                        llvm::LLVMContext &context);

/// Refuses IR that is not valid, or whose results would differ from eager's.
void checkModule(const llvm::Module &module);

/// Runs LLVM's standard optimisations.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

/// Generates code of the form.
llvm::SmallString<0> generateCode(llvm::Module &module,
                                  llvm::TargetMachine &machine,
                                  llvm::CodeGenFileType form);

} // namespace intarsia

#endif // INTARSIA_LIB_TARGET_LLVMMODULE_H
