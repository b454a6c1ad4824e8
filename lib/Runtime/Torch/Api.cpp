//===- Api.cpp - The shim's table and its errors
//------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// `intarsia_torch_api`, the entry of libIntarsiaTorch.so, and the translation
// of C++ exceptions into the calling thread's last error.
//
//===----------------------------------------------------------------------===//

#include "Shim.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <atomic>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;

static std::atomic<void (*)(const std::string &)> warningSink{nullptr};

ShimError &shim::error() {
  thread_local ShimError error;
  return error;
}

int shim::fail(ErrorKind kind, std::string message, std::exception_ptr cause) {
  ShimError &error = shim::error();
  error.kind = kind;
  error.message = std::move(message);
  error.cause = std::move(cause);
  return 1;
}

int shim::failWithCurrentException(ErrorKind kind, const std::string &prefix,
                                   const std::string &suffix) {
  std::exception_ptr cause = std::current_exception();
  std::string message;
  try {
    throw;
  } catch (const Error &e) {
    // Ours already: keeps its kind, and hides no other exception.
    return fail(e.kind, prefix + e.what() + suffix, e.cause);
  } catch (const c10::Error &e) {
    message = e.what_without_backtrace();
  } catch (const std::exception &e) {
    message = e.what();
  } catch (...) {
    message = "an exception that is not a std::exception";
  }
  while (!message.empty() && message.back() == '\n')
    message.pop_back();
  if (message.empty())
    message = "an exception without a message";
  return fail(kind, prefix + message + suffix, cause);
}

void shim::warn(const std::string &message) {
  if (auto sink = warningSink.load())
    sink(message);
}

static void setWarningSink(void (*sink)(const std::string &)) {
  warningSink.store(sink);
}

/// Why the libtorch that is loaded is not the one whose headers we know.
static const char *mismatchOfVersions() {
  // 0xMMmmpp0000000000: major, minor, patch.
  uint64_t loaded = aoti_torch_abi_version();
  int major = int(loaded >> 56), minor = int((loaded >> 48) & 0xff);
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR)
    return nullptr;
  static const std::string text =
      "libIntarsiaTorch.so was built for PyTorch " TORCH_VERSION
      ", but PyTorch " +
      std::to_string(major) + "." + std::to_string(minor) +
      " is loaded; build it again for that version";
  return text.c_str();
}

static TorchApi makeApi() {
  TorchApi api{};
  api.abiVersion = torchApiVersion;
  api.torchVersion = TORCH_VERSION;
  api.mismatch = mismatchOfVersions();
  api.lastError = [] { return &error(); };
  api.setWarningSink = setWarningSink;
  api.operatorSchema = operatorSchema;
  api.operatorOverloads = operatorOverloads;
  api.prepareCall = prepareCall;
  api.destroyCall = destroyCall;
  api.runCall = runCall;
  api.runFake = runFake;
  fillTensorFunctions(api);
  api.readPickle = readPickle;
  api.writePickle = writePickle;
  return api;
}

extern "C" __attribute__((visibility("default"))) const TorchApi *
intarsia::runtime::intarsia_torch_api(int32_t abiVersion) {
  static const TorchApi api = makeApi();
  return abiVersion == torchApiVersion ? &api : nullptr;
}
