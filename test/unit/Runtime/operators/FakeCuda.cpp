//===- FakeCuda.cpp - A GPU that is none ----------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Stands in for CUDA's driver and for PyTorch's CUDA library where there is no
// GPU: devices' memory is the host's, what is called is written down, and any
// function can be made to fail. Kernels are not run, except those that are
// written here by name.
//
// In a process of a test, `fake_cuda` gives the state. In another process the
// environment does: FAKE_CUDA_DEVICES ("80,90"), FAKE_CUDA_ERRORS
// ("cuLaunchKernel=700"), FAKE_CUDA_LOG, a file that the log is appended to.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

static FakeCuda makeState() {
  FakeCuda state;
  if (const char *devices = std::getenv("FAKE_CUDA_DEVICES")) {
    state.devices.clear();
    std::istringstream list(devices);
    for (std::string device; std::getline(list, device, ',');)
      state.devices.push_back(std::stoi(device));
  }
  if (const char *errors = std::getenv("FAKE_CUDA_ERRORS")) {
    std::istringstream list(errors);
    for (std::string entry; std::getline(list, entry, ',');) {
      size_t equals = entry.find('=');
      state.errors[entry.substr(0, equals)] =
          std::stoi(entry.substr(equals + 1));
    }
  }
  return state;
}

extern "C" FakeCuda *fake_cuda() {
  static FakeCuda state = makeState();
  return &state;
}

static std::recursive_mutex mutex;

/// Writes a line down; the error that the function shall return, or 0.
template <typename... Parts>
static int called(const char *function, const Parts &...parts) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  std::ostringstream line;
  line << function;
  ((line << " " << parts), ...);
  fake_cuda()->log.push_back(line.str());
  if (const char *path = std::getenv("FAKE_CUDA_LOG"))
    std::ofstream(path, std::ios::app) << line.str() << "\n";
  auto error = fake_cuda()->errors.find(function);
  return error == fake_cuda()->errors.end() ? 0 : error->second;
}

//===----------------------------------------------------------------------===//
// The driver
//===----------------------------------------------------------------------===//

namespace {
struct Module {
  int device;
  std::string text; // of PTX
};
struct Function {
  Module *module;
  std::string name;
};
/// The devices whose contexts are current, the last one on top.
thread_local std::vector<int> current;
} // namespace

static void *contextOf(int device) {
  return reinterpret_cast<void *>(size_t(device) + 1);
}
static int deviceOf(void *context) {
  return int(reinterpret_cast<size_t>(context)) - 1;
}

/// How many parameters a kernel has in PTX.
static size_t parametersOf(const Function &function) {
  const std::string &text = function.module->text;
  size_t begin = text.find(".entry " + function.name + "(");
  if (begin == std::string::npos)
    return 0;
  std::string header = text.substr(begin, text.find(')', begin) - begin);
  size_t count = 0;
  for (size_t at = header.find(".param"); at != std::string::npos;
       at = header.find(".param", at + 1))
    ++count;
  return count;
}

/// out = x + 1 in rows of `columns`.
static void addOneRows(void **parameters) {
  auto *x = *static_cast<float **>(parameters[0]);
  auto *out = *static_cast<float **>(parameters[1]);
  auto columns = *static_cast<long long *>(parameters[2]);
  auto rows = *static_cast<long long *>(parameters[3]);
  for (long long i = 0; i < rows * columns; ++i)
    out[i] = x[i] + 1;
}

/// Its second check fails.
static void failingCheck(void **parameters) {
  long long *status = *static_cast<long long **>(parameters[4]);
  status[0] = 2;  // the number of the check
  status[1] = 11; // the index
  status[2] = 4;  // the size
}

extern "C" {

int cuInit(unsigned) { return called("cuInit"); }

int cuGetErrorName(int error, const char **text) {
  static const std::map<int, const char *> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"},
      {218, "CUDA_ERROR_INVALID_PTX"},
      {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  auto name = names.find(error);
  *text = name == names.end() ? nullptr : name->second;
  return *text ? 0 : 1;
}

int cuGetErrorString(int, const char **text) {
  *text = "what it means";
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = int(fake_cuda()->devices.size());
  return called("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
  std::snprintf(name, size_t(length), "Fake %d",
                fake_cuda()->devices[size_t(device)]);
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int capability = fake_cuda()->devices[size_t(device)];
  switch (attribute) {
  case 75:
    *value = capability / 10;
    return 0;
  case 76:
    *value = capability % 10;
    return 0;
  case 97:
    *value = 99 * 1024;
    return 0;
  }
  return 1;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = contextOf(device);
  return called("cuDevicePrimaryCtxRetain", device);
}

int cuCtxGetCurrent(void **context) {
  *context = current.empty() ? nullptr : contextOf(current.back());
  return 0;
}

int cuCtxPushCurrent_v2(void *context) {
  current.push_back(deviceOf(context));
  return 0;
}

int cuCtxPopCurrent_v2(void **context) {
  if (current.empty())
    return 1;
  *context = contextOf(current.back());
  current.pop_back();
  return 0;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                       int *options, void **values) {
  const char *text = static_cast<const char *>(image);
  bool isCubin = std::memcmp(text, "\177ELF", 4) == 0;
  const char *target = isCubin ? nullptr : std::strstr(text, ".target ");
  int device = current.empty() ? -1 : current.back();
  int error = called(
      "cuModuleLoadDataEx", "device", device, isCubin ? "cubin" : "ptx",
      target ? std::string(target + 8, std::strcspn(target + 8, " ,\n")) : "");
  if (error) {
    for (unsigned i = 0; i + 1 < count; ++i)
      if (options[i] == 5)
        std::snprintf(static_cast<char *>(values[i]),
                      reinterpret_cast<size_t>(values[i + 1]),
                      "what the driver's compiler says");
    return error;
  }
  *module = new Module{device, isCubin ? "" : text};
  return 0;
}

int cuModuleUnload(void *module) {
  auto *loaded = static_cast<Module *>(module);
  int error = called("cuModuleUnload", "device", loaded->device);
  delete loaded;
  return error;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  auto *loaded = static_cast<Module *>(module);
  if (int error = called("cuModuleGetFunction", name))
    return error;
  if (!loaded->text.empty() && loaded->text.find(std::string(".entry ") + name +
                                                 "(") == std::string::npos)
    return 500;
  *function = new Function{loaded, name}; // as long as the process
  return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  return called("cuFuncSetAttribute", static_cast<Function *>(function)->name,
                attribute, value);
}

int cuLaunchKernel(void *handle, unsigned gridX, unsigned gridY, unsigned gridZ,
                   unsigned blockX, unsigned blockY, unsigned blockZ,
                   unsigned shared, void *stream, void **parameters, void **) {
  auto &function = *static_cast<Function *>(handle);
  int device = current.empty() ? -1 : current.back();
  if (int error = called("cuLaunchKernel", function.name, "grid", gridX, gridY,
                         gridZ, "block", blockX, blockY, blockZ, "shared",
                         shared, "stream", stream, "device", device))
    return error;
  if (device != function.module->device)
    return 1;
  std::vector<long long> &values = fake_cuda()->parameters;
  values.clear();
  for (size_t i = 0, e = parametersOf(function); i < e; ++i)
    values.push_back(*static_cast<long long *>(parameters[i]));
  if (function.name == "add_one_rows")
    addOneRows(parameters);
  if (function.name == "failing_check")
    failingCheck(parameters);
  return 0;
}

int cuMemsetD8Async(unsigned long long memory, unsigned char value,
                    size_t count, void *stream) {
  if (int error = called("cuMemsetD8Async", count, "stream", stream))
    return error;
  std::memset(reinterpret_cast<void *>(memory), value, count);
  return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t count,
                         void *stream) {
  if (int error = called("cuMemcpyDtoHAsync", count, "stream", stream))
    return error;
  std::memcpy(to, reinterpret_cast<void *>(from), count);
  return 0;
}

int cuStreamSynchronize(void *stream) {
  return called("cuStreamSynchronize", stream);
}

/// PyTorch's.
int32_t aoti_torch_get_current_cuda_stream(int32_t device, void **stream) {
  *stream = fake_cuda()->streams[device];
  return called("aoti_torch_get_current_cuda_stream", device);
}
}

//===----------------------------------------------------------------------===//
// PyTorch's CUDA library
//===----------------------------------------------------------------------===//

static at::Tensor emptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                               std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout>,
                               std::optional<at::Device> device,
                               std::optional<bool>) {
  auto type = dtype.value_or(at::kFloat);
  if (fake_cuda()->errors.count("allocate"))
    C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory");
  auto *memory = new at::Tensor(
      at::Tensor(at::detail::empty_strided_cpu(sizes, strides, type)));
  c10::Device there(c10::kCUDA, 0);
  if (device && device->has_index())
    there = *device;
  c10::DataPtr data(
      memory->mutable_data_ptr(), memory,
      [](void *context) { delete static_cast<at::Tensor *>(context); }, there);
  c10::Storage storage(c10::Storage::use_byte_size_t(),
                       memory->storage().nbytes(), std::move(data), nullptr,
                       /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

static at::Tensor
empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
      std::optional<at::Layout> layout, std::optional<at::Device> device,
      std::optional<bool> pinned, std::optional<at::MemoryFormat>) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return emptyStrided(sizes, strides, dtype, layout, device, pinned);
}

/// The same memory as a tensor on the CPU.
static at::Tensor onHost(const at::Tensor &tensor) {
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(),
                       tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

static at::Tensor &copy(at::Tensor &self, const at::Tensor &source, bool) {
  onHost(self).copy_(onHost(source));
  return self;
}

static at::Tensor asStrided(const at::Tensor &self, at::IntArrayRef sizes,
                            at::IntArrayRef strides,
                            std::optional<int64_t> offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(),
      self.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes, strides, offset.value_or(self.storage_offset()));
  return view;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty_strided", emptyStrided);
  m.impl("empty.memory_format", empty);
  m.impl("copy_", copy);
  m.impl("as_strided", asStrided);
}

namespace {
/// PyTorch's current device, and waiting for one.
struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    index = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, index}; }
  void setDevice(c10::Device device) const override { index = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    index = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return c10::DeviceIndex(fake_cuda()->devices.size());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    called("synchronizeDevice", int(device));
  }

  static thread_local c10::DeviceIndex index;
};
thread_local c10::DeviceIndex DeviceGuard::index = 0;
} // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, ::DeviceGuard)
} // namespace c10::impl
