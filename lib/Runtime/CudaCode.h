//===- CudaCode.h - Launching CUDA kernels ------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the executor does with the kernels of intarsia/Runtime/Cuda.h.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_CUDACODE_H
#define INTARSIA_LIB_RUNTIME_CUDACODE_H

#include "CudaDriver.h"
#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Cuda.h"

#include <array>
#include <atomic>
#include <set>

namespace intarsia::runtime {

struct CudaGeometry {
  int64_t blocks = 1, threads = 1;
  /// Bytes of dynamic shared memory; -1: what the image says.
  int64_t shared = 0;
  int64_t blocksY = 1, blocksZ = 1;
};

class CudaKernel {
public:
  CudaKernel(const CudaCode &code, std::string module, std::string name)
      : code(code), module(std::move(module)), name(std::move(name)) {}

  /// Launches on PyTorch's current stream of a device. `parameters` are
  /// addresses of the kernel's parameters. Throws Error: what the driver says,
  /// the device and the geometry. The kernel may fail later.
  void launch(int device, CUstream stream, const CudaGeometry &geometry,
              void **parameters);

private:
  struct OnDevice {
    std::atomic<CUfunction> function{nullptr};
    int64_t shared = 0; // as its image says; set before `function`
    /// Dynamic shared memory that it was allowed, beyond the usual limit.
    std::atomic<int64_t> allowed{0};
  };
  static constexpr int deviceLimit = 64; // as PyTorch's

  const CudaCode &code;
  std::string module, name;
  std::array<OnDevice, deviceLimit> devices;
};

/// The GPUs that a plan's tensors are on.
std::set<int> cudaDevices(const plan::Plan &plan);

/// Throws for an error of the driver that can be an earlier kernel's.
/// `what` begins the message: "kernel k0 cannot be launched on cuda:0".
[[noreturn]] void throwCudaError(const std::string &what, CUresult error);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_CUDACODE_H
