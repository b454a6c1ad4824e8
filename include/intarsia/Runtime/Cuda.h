//===- Cuda.h - A plan's kernels for CUDA -------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The code of CUDA kernels for several GPUs, of which each device gets the one
// that fits. CUDA's driver (libcuda.so.1) is opened when a device is first
// used: nothing of CUDA is needed to have this.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_CUDA_H
#define INTARSIA_RUNTIME_CUDA_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace intarsia::runtime {

/// Kernels of a plan for one kind of GPU: all of ours, or one that another
/// compiler made.
struct CudaImage {
  std::string arch; // "sm_90"
  /// PTX, which the driver compiles for this GPU and those after it; otherwise
  /// a cubin, for this one and those of the same generation after it.
  bool isPtx = false;
  std::string code;
  /// "": ours; else whose kernel it is (plan::Kernel::Variant).
  std::string module = {};
  /// Bytes of dynamic shared memory that a block of that kernel needs.
  int64_t shared = 0;
};

class CudaKernel; // one function of the code, on all devices

/// Loaded once a device, by whoever first needs it there, and unloaded with the
/// last owner. Thread-safe.
class CudaCode {
public:
  /// `origin` names the code in messages: "'model.pt2'", "the program".
  CudaCode(std::vector<CudaImage> images, std::string origin);
  ~CudaCode();
  CudaCode(const CudaCode &) = delete;
  CudaCode &operator=(const CudaCode &) = delete;

  const std::vector<CudaImage> &images() const;

  /// Loads the code that fits a device, of each module. Throws Error(Load) when
  /// there is no driver or device, or none fits: the message lists what there
  /// is.
  void load(int device) const;

  /// The kernel of this name in a module, which lives as long as the code;
  /// whether there is one is known when it is loaded.
  CudaKernel &kernel(const std::string &name,
                     const std::string &module = "") const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
  friend class CudaKernel;
};

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_CUDA_H
