//===- TemporaryDirectory.h - A private folder, removed after -----*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A folder that only this user can enter, for the files of one link.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_TARGET_TEMPORARYDIRECTORY_H
#define INTARSIA_LIB_TARGET_TEMPORARYDIRECTORY_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace intarsia {

class TemporaryDirectory {
public:
  /// Throws TargetError if no place for temporary files can be written.
  TemporaryDirectory();
  /// Removes the folder and all in it.
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

  /// The path of a file in the folder.
  std::string file(const std::string &name) const { return path + "/" + name; }

  /// Writes a file, whose path it returns. Throws TargetError.
  std::string write(const std::string &name, llvm::StringRef content) const;

private:
  std::string path;
};

} // namespace intarsia

#endif // INTARSIA_LIB_TARGET_TEMPORARYDIRECTORY_H
