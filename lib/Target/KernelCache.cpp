//===- KernelCache.cpp - Shared objects by their content ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Two small files an entry: one named by the key holds the hash of the content,
// one named by that hash holds the content. Both are written under another name
// and renamed, so that a reader sees all or nothing; what a crash of the
// machine left incomplete fails the comparison of hashes and is written anew.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/KernelCache.h"

#include "intarsia/Support/ExecutableFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using intarsia::KernelCache;

std::string intarsia::hashContent(StringRef content) {
  return toHex(BLAKE3::hash<32>(arrayRefFromStringRef(content)),
               /*LowerCase=*/true);
}

static std::optional<std::string> readFile(const std::string &path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false,
                                      /*IsVolatile=*/true);
  if (!buffer)
    return std::nullopt;
  return (*buffer)->getBuffer().str();
}

static std::error_code writeAtomically(const std::string &path,
                                       StringRef content) {
  int file;
  SmallString<128> temporary;
  if (std::error_code error =
          sys::fs::createUniqueFile(path + ".%%%%%%%%.tmp", file, temporary))
    return error;
  std::error_code error;
  {
    raw_fd_ostream stream(file, /*shouldClose=*/true);
    stream << content;
    stream.close();
    error = stream.error();
    stream.clear_error();
  }
  if (!error)
    error = sys::fs::rename(temporary, path);
  if (error)
    sys::fs::remove(temporary);
  return error;
}

std::string KernelCache::keyPath(const std::string &key) const {
  return directory + "/keys/" + key;
}

std::string KernelCache::contentPath(const std::string &hash) const {
  return directory + "/kernels/" + hash + ".so";
}

std::optional<KernelCache::Entry>
KernelCache::find(const std::string &key) const {
  std::optional<std::string> hash = readFile(keyPath(key));
  if (!hash || hash->size() != 64 || !all_of(*hash, isHexDigit))
    return std::nullopt;
  std::string path = contentPath(*hash);
  std::optional<std::string> content = readFile(path);
  if (!content || hashContent(*content) != *hash || !isExecutable(path))
    return std::nullopt;
  return Entry{path, std::move(*content)};
}

std::optional<std::string> KernelCache::store(StringRef content,
                                              std::string &reason) const {
  if (directory.empty()) {
    reason = "neither INTARSIA_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set";
    return std::nullopt;
  }
  std::string hash = hashContent(content);
  std::string path = contentPath(hash);
  for (const char *folder : {"/keys", "/kernels"})
    if (std::error_code error = sys::fs::create_directories(
            directory + folder, /*IgnoreExisting=*/true,
            sys::fs::perms::owner_all)) {
      reason = error.message();
      return std::nullopt;
    }
  // The same content may be there already, perhaps in use: a mapped file must
  // not change, and renaming over it doesn't change it.
  std::optional<std::string> present = readFile(path);
  if (!present || *present != content)
    if (std::error_code error = writeAtomically(path, content)) {
      reason = error.message();
      return std::nullopt;
    }
  if (!isExecutable(path)) {
    reason = "files in it can't be executed (a noexec mount?)";
    return std::nullopt;
  }
  return path;
}

std::optional<std::string> KernelCache::store(const std::string &key,
                                              StringRef content,
                                              std::string &reason) const {
  std::optional<std::string> path = store(content, reason);
  // A failure here only means that the next process compiles again.
  if (path)
    (void)writeAtomically(keyPath(key), hashContent(content));
  return path;
}
