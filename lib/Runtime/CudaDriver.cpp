//===- CudaDriver.cpp - CUDA's driver, opened at run time -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements CudaDriver.h with dlopen. The context of a device is the primary
// one, which CUDA's runtime library, and so PyTorch, uses too.
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"
#include "intarsia/Runtime/Error.h"

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>

using namespace intarsia::runtime;

static Error loadError(const std::string &message) {
  return Error(ErrorKind::Load, message);
}

//===----------------------------------------------------------------------===//
// The driver
//===----------------------------------------------------------------------===//

template <typename Function>
static void find(void *library, const char *name, Function &function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw loadError(std::string("CUDA's driver has no function ") + name +
                    ": it is too old; CUDA 12 or later is needed");
}

static CudaDriver openDriver() {
  const char *variable = std::getenv("INTARSIA_CUDA_DRIVER");
  std::string path = variable && *variable ? variable : "libcuda.so.1";
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    throw loadError(std::string("CUDA's driver cannot be loaded: ") +
                    (reason ? reason : path.c_str()) +
                    ". NVIDIA's driver must be installed (INTARSIA_CUDA_DRIVER "
                    "names it where it is not found)");
  }
  CudaDriver driver;
#define INTARSIA_FIND(name) find(library, #name, driver.name)
#define INTARSIA_FIND_V2(name) find(library, #name "_v2", driver.name)
  INTARSIA_FIND(cuInit);
  INTARSIA_FIND(cuGetErrorName);
  INTARSIA_FIND(cuGetErrorString);
  INTARSIA_FIND(cuDeviceGetCount);
  INTARSIA_FIND(cuDeviceGet);
  INTARSIA_FIND(cuDeviceGetName);
  INTARSIA_FIND(cuDeviceGetAttribute);
  INTARSIA_FIND(cuDevicePrimaryCtxRetain);
  INTARSIA_FIND(cuCtxGetCurrent);
  INTARSIA_FIND_V2(cuCtxPushCurrent);
  INTARSIA_FIND_V2(cuCtxPopCurrent);
  INTARSIA_FIND(cuModuleLoadDataEx);
  INTARSIA_FIND(cuModuleUnload);
  INTARSIA_FIND(cuModuleGetFunction);
  INTARSIA_FIND(cuFuncSetAttribute);
  INTARSIA_FIND(cuLaunchKernel);
  INTARSIA_FIND(cuMemsetD8Async);
  INTARSIA_FIND_V2(cuMemcpyDtoHAsync);
  INTARSIA_FIND(cuStreamSynchronize);
#undef INTARSIA_FIND
#undef INTARSIA_FIND_V2
  if (CUresult error = driver.cuInit(0))
    throw loadError("CUDA's driver cannot be used: " + driver.describe(error));
  return driver;
}

const CudaDriver &intarsia::runtime::cudaDriver() {
  // One that throws is called again the next time.
  static const CudaDriver driver = openDriver();
  return driver;
}

std::string CudaDriver::describe(CUresult error) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(error, &name) || !name)
    return "CUDA error " + std::to_string(error);
  std::string description = name;
  if (!cuGetErrorString(error, &text) && text)
    description += std::string(" (") + text + ")";
  return description;
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

// CUdevice_attribute
static constexpr int capabilityMajor = 75, capabilityMinor = 76,
                     sharedLimitOptIn = 97;

static CudaDevice openDevice(int index) {
  const CudaDriver &driver = cudaDriver();
  auto check = [&](CUresult error) {
    if (error)
      throw loadError("cuda:" + std::to_string(index) +
                      " cannot be used: " + driver.describe(error));
  };
  int count = 0;
  check(driver.cuDeviceGetCount(&count));
  if (index < 0 || index >= count)
    throw loadError("there is no device cuda:" + std::to_string(index) +
                    ": CUDA's driver finds " +
                    (count ? std::to_string(count) : "none"));
  CUdevice handle = 0;
  CudaDevice device;
  char name[256] = "";
  int major = 0, minor = 0;
  check(driver.cuDeviceGet(&handle, index));
  check(driver.cuDeviceGetName(name, sizeof(name), handle));
  check(driver.cuDeviceGetAttribute(&major, capabilityMajor, handle));
  check(driver.cuDeviceGetAttribute(&minor, capabilityMinor, handle));
  check(driver.cuDeviceGetAttribute(&device.sharedLimit, sharedLimitOptIn,
                                    handle));
  check(driver.cuDevicePrimaryCtxRetain(&device.context, handle));
  device.name = name;
  device.capability = 10 * major + minor;
  return device;
}

const CudaDevice &intarsia::runtime::cudaDevice(int index) {
  static std::mutex mutex;
  static std::map<int, CudaDevice> devices;
  std::lock_guard<std::mutex> lock(mutex);
  auto known = devices.find(index);
  if (known == devices.end())
    known = devices.emplace(index, openDevice(index)).first;
  return known->second;
}

CudaGuard::CudaGuard(const CudaDevice &device) {
  const CudaDriver &driver = cudaDriver();
  CUcontext current = nullptr;
  CUresult error = driver.cuCtxGetCurrent(&current);
  if (!error && current != device.context) {
    error = driver.cuCtxPushCurrent(device.context);
    pushed = !error;
  }
  if (error)
    throw Error(ErrorKind::Operator,
                device.name + " cannot be used: " + driver.describe(error));
}

CudaGuard::~CudaGuard() {
  CUcontext popped = nullptr;
  if (pushed)
    cudaDriver().cuCtxPopCurrent(&popped);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

CUstream intarsia::runtime::currentCudaStream(int device) {
  using Function = int32_t (*)(int32_t device, void **stream);
  static const Function function = [] {
    // PyTorch loads it privately in a Python process.
    void *library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void *address = library
                        ? dlsym(library, "aoti_torch_get_current_cuda_stream")
                        : nullptr;
    if (!address)
      throw loadError("this PyTorch has no CUDA: kernels for CUDA need a build "
                      "of it that has");
    return reinterpret_cast<Function>(address);
  }();
  void *stream = nullptr;
  if (function(device, &stream))
    throw Error(ErrorKind::Operator,
                "PyTorch's current stream of cuda:" + std::to_string(device) +
                    " cannot be had");
  return static_cast<CUstream>(stream);
}
