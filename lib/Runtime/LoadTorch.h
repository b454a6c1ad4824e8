//===- LoadTorch.h - Libraries that the runtime loads -------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Internal to the runtime library; the public part is in Runtime/Torch.h.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_LOADTORCH_H
#define INTARSIA_LIB_RUNTIME_LOADTORCH_H

#include "intarsia/Runtime/Torch.h"

namespace intarsia::runtime {

/// Makes PyTorch's CUDA kernels available in a process that only has the CPU
/// library. Throws Error(Load).
void loadTorchCuda();

/// Throws what the shim's last call on this thread failed with.
[[noreturn]] void throwShimError();

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_LOADTORCH_H
