//===- KernelCache.h - Shared objects by their content ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The cache folder that Kernels.h describes.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_TARGET_KERNELCACHE_H
#define INTARSIA_LIB_TARGET_KERNELCACHE_H

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace intarsia {

class KernelCache {
public:
  struct Entry {
    std::string path;
    std::string content;
  };

  /// A cache in `directory`, which need not exist.
  explicit KernelCache(std::string directory)
      : directory(std::move(directory)) {}

  /// The entry stored under `key`; nothing if there is none, it is damaged, or
  /// code in it can't be executed.
  std::optional<Entry> find(const std::string &key) const;

  /// Stores a shared object and returns its path. Nothing if the folder can't
  /// be written or code in it can't be executed; `reason` then says why.
  std::optional<std::string> store(llvm::StringRef content,
                                   std::string &reason) const;
  /// The same, to be found under `key`.
  std::optional<std::string> store(const std::string &key,
                                   llvm::StringRef content,
                                   std::string &reason) const;

private:
  std::string keyPath(const std::string &key) const;
  std::string contentPath(const std::string &hash) const;

  std::string directory;
};

/// BLAKE3 in hexadecimal digits.
std::string hashContent(llvm::StringRef content);

} // namespace intarsia

#endif // INTARSIA_LIB_TARGET_KERNELCACHE_H
