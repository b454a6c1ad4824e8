//===- MemoryCache.h - The thread's arena and scratch memory ------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Kernel-to-kernel intermediates live in an arena for the time of one call.
// Each thread keeps the last few arenas for its next calls, because mapping and
// zeroing fresh pages costs more than many kernels.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_MEMORYCACHE_H
#define INTARSIA_LIB_RUNTIME_MEMORYCACHE_H

#include <cstddef>

namespace intarsia::runtime {

/// A block of memory, 64-byte aligned, back in the thread's cache at the end.
class MemoryLease {
public:
  MemoryLease() = default;
  ~MemoryLease();
  MemoryLease(const MemoryLease &) = delete;
  MemoryLease &operator=(const MemoryLease &) = delete;

  /// Throws Error(Operator) when there is no memory.
  void acquire(size_t bytes);
  void *data() const { return memory; }

private:
  void *memory = nullptr;
  size_t capacity = 0;
};

/// At least `bytes`, 64-byte aligned, valid until the thread's next call.
void *threadScratch(size_t bytes);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_MEMORYCACHE_H
