//===- MemoryCache.cpp - The thread's arena and scratch memory
//----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A small free list per thread. Calls nest, so it holds more than one block.
//
//===----------------------------------------------------------------------===//

#include "MemoryCache.h"
#include "intarsia/Runtime/Error.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace intarsia::runtime;

namespace {

constexpr size_t alignment = 64;
constexpr size_t cachedBlocks = 2;

void *allocate(size_t bytes) {
  if (void *memory = std::aligned_alloc(alignment, bytes))
    return memory;
  throw Error(ErrorKind::Operator, "out of memory: " + std::to_string(bytes) +
                                       " bytes of temporary memory for the "
                                       "compiled kernels");
}

size_t roundUp(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

struct Cache {
  std::vector<std::pair<size_t, void *>> blocks;
  ~Cache() {
    for (auto &block : blocks)
      std::free(block.second);
  }
};

Cache &cache() {
  thread_local Cache cache;
  return cache;
}

struct ScratchBlock {
  void *memory = nullptr;
  size_t capacity = 0;
  ~ScratchBlock() { std::free(memory); }
};

} // namespace

void MemoryLease::acquire(size_t bytes) {
  auto &blocks = cache().blocks;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i].first >= bytes) {
      capacity = blocks[i].first;
      memory = blocks[i].second;
      blocks.erase(blocks.begin() + long(i));
      return;
    }
  size_t size = roundUp(bytes);
  memory = allocate(size);
  capacity = size;
}

MemoryLease::~MemoryLease() {
  if (!memory)
    return;
  auto &blocks = cache().blocks;
  if (blocks.size() >= cachedBlocks) {
    // Keep the larger ones: they serve every call.
    auto smallest = std::min_element(blocks.begin(), blocks.end());
    if (smallest->first < capacity) {
      std::swap(smallest->first, capacity);
      std::swap(smallest->second, memory);
    }
    std::free(memory);
    return;
  }
  blocks.emplace_back(capacity, memory);
}

void *intarsia::runtime::threadScratch(size_t bytes) {
  thread_local ScratchBlock block;
  if (block.capacity < bytes) {
    size_t size = roundUp(bytes);
    void *memory = allocate(size);
    std::free(block.memory);
    block.memory = memory;
    block.capacity = size;
  }
  return block.memory;
}
