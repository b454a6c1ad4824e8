//===- KernelABI.h - What a compiled CPU kernel looks like --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every CPU kernel of a graph is one function of this type in the graph's
// shared object. The runtime calls it through PyTorch's thread pool.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_KERNELABI_H
#define INTARSIA_RUNTIME_KERNELABI_H

#include <cstdint>

extern "C" {
/// Runs iterations [begin, end) of the kernel's parallel loop.
///   buffers  the first element (data_ptr, storage offset included) of each
///            input, then of each output
///   symbols  the kernel's index arguments
///   scratch  at least the bytes that the launch step says, 64-byte aligned,
///            private to this call; null when 0
/// Returns 0, or the number (from 1) of the check that failed. Of an index that
/// data decided, its value and the size of the dimension are then the first two
/// int64_t of `scratch`. Never throws, keeps no state.
typedef int64_t (*IntarsiaKernel)(void *const *buffers, const int64_t *symbols,
                                  int64_t begin, int64_t end, void *scratch);
}

#endif // INTARSIA_RUNTIME_KERNELABI_H
