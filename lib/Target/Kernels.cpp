//===- Kernels.cpp - From kernels to code that can be called --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Looks for the kernels in the cache, else generates code, links it and stores
// it. The key is taken of the kernels' IR before translation, so that a hit
// costs no more than printing it.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Target/Kernels.h"
#include "lib/Target/KernelCache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <mutex>

using namespace llvm;
using namespace intarsia;

/// Part of every key. To be raised when anything in this folder changes the
/// code that is generated for the same IR.
static constexpr StringRef codeGeneratorVersion = "intarsia-kernels-21";

std::string intarsia::cacheDirectory() {
  static constexpr std::pair<const char *, const char *> places[] = {
      {"INTARSIA_CACHE_DIR", ""},
      {"XDG_CACHE_HOME", "/intarsia"},
      {"HOME", "/.cache/intarsia"}};
  for (auto [variable, folder] : places) {
    const char *value = std::getenv(variable);
    if (!value || !*value)
      continue;
    // The path of a kernel must hold when the current folder changes.
    SmallString<128> path(value);
    path += folder;
    sys::fs::make_absolute(path);
    return std::string(path);
  }
  return "";
}

static std::string cacheKey(mlir::ModuleOp kernels,
                            const ResolvedTarget &target) {
  std::string text;
  raw_string_ostream stream(text);
  for (StringRef part : {codeGeneratorVersion, StringRef(LLVM_VERSION_STRING),
                         StringRef(target.triple), StringRef(target.cpu),
                         StringRef(target.features), StringRef(target.tuneCpu)})
    stream << part << '\n';
  // Without locations: where a kernel came from doesn't change its code.
  kernels->print(stream,
                 mlir::OpPrintingFlags().printGenericOpForm().assumeVerified());
  return hashContent(text);
}

std::string intarsia::hostDescription() {
  ResolvedTarget host = resolveTarget({});
  return (codeGeneratorVersion + " LLVM " LLVM_VERSION_STRING " " +
          host.triple + " " + host.cpu + " " + host.features)
      .str();
}

std::string intarsia::storeKernels(StringRef sharedObject) {
  std::string reason;
  if (std::optional<std::string> path =
          KernelCache(cacheDirectory()).store(sharedObject, reason))
    return *path;
  throw TargetError("the cache of kernels can't be used: " + reason);
}

static void warnOnce(const std::string &directory, const std::string &reason) {
  static std::once_flag once;
  std::call_once(once, [&] {
    errs() << "intarsia: warning: compiled kernels are kept in memory, because "
              "the cache folder "
           << (directory.empty() ? "" : "'" + directory + "' ")
           << "can't be used: " << reason
           << "; set INTARSIA_CACHE_DIR to a folder that can\n";
  });
}

KernelCode intarsia::compileKernels(mlir::ModuleOp kernels,
                                    const intarsia::TargetOptions &options) {
  KernelCode result;
  result.target = resolveTarget(options);
  std::string directory = cacheDirectory();
  KernelCache cache(directory);
  std::string key = cacheKey(kernels, result.target);
  if (!directory.empty())
    if (std::optional<KernelCache::Entry> entry = cache.find(key)) {
      result.sharedObject = std::move(entry->content);
      result.path = std::move(entry->path);
      result.fromCache = true;
      return result;
    }

  std::vector<std::string> objects = emitObjects(kernels, result.target);
  result.sharedObject = linkSharedObject(objects);
  std::string reason;
  if (std::optional<std::string> path =
          cache.store(key, result.sharedObject, reason)) {
    result.path = std::move(*path);
    return result;
  }
  warnOnce(directory, reason);
  result.memory = linkInMemory(objects, result.target);
  return result;
}
