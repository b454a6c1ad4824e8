//===- LinkInMemory.cpp - Kernels where no file can be executed -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Links objects into this process by LLVM's JITLink. Used only where dlopen
// can't be: debuggers and perf don't see such code, and processes don't share
// it.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Target/Kernels.h"
#include "lib/Target/TargetMachine.h"

#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"

using namespace llvm;
using intarsia::TargetError;

template <typename T>
static T check(Expected<T> value) {
  if (!value)
    throw TargetError("the kernels can't be linked into memory: " +
                      toString(value.takeError()));
  return std::move(*value);
}

namespace {
class JITLinkKernels final : public intarsia::MemoryKernels {
public:
  JITLinkKernels(ArrayRef<std::string> objects,
                 const intarsia::ResolvedTarget &target) {
    intarsia::lookupTarget(target.triple);
    // No platform support: kernels have no initialisers, no thread-local
    // variables, no exceptions.
    jit = check(orc::LLJITBuilder()
                    .setJITTargetMachineBuilder(
                        orc::JITTargetMachineBuilder(Triple(target.triple)))
                    .setObjectLinkingLayerCreator(
                        [](orc::ExecutionSession &session)
                            -> Expected<std::unique_ptr<orc::ObjectLayer>> {
                          auto memory =
                              jitlink::InProcessMemoryManager::Create();
                          if (!memory)
                            return memory.takeError();
                          return std::make_unique<orc::ObjectLinkingLayer>(
                              session, std::move(*memory));
                        })
                    .setPlatformSetUp(orc::setUpInactivePlatform)
                    .create());
    for (const std::string &object : objects)
      if (Error error = jit->addObjectFile(
              MemoryBuffer::getMemBufferCopy(object, "kernels")))
        throw TargetError("the kernels can't be linked into memory: " +
                          toString(std::move(error)));
  }

  void *lookup(StringRef name) const override {
    auto address = jit->lookup(name);
    if (!address) {
      consumeError(address.takeError());
      return nullptr;
    }
    return address->toPtr<void *>();
  }

private:
  std::unique_ptr<orc::LLJIT> jit;
};
} // namespace

std::shared_ptr<intarsia::MemoryKernels>
intarsia::linkInMemory(ArrayRef<std::string> objects,
                       const ResolvedTarget &target) {
  return std::make_shared<JITLinkKernels>(objects, target);
}
