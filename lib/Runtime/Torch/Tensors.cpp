//===- Tensors.cpp - Tensors, threads and modes through the shim
//--------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Allocation, views, copies and metadata of tensors, below autograd, and the
// thread pool, grad mode and device functions of Torch.h.
//
//===----------------------------------------------------------------------===//

#include "Shim.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/stable/c/shim.h>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;

/// Compiled programs run below autograd and autocast.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

static c10::Device deviceOf(int8_t type, int8_t index) {
  return c10::Device(static_cast<c10::DeviceType>(type), index);
}

at::Tensor shim::makeEmpty(c10::ScalarType dtype, c10::Device device,
                           c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (device.is_cpu())
    return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
  BelowAutograd guard;
  return at::empty_strided(sizes, strides,
                           at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor shim::makeView(c10::TensorImpl *source, c10::IntArrayRef sizes,
                          c10::IntArrayRef strides, int64_t offset) {
  constexpr c10::DispatchKeySet special({c10::DispatchKey::Python,
                                         c10::DispatchKey::Quantized,
                                         c10::DispatchKey::FuncTorchBatched});
  if (!source->key_set().has_any(special) && source->has_storage() &&
      source->layout() == c10::Layout::Strided) [[likely]] {
    // What at::as_strided does for such a tensor, without the dispatcher. A
    // write through the view counts as one of its source.
    int64_t end = offset + 1;
    bool isEmpty = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      isEmpty |= sizes[i] == 0;
      end += (sizes[i] - 1) * strides[i];
    }
    size_t bytes = source->unsafe_storage().nbytes();
    TORCH_CHECK(offset >= 0 &&
                    (isEmpty || size_t(end) * source->itemsize() <= bytes),
                "a view of sizes ", sizes, ", strides ", strides,
                " and storage offset ", offset,
                " is out of bounds for a storage of ", bytes, " bytes");
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(source->unsafe_storage()),
        source->key_set(), source->dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    view.unsafeGetTensorImpl()->set_version_counter(source->version_counter());
    return view;
  }
  BelowAutograd guard;
  return at::as_strided(share(wrap(source)), sizes, strides, offset);
}

void shim::copyElements(const at::Tensor &target, const at::Tensor &source) {
  BelowAutograd guard;
  target.copy_(source);
  c10::TensorImpl *impl = target.unsafeGetTensorImpl();
  if (!impl->is_inference())
    impl->bump_version();
}

int shim::itemOf(TensorImpl *tensor, Value *out) {
  return guarded(ErrorKind::Operator, [&] {
    c10::TensorImpl *impl = unwrap(tensor);
    if (impl->device().is_cpu() && impl->numel() == 1 && impl->has_storage() &&
        !hasLazyBits(impl) && !impl->key_set().has(c10::DispatchKey::Python)) {
      switch (impl->dtype().toScalarType()) {
      case c10::ScalarType::Bool:
        *out = Value::of(*static_cast<const bool *>(impl->data()));
        return;
      case c10::ScalarType::Long:
        *out = Value::of(*static_cast<const int64_t *>(impl->data()));
        return;
      default:
        break;
      }
    }
    BelowAutograd guard;
    at::Scalar scalar = share(tensor).item();
    if (scalar.isBoolean())
      *out = Value::of(scalar.toBool());
    else if (scalar.isIntegral(false))
      *out = Value::of(scalar.toLong());
    else if (scalar.isFloatingPoint())
      *out = Value::of(scalar.toDouble());
    else
      *out = Value::of(box(c10::IValue(scalar)));
  });
}

namespace {

void retain(TensorImpl *tensor) { share(tensor).unsafeReleaseTensorImpl(); }

void release(TensorImpl *tensor) {
  c10::intrusive_ptr<c10::TensorImpl>::reclaim(unwrap(tensor));
}

int describe(TensorImpl *tensor, TensorInfo *info) {
  c10::TensorImpl *impl = unwrap(tensor);
  if (impl->key_set().has(c10::DispatchKey::NestedTensor)) [[unlikely]]
    return fail(ErrorKind::Guard,
                "expected a strided tensor, got a nested one, "
                "which has no sizes");
  return guarded(ErrorKind::Guard, [&] {
    c10::IntArrayRef sizes = impl->sizes();
    info->dim = int64_t(sizes.size());
    info->sizes = sizes.data();
    info->subclass = impl->key_set().has(c10::DispatchKey::Python);
    info->strided = impl->layout() == c10::Layout::Strided;
    info->strides = info->strided ? impl->strides().data() : nullptr;
    info->storageOffset = info->strided ? impl->storage_offset() : 0;
    info->strided = info->strided && impl->has_storage();
    info->dtype = int16_t(impl->dtype().toScalarType());
    c10::Device device = impl->device();
    info->deviceType = int8_t(device.type());
    info->deviceIndex = device.index();
    info->lazyBits = hasLazyBits(impl);
  });
}

constexpr c10::DispatchKeySet functorchKeys(
    {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
     c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::Functionalize});

int dataPointer(TensorImpl *tensor, void **out, TensorImpl **resolved) {
  *out = nullptr;
  *resolved = nullptr;
  if (hasLazyBits(unwrap(tensor))) [[unlikely]] {
    int failed = guarded(ErrorKind::Operator, [&] {
      at::Tensor lazy = share(tensor);
      at::Tensor copy = makeEmpty(lazy.scalar_type(), lazy.device(),
                                  lazy.sizes(), lazy.strides());
      copy.copy_(lazy);
      *resolved = tensor = give(std::move(copy));
    });
    if (failed)
      return failed;
  }
  c10::TensorImpl *impl = unwrap(tensor);
  int status = guarded(ErrorKind::Guard, [&] {
    TORCH_CHECK(
        !impl->key_set().has(c10::DispatchKey::Python),
        "a tensor subclass with __torch_dispatch__ has no memory that a "
        "compiled kernel can read. It is an input, or an operator returned it: "
        "return a plain tensor from the operator's kernel, or compile with "
        "fuse=False");
    TORCH_CHECK(!impl->key_set().has_any(functorchKeys),
                "a tensor inside torch.func.vmap, grad or another functorch "
                "transform has no memory that a compiled kernel can read; "
                "compile the transformed function, or compile with fuse=False");
    TORCH_CHECK(impl->has_storage(), "a tensor of layout ", impl->layout(),
                " has no memory that a compiled kernel can read");
    *out = impl->mutable_data();
    TORCH_CHECK(*out || impl->numel() == 0, "a tensor on device ",
                impl->device(), " has no memory");
  });
  if (status && *resolved)
    release(std::exchange(*resolved, nullptr));
  return status;
}

const void *storage(TensorImpl *tensor) {
  c10::TensorImpl *impl = unwrap(tensor);
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl()
                             : nullptr;
}

int64_t storageUseCount(TensorImpl *tensor) {
  c10::TensorImpl *impl = unwrap(tensor);
  return impl->has_storage() ? int64_t(impl->unsafe_storage().use_count()) : 0;
}

bool isHeldOnce(TensorImpl *tensor, int64_t dim, const int64_t *sizesData,
                const int64_t *stridesData) {
  c10::TensorImpl *impl = unwrap(tensor);
  c10::IntArrayRef sizes(sizesData, size_t(dim)),
      strides(stridesData, size_t(dim));
  return impl->has_storage() && !hasLazyBits(impl) &&
         impl->unsafe_storage().use_count() == 1 &&
         c10::raw::intrusive_ptr::use_count(impl) == 1 &&
         impl->sizes() == sizes && impl->strides() == strides &&
         impl->storage_offset() == 0 &&
         impl->unsafe_storage().nbytes() ==
             at::detail::computeStorageNbytes(sizes, strides, impl->itemsize());
}

int64_t storageBytes(TensorImpl *tensor) {
  c10::TensorImpl *impl = unwrap(tensor);
  return impl->has_storage() ? int64_t(impl->unsafe_storage().nbytes()) : 0;
}

void bumpVersion(TensorImpl *tensor) {
  c10::TensorImpl *impl = unwrap(tensor);
  if (!impl->is_inference())
    impl->bump_version();
}

int parseDevice(const char *text, int8_t *type, int8_t *index) {
  return guarded(ErrorKind::Load, [&] {
    c10::Device device{std::string(text)};
    *type = int8_t(device.type());
    *index = device.index();
  });
}

const char *deviceName(int8_t type, int8_t index) {
  thread_local std::string name;
  try {
    name = deviceOf(type, index).str();
  } catch (...) {
    name = "device " + std::to_string(type) + ":" + std::to_string(index);
  }
  return name.c_str();
}

int emptyStrided(int16_t dtype, int8_t deviceType, int8_t deviceIndex,
                 int64_t dim, const int64_t *sizes, const int64_t *strides,
                 TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    *out = give(makeEmpty(static_cast<c10::ScalarType>(dtype),
                          deviceOf(deviceType, deviceIndex),
                          {sizes, size_t(dim)}, {strides, size_t(dim)}));
  });
}

int asStrided(TensorImpl *source, int64_t dim, const int64_t *sizes,
              const int64_t *strides, int64_t offset, TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    *out = give(makeView(unwrap(source), {sizes, size_t(dim)},
                         {strides, size_t(dim)}, offset));
  });
}

int packWeight(TensorImpl *weight, int64_t rows, TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    constexpr const char *name = "mkldnn::_reorder_linear_weight";
    auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    TORCH_CHECK(op, "this PyTorch has no ", name,
                ", for which the program was compiled (--freeze)");
    BelowAutograd guard;
    torch::jit::Stack stack = {share(weight), rows};
    op->callBoxed(stack);
    *out = give(std::move(stack.front()).toTensor());
  });
}

int clonePreservingStrides(TensorImpl *source, TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    c10::TensorImpl *impl = unwrap(source);
    BelowAutograd guard;
    if (impl->layout() != c10::Layout::Strided) {
      *out = give(share(source).clone());
      return;
    }
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    if (impl->numel() == 0) {
      *out = give(makeEmpty(impl->dtype().toScalarType(), impl->device(), sizes,
                            strides));
      return;
    }
    // All elements up to the last, so that gaps and overlaps stay what they are
    // and views of the copy may count from the storage's start.
    int64_t extent = impl->storage_offset() + 1;
    for (size_t i = 0; i < sizes.size(); ++i)
      extent += (sizes[i] - 1) * strides[i];
    at::Tensor flat = makeView(impl, {extent}, {1}, 0).clone();
    *out = give(makeView(flat.unsafeGetTensorImpl(), sizes, strides,
                         impl->storage_offset()));
  });
}

int copy(TensorImpl *target, TensorImpl *source) {
  return guarded(ErrorKind::Operator,
                 [&] { copyElements(share(target), share(source)); });
}

int stack(TensorImpl *const *tensors, int64_t count, TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    std::vector<at::Tensor> list;
    list.reserve(size_t(count));
    for (int64_t i = 0; i < count; ++i)
      list.push_back(share(tensors[i]));
    BelowAutograd guard;
    *out = give(at::stack(list, 0));
  });
}

int fromBlob(void *data, int64_t bytes, int16_t dtype, int64_t dim,
             const int64_t *sizes, const int64_t *strides,
             void (*deleter)(void *), void *context, TensorImpl **out) {
  return guarded(ErrorKind::Load, [&] {
    // Not at::from_blob: the storage's size must be the record's, whatever part
    // of it this tensor shows.
    c10::DataPtr pointer(data, context, deleter, c10::Device(c10::kCPU));
    c10::Storage storage(c10::Storage::use_byte_size_t(), size_t(bytes),
                         std::move(pointer), /*allocator=*/nullptr,
                         /*resizable=*/false);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
        c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(dtype)));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides({sizes, size_t(dim)},
                                                        {strides, size_t(dim)});
    *out = give(std::move(tensor));
  });
}

int onStorage(TensorImpl *base, int16_t dtype, int64_t dim,
              const int64_t *sizes, const int64_t *strides, int64_t offset,
              TensorImpl **out) {
  return guarded(ErrorKind::Load, [&] {
    c10::TensorImpl *impl = unwrap(base);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(impl->unsafe_storage()),
        c10::DispatchKeySet(c10::computeDispatchKey(
            std::nullopt, c10::Layout::Strided, impl->device())),
        c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(dtype)));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
        {sizes, size_t(dim)}, {strides, size_t(dim)}, offset);
    *out = give(std::move(tensor));
  });
}

int toDevice(TensorImpl *tensor, int8_t deviceType, int8_t deviceIndex,
             TensorImpl **out) {
  return guarded(ErrorKind::Operator, [&] {
    BelowAutograd guard;
    *out = give(share(tensor).to(deviceOf(deviceType, deviceIndex)));
  });
}

Boxed *copyBoxed(const Boxed *boxed) { return box(*unwrap(boxed)); }
void releaseBoxed(Boxed *boxed) { delete unwrap(boxed); }

Boxed *boxString(const std::string &text) { return box(c10::IValue(text)); }
const std::string *boxedText(const Boxed *boxed) {
  const c10::IValue *value = unwrap(boxed);
  return value->isString() ? &value->toStringRef() : nullptr;
}

int parallelFor(int64_t begin, int64_t end, int64_t grain,
                void (*body)(int64_t, int64_t, void *), void *context) {
  // at::parallel_for is header code: serial, or a second OpenMP runtime, unless
  // this library were built as PyTorch was. libtorch's own is neither.
  if (torch_parallel_for(begin, end, grain, body, context) == 0)
    return 0;
  return fail(ErrorKind::Internal, "the parallel loop of a kernel failed");
}

int32_t threadCount() {
  uint32_t count = 1;
  torch_get_num_threads(&count);
  return int32_t(count);
}

void setThreadCount(int32_t count) { at::set_num_threads(count); }

AutocastState autocastState(int8_t deviceType) {
  auto device = static_cast<c10::DeviceType>(deviceType);
  return {at::autocast::is_autocast_enabled(device),
          int16_t(at::autocast::get_autocast_dtype(device)),
          at::autocast::is_autocast_cache_enabled()};
}
void setAutocast(int8_t deviceType, AutocastState state) {
  auto device = static_cast<c10::DeviceType>(deviceType);
  if (state.dtype >= 0)
    at::autocast::set_autocast_dtype(device,
                                     static_cast<c10::ScalarType>(state.dtype));
  at::autocast::set_autocast_enabled(device, state.enabled);
  at::autocast::set_autocast_cache_enabled(state.cache);
}

bool gradEnabled() { return c10::GradMode::is_enabled(); }
void setGradEnabled(bool enabled) { c10::GradMode::set_enabled(enabled); }

void *beginRecord(const char *name, size_t count,
                  void (*arguments)(void *context, Value *out), void *context) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks)
    return nullptr;
  try {
    auto record = std::make_unique<at::RecordFunction>(std::move(*callbacks));
    if (record->needsInputs()) {
      std::vector<Value> values(count);
      arguments(context, values.data());
      std::vector<c10::IValue> boxed;
      for (const Value &value : values)
        boxed.push_back(value.kind == Value::Kind::Tensor
                            ? c10::IValue(at::Tensor(
                                  c10::intrusive_ptr<c10::TensorImpl>::reclaim(
                                      unwrap(value.tensor))))
                            : c10::IValue());
      record->before(
          name, c10::ArrayRef<const c10::IValue>(boxed.data(), boxed.size()));
    } else if (record->isActive()) {
      record->before(name);
    }
    return record.release();
  } catch (...) {
    return nullptr; // a profiler's fault is not the program's
  }
}
void endRecord(void *record) {
  delete static_cast<at::RecordFunction *>(record);
}

int64_t version(TensorImpl *tensor) {
  c10::TensorImpl *impl = unwrap(tensor);
  return impl->is_inference()
             ? -1
             : int64_t(impl->version_counter().current_version());
}

int synchronize(int8_t deviceType, int8_t deviceIndex) {
  return guarded(ErrorKind::Operator, [&] {
    c10::Device device = deviceOf(deviceType, deviceIndex);
    if (device.is_cpu() || device.is_meta())
      return;
    c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeDevice(device.has_index() ? device.index()
                                               : guard.getDevice().index());
  });
}

} // namespace

void shim::fillTensorFunctions(TorchApi &api) {
  api.retain = retain;
  api.release = ::release;
  api.describe = describe;
  api.dataPointer = dataPointer;
  api.storage = storage;
  api.storageUseCount = storageUseCount;
  api.isHeldOnce = isHeldOnce;
  api.storageBytes = storageBytes;
  api.bumpVersion = bumpVersion;
  api.parseDevice = parseDevice;
  api.deviceName = deviceName;
  api.emptyStrided = emptyStrided;
  api.asStrided = asStrided;
  api.packWeight = packWeight;
  api.clonePreservingStrides = clonePreservingStrides;
  api.copy = ::copy;
  api.stack = ::stack;
  api.item = itemOf;
  api.fromBlob = fromBlob;
  api.onStorage = onStorage;
  api.toDevice = toDevice;
  api.copyBoxed = copyBoxed;
  api.releaseBoxed = releaseBoxed;
  api.boxString = boxString;
  api.boxedText = boxedText;
  api.parallelFor = parallelFor;
  api.threadCount = threadCount;
  api.setThreadCount = setThreadCount;
  api.autocastState = autocastState;
  api.setAutocast = setAutocast;
  api.gradEnabled = gradEnabled;
  api.setGradEnabled = setGradEnabled;
  api.beginRecord = beginRecord;
  api.endRecord = endRecord;
  api.version = version;
  api.synchronize = synchronize;
}
