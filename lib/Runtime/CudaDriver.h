//===- CudaDriver.h - CUDA's driver, opened at run time -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The functions of libcuda.so.1 that launching kernels takes, and PyTorch's
// current stream. No header of CUDA is used: the driver's interface is C and
// does not change.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_CUDADRIVER_H
#define INTARSIA_LIB_RUNTIME_CUDADRIVER_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace intarsia::runtime {

// As cuda.h has them.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
using CUcontext = CUctx_st *;
using CUmodule = CUmod_st *;
using CUfunction = CUfunc_st *;
using CUstream = CUstream_st *;

/// The driver's functions, by the names that the library exports.
struct CudaDriver {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuGetErrorName)(CUresult error, const char **text);
  CUresult (*cuGetErrorString)(CUresult error, const char **text);
  CUresult (*cuDeviceGetCount)(int *count);
  CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
  CUresult (*cuDeviceGetName)(char *name, int length, CUdevice device);
  CUresult (*cuDeviceGetAttribute)(int *value, int attribute, CUdevice device);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
  CUresult (*cuCtxGetCurrent)(CUcontext *context);
  CUresult (*cuCtxPushCurrent)(CUcontext context);
  CUresult (*cuCtxPopCurrent)(CUcontext *context);
  CUresult (*cuModuleLoadDataEx)(CUmodule *module, const void *image,
                                 unsigned optionCount, int *options,
                                 void **values);
  CUresult (*cuModuleUnload)(CUmodule module);
  CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module,
                                  const char *name);
  CUresult (*cuFuncSetAttribute)(CUfunction function, int attribute, int value);
  CUresult (*cuLaunchKernel)(CUfunction function, unsigned gridX,
                             unsigned gridY, unsigned gridZ, unsigned blockX,
                             unsigned blockY, unsigned blockZ,
                             unsigned sharedBytes, CUstream stream,
                             void **parameters, void **extra);
  CUresult (*cuMemsetD8Async)(CUdeviceptr memory, unsigned char value,
                              size_t count, CUstream stream);
  CUresult (*cuMemcpyDtoHAsync)(void *to, CUdeviceptr from, size_t bytes,
                                CUstream stream);
  CUresult (*cuStreamSynchronize)(CUstream stream);

  /// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
  std::string describe(CUresult error) const;
};

/// The driver, initialised. Throws Error(Load) without one, and when it finds
/// no GPU; the next call tries again. Thread-safe.
const CudaDriver &cudaDriver();

/// A device as CUDA_VISIBLE_DEVICES counts them, with PyTorch's context on it,
/// which is kept until the process ends.
struct CudaDevice {
  CUcontext context = nullptr;
  std::string name; // "NVIDIA H200"
  /// Compute capability: 90 for 9.0.
  int capability = 0;
  /// Bytes of shared memory that a block may have.
  int sharedLimit = 0;
};

/// Throws Error(Load) when there is no such device. Thread-safe, cached.
const CudaDevice &cudaDevice(int index);

/// Makes a device current for the calling thread, and what was current again.
class CudaGuard {
public:
  explicit CudaGuard(const CudaDevice &device);
  ~CudaGuard();
  CudaGuard(const CudaGuard &) = delete;
  CudaGuard &operator=(const CudaGuard &) = delete;

private:
  bool pushed = false;
};

/// PyTorch's current stream of a device in the calling thread.
CUstream currentCudaStream(int device);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_CUDADRIVER_H
