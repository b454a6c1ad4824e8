//===- AssembleCubin.cpp - PTX to machine code ----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Cubin.h with a process of ptxas.
//
//===----------------------------------------------------------------------===//

#include "TemporaryDirectory.h"
#include "intarsia/Target/Cubin.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Triple.h"

#include <cstdlib>
#include <mutex>

using namespace llvm;
using namespace intarsia;

void intarsia::checkArch(StringRef arch) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTargetMC();
  });
  Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  std::unique_ptr<MCSubtargetInfo> subtarget(
      target ? target->createMCSubtargetInfo(triple, "", "") : nullptr);
  // Below sm_70 LLVM has no shuffles that name their threads, and would abort.
  if (!subtarget || archNumber(arch) < 70 || !subtarget->isCPUStringValid(arch))
    throw TargetError("unknown CUDA architecture '" + arch.str() +
                      "'; it is a name such as sm_80 or sm_90, sm_70 or later");
}

int intarsia::archNumber(StringRef arch) {
  int number = 0;
  if (!arch.consume_front("sm_") || arch.consumeInteger(10, number))
    return 0;
  return number;
}

bool intarsia::isSpecificArch(StringRef arch) {
  return !arch.empty() && !isDigit(arch.back());
}

std::string intarsia::findPtxas() {
  if (ErrorOr<std::string> program = sys::findProgramByName("ptxas"))
    return *program;
  const char *home = std::getenv("CUDA_HOME");
  if (!home || !*home)
    return "";
  SmallString<128> folder(home);
  sys::path::append(folder, "bin");
  ErrorOr<std::string> program =
      sys::findProgramByName("ptxas", {StringRef(folder)});
  return program ? *program : "";
}

static std::string contentOf(const std::string &path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

std::string intarsia::assembleCubin(const std::string &ptxas,
                                    const std::string &ptx,
                                    const std::string &arch) {
  TemporaryDirectory folder;
  std::string source = folder.write("k.ptx", ptx),
              result = folder.file("k.cubin"), log = folder.file("log");
  std::string option = "-arch=" + arch, failure;
  int status = sys::ExecuteAndWait(
      ptxas, {ptxas, option, source, "-o", result}, std::nullopt,
      {StringRef(""), StringRef(log), StringRef(log)}, /*SecondsToWait=*/0,
      /*MemoryLimit=*/0, &failure);
  if (status == 0)
    return contentOf(result);
  if (failure.empty())
    failure = StringRef(contentOf(log)).trim().str();
  throw TargetError(ptxas + " cannot assemble the kernels for " + arch + ": " +
                    failure);
}
