//===- Kernels.h - From kernels to code that can be called --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiles all kernels of a graph to one shared object and keeps it in the
// cache folder:
//
//   <cache>/keys/<hash of kernels, target and compiler>    holds <content hash>
//   <cache>/kernels/<content hash>.so                      the shared object
//
// A second process that meets the same kernels generates no code. Files appear
// by renaming, and a shared object is used only if its content has the hash
// that is its name, so that a truncated or damaged entry is simply built again.
//
// <cache> is $INTARSIA_CACHE_DIR, else $XDG_CACHE_HOME/intarsia, else
// ~/.cache/intarsia. If it can't be written, or code in it can't be executed,
// the kernels are linked into memory by LLVM's JITLink, with one warning.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TARGET_KERNELS_H
#define INTARSIA_TARGET_KERNELS_H

#include "intarsia/Target/Target.h"

#include <memory>
#include <string>
#include <vector>

namespace intarsia {

/// Kernels linked into this process's memory; unmapped with the last owner.
class MemoryKernels {
public:
  virtual ~MemoryKernels() = default;
  /// The address of a kernel; null if there is none of that name.
  virtual void *lookup(llvm::StringRef name) const = 0;
};

/// Links objects into memory. Throws TargetError.
std::shared_ptr<MemoryKernels> linkInMemory(llvm::ArrayRef<std::string> objects,
                                            const ResolvedTarget &target);

struct KernelCode {
  /// The ELF shared object, which an artifact ships.
  std::string sharedObject;
  /// Where it lies in the cache: the file to dlopen. Empty if it is in memory.
  std::string path;
  /// Set exactly if `path` is empty.
  std::shared_ptr<MemoryKernels> memory;
  /// What it was compiled for, and what a machine needs in order to run it.
  ResolvedTarget target;
  /// Whether it was found in the cache.
  bool fromCache = false;
};

/// Compiles `kernels`, functions of the LLVM dialect. Each function that is not
/// private can be found by its name. The module is not changed. Throws
/// TargetError. Any thread may call it.
KernelCode compileKernels(mlir::ModuleOp kernels, const TargetOptions &options);

/// Puts a shared object that another process compiled into the cache and
/// returns its path. Throws TargetError where the cache can't be used.
std::string storeKernels(llvm::StringRef sharedObject);

/// The code generator's version, the host's processor and its features: kernels
/// of another host description are not to be run here.
std::string hostDescription();

/// The cache folder's path; empty if no environment variable tells where.
std::string cacheDirectory();

} // namespace intarsia

#endif // INTARSIA_TARGET_KERNELS_H
