//===- CudaCode.cpp - Loading and launching CUDA kernels ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Chooses among the images of a plan's kernels the one for a device, loads it,
// and launches functions of it.
//
//===----------------------------------------------------------------------===//

#include "CudaCode.h"
#include "intarsia/Runtime/Error.h"

#include <cctype>
#include <map>
#include <memory>
#include <mutex>

using namespace intarsia::runtime;

//===----------------------------------------------------------------------===//
// Which image
//===----------------------------------------------------------------------===//

namespace {
/// "sm_90a": the number, and whether it is for exactly this GPU.
struct Arch {
  int number = 0;
  bool isExact = false;
  /// "sm_100f": for the GPUs of one generation, as PTX too.
  bool isFamily = false;

  explicit Arch(const std::string &text) {
    size_t at = text.rfind("sm_", 0) == 0 ? 3 : text.size();
    for (;
         at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]));
         ++at)
      number = 10 * number + (text[at] - '0');
    isExact = at < text.size() && text[at] == 'a';
    isFamily = at < text.size() && text[at] == 'f';
  }
};
} // namespace

static bool runsOn(const CudaImage &image, int capability) {
  Arch arch(image.arch);
  if (arch.isExact)
    return arch.number == capability;
  if (image.isPtx && !arch.isFamily)
    return arch.number <= capability;
  return arch.number / 10 == capability / 10 && arch.number <= capability;
}

/// The image of a module for a device: of those that run there, the latest, and
/// rather one that is compiled already. Null when there is none.
static const CudaImage *choose(const std::vector<CudaImage> &images,
                               const std::string &module, int capability) {
  const CudaImage *best = nullptr;
  auto rank = [](const CudaImage &image) {
    Arch arch(image.arch);
    return std::pair(!image.isPtx,
                     2 * arch.number + int(arch.isExact || arch.isFamily));
  };
  for (const CudaImage &image : images)
    if (image.module == module && runsOn(image, capability) &&
        (!best || rank(image) > rank(*best)))
      best = &image;
  return best;
}

static std::string listOf(const std::vector<CudaImage> &images,
                          const std::string &module) {
  std::string text;
  for (const CudaImage &image : images)
    if (image.module == module)
      text += (text.empty() ? "" : ", ") + image.arch +
              (image.isPtx ? " (PTX: it and later)" : "");
  return text.empty() ? "none" : text;
}

//===----------------------------------------------------------------------===//
// CudaCode
//===----------------------------------------------------------------------===//

struct CudaCode::Impl {
  std::vector<CudaImage> images;
  std::string origin;
  std::mutex mutex;
  struct Module {
    CUmodule module;
    CUcontext context;
    int64_t shared;
  };
  using Name = std::pair<std::string, std::string>;
  std::map<std::pair<std::string, int>, Module> modules; // guarded
  std::map<Name, std::unique_ptr<CudaKernel>> kernels;   // guarded

  const Module &load(const std::string &module, int device);
};

CudaCode::CudaCode(std::vector<CudaImage> images, std::string origin)
    : impl(std::make_unique<Impl>()) {
  impl->images = std::move(images);
  impl->origin = std::move(origin);
}

CudaCode::~CudaCode() {
  for (auto &[key, loaded] : impl->modules) {
    const CudaDriver &driver = cudaDriver();
    CUcontext popped = nullptr;
    // Fails when the driver is shutting down, and nothing is left to do.
    if (driver.cuCtxPushCurrent(loaded.context))
      continue;
    driver.cuModuleUnload(loaded.module);
    driver.cuCtxPopCurrent(&popped);
  }
}

const std::vector<CudaImage> &CudaCode::images() const { return impl->images; }

void CudaCode::load(int device) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  for (const CudaImage &image : impl->images)
    impl->load(image.module, device);
}

CudaKernel &CudaCode::kernel(const std::string &name,
                             const std::string &module) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  std::unique_ptr<CudaKernel> &kernel = impl->kernels[{module, name}];
  if (!kernel)
    kernel = std::make_unique<CudaKernel>(*this, module, name);
  return *kernel;
}

/// Under the mutex.
const CudaCode::Impl::Module &CudaCode::Impl::load(const std::string &name,
                                                   int index) {
  if (auto known = modules.find({name, index}); known != modules.end())
    return known->second;
  std::string owner = name.empty() ? origin : origin + ", " + name + ",";
  const CudaDevice *device = nullptr;
  try {
    device = &cudaDevice(index);
  } catch (const Error &error) {
    throw Error(ErrorKind::Load, origin + " has kernels for CUDA (" +
                                     listOf(images, name) + "), but " +
                                     error.what());
  }
  std::string there = "cuda:" + std::to_string(index) + " (" + device->name +
                      ", sm_" + std::to_string(device->capability) + ")";
  const CudaImage *image = choose(images, name, device->capability);
  if (!image)
    throw Error(ErrorKind::Load,
                owner + " has no kernels for " + there + "; it has: " +
                    listOf(images, name) + ". Compile it with --arch sm_" +
                    std::to_string(device->capability) + " beside the others.");
  const CudaDriver &driver = cudaDriver();
  CudaGuard guard(*device);
  // What the driver's compiler says of PTX.
  char log[2048] = "";
  // CU_JIT_ERROR_LOG_BUFFER and its size.
  int options[] = {5, 6};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  CUmodule module = nullptr;
  if (CUresult error = driver.cuModuleLoadDataEx(&module, image->code.c_str(),
                                                 2, options, values)) {
    std::string what = "the kernels of " + owner + " for " + image->arch +
                       " cannot be loaded on " + there + ": " +
                       driver.describe(error);
    if (*log)
      what += std::string("\n") + log;
    // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    if (error == 222)
      what += ". The driver is older than the PTX: update it, or compile where "
              "ptxas is found, which makes code for each --arch.";
    throw Error(ErrorKind::Load, what);
  }
  return modules[{name, index}] = {module, device->context, image->shared};
}

//===----------------------------------------------------------------------===//
// CudaKernel
//===----------------------------------------------------------------------===//

/// After these the context is lost: no later call succeeds.
static bool isSticky(CUresult error) {
  switch (error) {
  case 700: // CUDA_ERROR_ILLEGAL_ADDRESS
  case 702: // CUDA_ERROR_LAUNCH_TIMEOUT
  case 710: // CUDA_ERROR_ASSERT
  case 714: // CUDA_ERROR_HARDWARE_STACK_ERROR
  case 715: // CUDA_ERROR_ILLEGAL_INSTRUCTION
  case 716: // CUDA_ERROR_MISALIGNED_ADDRESS
  case 717: // CUDA_ERROR_INVALID_ADDRESS_SPACE
  case 718: // CUDA_ERROR_INVALID_PC
  case 719: // CUDA_ERROR_LAUNCH_FAILED
    return true;
  default:
    return false;
  }
}

void intarsia::runtime::throwCudaError(const std::string &what,
                                       CUresult error) {
  std::string text = what + ": " + cudaDriver().describe(error);
  if (isSticky(error))
    text += ". A kernel that ran before did this, of this program or of an "
            "operator; with CUDA_LAUNCH_BLOCKING=1 in the environment the "
            "error appears where it happens. CUDA cannot be used in this "
            "process any more";
  else if (error == 900) // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    text += ". A program whose kernels check indices waits for them, and "
            "cannot be captured in a CUDA graph";
  throw Error(ErrorKind::Operator, text);
}

/// Dynamic shared memory that a kernel may have unasked.
static constexpr int64_t usualShared = 48 * 1024;
static constexpr int maxDynamicSharedAttribute = 8;

void CudaKernel::launch(int index, CUstream stream,
                        const CudaGeometry &geometry, void **parameters) {
  std::string device = "cuda:" + std::to_string(index);
  if (index < 0 || index >= deviceLimit)
    throw Error(ErrorKind::Operator, "there is no device " + device);
  OnDevice &here = devices[size_t(index)];
  CUfunction function = here.function.load(std::memory_order_acquire);
  const CudaDriver &driver = cudaDriver();
  if (!function) {
    std::lock_guard<std::mutex> lock(code.impl->mutex);
    const CudaCode::Impl::Module &loaded = code.impl->load(module, index);
    CudaGuard guard(cudaDevice(index));
    if (CUresult error =
            driver.cuModuleGetFunction(&function, loaded.module, name.c_str()))
      throw Error(
          ErrorKind::Load,
          "the kernels of " + code.impl->origin + " do not define " + name +
              " (they belong to another plan): " + driver.describe(error));
    here.shared = loaded.shared;
    here.function.store(function, std::memory_order_release);
  }
  const CudaDevice &data = cudaDevice(index);
  CudaGuard guard(data);
  int64_t shared = geometry.shared < 0 ? here.shared : geometry.shared;
  auto fail = [&](CUresult error) {
    throwCudaError("cannot be launched on " + device + " with " +
                       std::to_string(geometry.blocks) +
                       (geometry.blocksY == 1 && geometry.blocksZ == 1
                            ? ""
                            : " x " + std::to_string(geometry.blocksY) + " x " +
                                  std::to_string(geometry.blocksZ)) +
                       " blocks of " + std::to_string(geometry.threads) +
                       " threads and " + std::to_string(shared) +
                       " bytes of shared memory",
                   error);
  };
  if (shared > usualShared &&
      shared > here.allowed.load(std::memory_order_relaxed)) {
    if (shared > data.sharedLimit)
      throw Error(ErrorKind::Operator,
                  "needs " + std::to_string(shared) +
                      " bytes of shared memory, and a block on " + device +
                      " (" + data.name + ") has at most " +
                      std::to_string(data.sharedLimit));
    if (CUresult error = driver.cuFuncSetAttribute(
            function, maxDynamicSharedAttribute, int(shared)))
      fail(error);
    here.allowed.store(shared, std::memory_order_relaxed);
  }
  // Blocks beyond the limit are not needed: threads of ours go through a loop.
  constexpr int64_t gridLimit = 0x7fffffff;
  if (CUresult error = driver.cuLaunchKernel(
          function, unsigned(std::min(geometry.blocks, gridLimit)),
          unsigned(geometry.blocksY), unsigned(geometry.blocksZ),
          unsigned(geometry.threads), 1, 1, unsigned(shared), stream,
          parameters, nullptr))
    fail(error);
}
