//===- LoadTorch.cpp - Finding the shim and operator libraries
//----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The runtime library has no torch symbol of its own: here it loads the shim,
// which brings libtorch along in a process that has none, and the user's
// operator libraries. Also the warning handler.
//
//===----------------------------------------------------------------------===//

#include "LoadTorch.h"
#include "intarsia/Runtime/Torch.h"
#include "intarsia/Runtime/TorchPython.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <link.h>
#include <mutex>
#include <utility>

using namespace intarsia::runtime;

//===----------------------------------------------------------------------===//
// Warnings
//===----------------------------------------------------------------------===//

static void printWarning(const char *message) {
  std::fprintf(stderr, "intarsia: warning: %s\n", message);
}

static std::atomic<WarningHandler> warningHandler{printWarning};

WarningHandler intarsia::runtime::setWarningHandler(WarningHandler handler) {
  return warningHandler.exchange(handler ? handler : printWarning);
}

void intarsia::runtime::warn(const std::string &message) {
  warningHandler.load()(message.c_str());
}

//===----------------------------------------------------------------------===//
// The shim
//===----------------------------------------------------------------------===//

/// The file name of the runtime library.
static std::string ownPath() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&printWarning), &info) && info.dli_fname)
    return info.dli_fname;
  return "";
}

static bool torchIsLoaded() {
  void *handle = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (handle)
    dlclose(handle);
  return handle != nullptr;
}

/// Loads `file` from the folder of the runtime library, or what `variable`
/// names.
static void *loadBeside(const char *file, const char *variable) {
  const char *override = std::getenv(variable);
  std::string path =
      override && *override
          ? std::string(override)
          : (std::filesystem::path(ownPath()).parent_path() / file).string();
  // Where we bring libtorch, operator libraries that were not linked against it
  // must find its symbols; in a Python process its visibility is not ours to
  // change.
  int scope = torchIsLoaded() ? RTLD_LOCAL : RTLD_GLOBAL;
  if (void *handle = dlopen(path.c_str(), RTLD_NOW | scope))
    return handle;
  const char *reason = dlerror();
  throw Error(
      ErrorKind::Load,
      std::string("cannot load ") + file + ": " +
          (reason ? reason : "unknown reason") +
          ". It must lie beside the Intarsia runtime library, or set " +
          variable +
          " to its path; and PyTorch's libraries (torch/lib of the torch "
          "package) must be found, for example through LD_LIBRARY_PATH.");
}

const TorchApi &intarsia::runtime::torchApi() {
  static const TorchApi *const api = [] {
    void *entry = dlsym(RTLD_DEFAULT, "intarsia_torch_api");
    if (!entry)
      entry = dlsym(loadBeside("libIntarsiaTorch.so", "INTARSIA_TORCH_LIBRARY"),
                    "intarsia_torch_api");
    const TorchApi *table =
        entry ? reinterpret_cast<TorchApiEntry>(entry)(torchApiVersion)
              : nullptr;
    if (!table)
      throw Error(ErrorKind::Load,
                  "libIntarsiaTorch.so does not belong to this version of the "
                  "Intarsia runtime; build or install both together");
    if (table->mismatch)
      throw Error(ErrorKind::Load, table->mismatch);
    table->setWarningSink(&intarsia::runtime::warn);
    return table;
  }();
  return *api;
}

void intarsia::runtime::throwShimError() {
  ShimError &error = *torchApi().lastError();
  Error failure(error.kind, error.message);
  failure.cause = std::move(error.cause);
  throw failure;
}

const TorchPythonApi &intarsia::runtime::torchPythonApi() {
  static const TorchPythonApi *const api = [] {
    torchApi();
    void *entry = dlsym(loadBeside("libIntarsiaTorchPython.so",
                                   "INTARSIA_TORCH_PYTHON_LIBRARY"),
                        "intarsia_torch_python_api");
    const TorchPythonApi *table =
        entry ? reinterpret_cast<TorchPythonApiEntry>(entry)(torchApiVersion)
              : nullptr;
    if (!table)
      throw Error(
          ErrorKind::Load,
          "libIntarsiaTorchPython.so does not belong to this version of "
          "the Intarsia runtime; build or install both together");
    return table;
  }();
  return *api;
}

void intarsia::runtime::loadTorchCuda() {
  if (void *handle = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(handle);
    return;
  }
  torchApi();
  std::string path = "libtorch_cuda.so";
  if (void *handle = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) {
    struct link_map *map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
      path = (std::filesystem::path(map->l_name).parent_path() / path).string();
    dlclose(handle);
  }
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    const char *reason = dlerror();
    throw Error(ErrorKind::Load,
                std::string("the program runs on CUDA, but PyTorch's CUDA "
                            "library cannot be loaded: ") +
                    (reason ? reason : "unknown reason"));
  }
}

//===----------------------------------------------------------------------===//
// Operator libraries
//===----------------------------------------------------------------------===//

/// Loads a library of PyTorch's that dlopen did not find, from where the others
/// are: an operator library that was linked with -ltorch names libtorch.so,
/// which a process without Python has no use for.
static bool loadMissingOfTorch(const std::string &reason) {
  size_t end = reason.find(": cannot open shared object file");
  std::string name = reason.substr(0, end);
  if (end == std::string::npos || name.find('/') != std::string::npos ||
      name.find("python") != std::string::npos)
    return false;
  void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!torch)
    return false;
  std::string path;
  struct link_map *map = nullptr;
  if (dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
    path = (std::filesystem::path(map->l_name).parent_path() / name).string();
  dlclose(torch);
  return !path.empty() && dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

static bool needsPython(const std::string &reason) {
  for (const char *sign :
       {"undefined symbol: Py", "undefined symbol: _Py",
        "undefined symbol: THP", "libtorch_python.so", "libpython"})
    if (reason.find(sign) != std::string::npos)
      return true;
  return false;
}

/// An exception in a library's registrations cannot leave dlopen: the process
/// ends. It shall at least say which library and why.
namespace {
class RegistrationGuard {
public:
  explicit RegistrationGuard(const std::string &path)
      : previous(std::set_terminate(&report)) {
    library = path.c_str();
  }
  ~RegistrationGuard() {
    std::set_terminate(previous);
    library = nullptr;
  }

private:
  [[noreturn]] static void report() {
    std::string reason = "an unknown exception";
    try {
      if (std::current_exception())
        throw;
    } catch (const std::exception &error) {
      reason = error.what();
    } catch (...) {
    }
    // Without the native stack trace that PyTorch appends.
    reason = reason.substr(0, reason.find("\nException raised from"));
    std::fprintf(stderr,
                 "intarsia: error: operator library '%s' failed while it "
                 "registered its operators: %s\n",
                 library ? library : "", reason.c_str());
    // No core is needed to know why: the tools' status for a library.
    std::_Exit(4);
  }

  static thread_local const char *library;
  std::terminate_handler previous;
};
thread_local const char *RegistrationGuard::library = nullptr;
} // namespace

void intarsia::runtime::loadOperatorLibrary(const std::string &path) {
  torchApi();
  std::error_code ignored;
  // Without a slash dlopen would search the system's folders instead.
  std::string file = path;
  if (file.find('/') == std::string::npos &&
      std::filesystem::exists(file, ignored))
    file = "./" + file;
  if (file.find('/') != std::string::npos &&
      !std::filesystem::exists(file, ignored))
    throw Error(ErrorKind::Load,
                "operator library '" + path + "' does not exist");
  if (std::filesystem::exists(file, ignored) &&
      !std::filesystem::is_regular_file(file, ignored))
    throw Error(ErrorKind::Load,
                "operator library '" + path + "' is not a regular file");
  std::string reason;
  do {
    RegistrationGuard guard(path);
    // Global, as torch.ops.load_library does: libraries may build on each
    // other.
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return;
    const char *text = dlerror();
    std::string before = std::exchange(reason, text ? text : "unknown reason");
    if (reason == before)
      break;
  } while (loadMissingOfTorch(reason));
  if (needsPython(reason))
    throw Error(ErrorKind::Load,
                "operator library '" + path + "' needs Python's symbols (" +
                    reason +
                    "), which this process does not have. Include "
                    "torch/library.h instead of torch/extension.h in its "
                    "sources and link it against libtorch_cpu and libc10 only, "
                    "not libtorch_python.");
  throw Error(ErrorKind::Load,
              "operator library '" + path + "' cannot be loaded: " + reason);
}
