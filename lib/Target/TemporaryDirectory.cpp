//===- TemporaryDirectory.cpp - A private folder, removed after -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// mkdtemp in the first place that takes it: files of a link are small and live
// a millisecond, so memory comes first.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/TemporaryDirectory.h"

#include "intarsia/Target/Kernels.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

using namespace llvm;

intarsia::TemporaryDirectory::TemporaryDirectory() {
  SmallVector<std::string> places;
  if (const char *place = std::getenv("TMPDIR"); place && *place)
    places.push_back(place);
  places.append({"/dev/shm", "/tmp"});
  if (std::string cache = cacheDirectory(); !cache.empty())
    places.push_back(cache);

  std::string reasons;
  for (const std::string &place : places) {
    std::string name = place + "/intarsia-XXXXXX";
    if (mkdtemp(name.data())) {
      path = name;
      return;
    }
    reasons += "\n  " + place + ": " + std::strerror(errno);
  }
  throw TargetError("no folder for temporary files can be written; set TMPDIR "
                    "to one:" +
                    reasons);
}

std::string intarsia::TemporaryDirectory::write(const std::string &name,
                                                StringRef content) const {
  std::string path = file(name);
  std::error_code error;
  raw_fd_ostream stream(path, error);
  if (!error) {
    stream << content;
    stream.close();
    error = stream.error();
    stream.clear_error();
  }
  if (error)
    throw TargetError("can't write " + path + ": " + error.message());
  return path;
}

intarsia::TemporaryDirectory::~TemporaryDirectory() {
  sys::fs::remove_directories(path);
}
