//===- LinkSharedObject.cpp - lld, in this process ------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Links objects with lld's ELF driver as a library. The driver keeps its state
// in globals: two links at once crash, and a process forked in the middle of
// one hangs at its own first. So one mutex is held for each link and across
// fork.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/TemporaryDirectory.h"

#include "intarsia/Target/Target.h"

#include "lld/Common/Driver.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>
#include <pthread.h>

LLD_HAS_DRIVER(elf)

using namespace llvm;
using intarsia::TargetError;

namespace {
/// The one link that may run.
class LinkerLock {
public:
  LinkerLock() {
    static std::once_flag once;
    std::call_once(once, [] {
      // Parent and child each own the mutex after the fork and let it go.
      pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                     [] { mutex().unlock(); });
    });
    mutex().lock();
  }
  ~LinkerLock() { mutex().unlock(); }
  LinkerLock(const LinkerLock &) = delete;
  LinkerLock &operator=(const LinkerLock &) = delete;

private:
  static std::mutex &mutex() {
    static std::mutex theMutex;
    return theMutex;
  }
};
} // namespace

/// Runs lld. A fatal error inside it comes back here by longjmp rather than as
/// exit(), and a full disk as the same rather than as SIGBUS.
static void runLinker(ArrayRef<const char *> arguments) {
  static bool broken = false;
  LinkerLock lock;
  if (broken)
    throw TargetError("lld failed earlier in a way that it can't recover from; "
                      "start a new process");
  std::string output, errors;
  raw_string_ostream outputStream(output), errorStream(errors);
  CrashRecoveryContext::Enable();
  lld::Result result = lld::lldMain(arguments, outputStream, errorStream,
                                    {{lld::Gnu, &lld::elf::link}});
  CrashRecoveryContext::Disable();
  broken = !result.canRunAgain;
  if (result.retCode != 0)
    throw TargetError("lld can't link the kernels: " +
                      StringRef(errors).trim().str());
}

std::string intarsia::linkSharedObject(ArrayRef<std::string> objects) {
  TemporaryDirectory directory;
  std::string output = directory.file("kernels.so");
  std::vector<std::string> inputs;
  for (size_t i = 0; i < objects.size(); ++i)
    inputs.push_back(directory.write(std::to_string(i) + ".o", objects[i]));
  // No SONAME: it would be a name under which dlopen finds an earlier library.
  // The build id is made of the content alone.
  std::vector<const char *> arguments = {"ld.lld",
                                         "-shared",
                                         "--threads=1",
                                         "-z",
                                         "defs",
                                         "-z",
                                         "now",
                                         "--build-id=sha1",
                                         "--gc-sections",
                                         "--hash-style=gnu",
                                         "--no-color-diagnostics",
                                         "-o",
                                         output.c_str()};
  for (const std::string &input : inputs)
    arguments.push_back(input.c_str());
  runLinker(arguments);
  auto buffer = MemoryBuffer::getFile(output, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!buffer)
    throw TargetError("can't read the linked kernels: " +
                      buffer.getError().message());
  return (*buffer)->getBuffer().str();
}
