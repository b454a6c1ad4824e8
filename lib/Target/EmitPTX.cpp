//===- EmitPTX.cpp - LLVM dialect to PTX ----------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements PTX.h on LLVM's NVPTX backend.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Target/Cubin.h"
#include "intarsia/Target/PTX.h"
#include "lib/Target/LLVMModule.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace llvm;
using intarsia::TargetError;

static constexpr StringRef tripleText = "nvptx64-nvidia-cuda";

static const Target &lookupNVPTX() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  std::string error;
  const Target *target =
      TargetRegistry::lookupTarget(Triple(tripleText), error);
  if (!target)
    throw TargetError("this LLVM can't generate PTX: " + error);
  return *target;
}

static std::unique_ptr<TargetMachine>
createTargetMachine(const std::string &arch) {
  const Target &target = lookupNVPTX();
  Triple triple(tripleText);
  intarsia::checkArch(arch);
  llvm::TargetOptions options;
  // Only an explicit llvm.fma becomes a fused multiply-add; the others get the
  // suffix .rn, which keeps ptxas from making one of them.
  options.AllowFPOpFusion = FPOpFusion::Strict;
  return std::unique_ptr<TargetMachine>(target.createTargetMachine(
      triple, arch, /*Features=*/"", options, Reloc::PIC_, std::nullopt,
      CodeGenOptLevel::Aggressive));
}

/// A kernel calls nobody: neither libdevice nor libm is there.
static void checkNoExternalFunction(StringRef ptx) {
  SmallVector<StringRef> lines;
  ptx.split(lines, '\n');
  std::string names;
  for (auto [number, line] : enumerate(lines)) {
    if (!line.contains(".extern .func"))
      continue;
    // The name stands on the same line, after a result in parentheses, or on
    // the next.
    StringRef rest = line.split(".extern .func").second;
    if (rest.contains(')'))
      rest = rest.split(')').second;
    if (rest.trim().empty() && number + 1 < lines.size())
      rest = lines[number + 1];
    names += (names.empty() ? "'" : ", '") +
             rest.trim().split('(').first.trim(" \t(;").str() + "'";
  }
  if (!names.empty())
    throw TargetError(
        "the kernels would call " + names +
        ", but a kernel must not depend on a library; an operation was left to "
        "LLVM that has no instruction on NVIDIA GPUs");
}

std::string intarsia::emitPTX(mlir::ModuleOp module, const std::string &arch) {
  std::unique_ptr<TargetMachine> machine = createTargetMachine(arch);
  auto kernels = module.getOps<mlir::gpu::GPUModuleOp>();
  if (kernels.empty())
    throw TargetError("there is no gpu.module to make PTX of");
  LLVMContext context;
  std::unique_ptr<llvm::Module> translated =
      translate(*kernels.begin(), context);
  translated->setTargetTriple(Triple(tripleText));
  translated->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *translated)
    // A loop must not be turned into a call of memset or memcpy.
    if (!function.isDeclaration())
      function.addFnAttr("no-builtins");
  checkModule(*translated);
  optimize(*translated, *machine);
  std::string ptx(
      generateCode(*translated, *machine, CodeGenFileType::AssemblyFile));
  checkNoExternalFunction(ptx);
  return ptx;
}
