//===- KernelFile.cpp - An artifact's kernels as a file
//-----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Files appear by renaming, and a file in the cache is used only if its content
// is what the artifact ships: a damaged one is replaced, by a new file, because
// the old one may be mapped by another process.
//
//===----------------------------------------------------------------------===//

#include "KernelFile.h"
#include "intarsia/Runtime/Error.h"
#include "intarsia/Support/ExecutableFile.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace intarsia;
using namespace intarsia::runtime;
namespace fs = std::filesystem;

static std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// As the compiler finds it (include/intarsia/Target/Kernels.h).
static std::string defaultCache() {
  if (std::string path = environment("INTARSIA_CACHE_DIR"); !path.empty())
    return path;
  if (std::string path = environment("XDG_CACHE_HOME"); !path.empty())
    return path + "/intarsia";
  if (std::string path = environment("HOME"); !path.empty())
    return path + "/.cache/intarsia";
  return "";
}

static bool hasContent(const std::string &path, const std::string &content) {
  std::error_code error;
  if (fs::file_size(path, error) != content.size() || error)
    return false;
  std::ifstream stream(path, std::ios::binary);
  std::string present((std::istreambuf_iterator<char>(stream)),
                      std::istreambuf_iterator<char>());
  return present == content;
}

/// A new file `<prefix>XXXXXX` with the content; "" when it cannot be written.
static std::string writeUnique(const std::string &prefix,
                               const std::string &content) {
  std::string name = prefix + "XXXXXX";
  int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0)
    return "";
  size_t done = 0;
  while (done < content.size()) {
    ssize_t count = write(file, content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    done += size_t(count);
  }
  bool complete = close(file) == 0 && done == content.size();
  if (complete)
    return name;
  unlink(name.c_str());
  return "";
}

/// The path in the cache; "" when there can be none.
static std::string inCache(const std::string &content, const std::string &hash,
                           const std::string &cacheDirectory) {
  std::string cache = cacheDirectory.empty() ? defaultCache() : cacheDirectory;
  // The name comes from a file: it must stay inside the folder.
  bool isHash = hash.size() >= 32;
  for (char c : hash)
    isHash &= std::isxdigit(static_cast<unsigned char>(c)) != 0;
  if (cache.empty() || !isHash)
    return "";
  std::string folder = cache + "/kernels", path = folder + "/" + hash + ".so";
  if (!hasContent(path, content)) {
    std::error_code error;
    fs::create_directories(folder, error);
    std::string written = writeUnique(path + ".", content);
    if (written.empty())
      return "";
    if (rename(written.c_str(), path.c_str()) != 0) {
      unlink(written.c_str());
      return "";
    }
  }
  return isExecutable(path) ? path : "";
}

KernelFile KernelFile::create(const std::string &content,
                              const std::string &hash,
                              const std::string &cacheDirectory) {
  KernelFile out;
  out.file = inCache(content, hash, cacheDirectory);
  if (!out.file.empty())
    return out;
  std::string folder = environment("TMPDIR");
  if (folder.empty())
    folder = "/tmp";
  out.file = writeUnique(folder + "/intarsia-kernels-", content);
  out.temporary = !out.file.empty();
  if (out.temporary && isExecutable(out.file))
    return out;
  throw Error(
      ErrorKind::Load,
      "the compiled kernels cannot be unpacked: neither the cache folder "
      "nor " +
          folder +
          " is writable and allows code to be executed. Set "
          "INTARSIA_CACHE_DIR to a folder that does.");
}

void KernelFile::loaded() {
  if (temporary)
    unlink(file.c_str());
  temporary = false;
}
