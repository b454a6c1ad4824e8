//===- KernelFile.h - An artifact's kernels as a file -------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// dlopen needs a file. The kernels that an artifact ships are written to the
// cache folder that the compiler uses too, named by the hash of their content,
// or to a private temporary file where that cannot be written.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_KERNELFILE_H
#define INTARSIA_LIB_RUNTIME_KERNELFILE_H

#include <string>
#include <utility>

namespace intarsia::runtime {

class KernelFile {
public:
  KernelFile() = default;
  KernelFile(KernelFile &&other) noexcept { *this = std::move(other); }
  KernelFile &operator=(KernelFile &&other) noexcept {
    std::swap(file, other.file);
    std::swap(temporary, other.temporary);
    return *this;
  }
  ~KernelFile() { loaded(); }

  /// Writes `content`, unless the cache has it. `hash`: its name there; "": it
  /// goes to a temporary file. Throws Error(Load).
  static KernelFile create(const std::string &content, const std::string &hash,
                           const std::string &cacheDirectory);

  const std::string &path() const { return file; }
  /// The library is mapped: a temporary file's name is not needed any more.
  void loaded();

private:
  std::string file;
  bool temporary = false;
};

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_KERNELFILE_H
