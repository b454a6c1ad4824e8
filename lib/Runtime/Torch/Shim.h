//===- Shim.h - What the shim's files share -----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Conversions between the opaque types of Runtime/Torch.h and PyTorch's, and
// the one place where exceptions become error codes.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_TORCH_SHIM_H
#define INTARSIA_LIB_RUNTIME_TORCH_SHIM_H

#include "intarsia/Runtime/Torch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

namespace intarsia::runtime::shim {

inline c10::TensorImpl *unwrap(TensorImpl *tensor) {
  return reinterpret_cast<c10::TensorImpl *>(tensor);
}
inline TensorImpl *wrap(c10::TensorImpl *tensor) {
  return reinterpret_cast<TensorImpl *>(tensor);
}
/// A tensor that shares the object: a new reference.
inline at::Tensor share(TensorImpl *tensor) {
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(unwrap(tensor)));
}
/// Hands the tensor's reference over.
inline TensorImpl *give(at::Tensor &&tensor) {
  return wrap(tensor.unsafeReleaseTensorImpl());
}
inline c10::IValue *unwrap(Boxed *boxed) {
  return reinterpret_cast<c10::IValue *>(boxed);
}
inline const c10::IValue *unwrap(const Boxed *boxed) {
  return reinterpret_cast<const c10::IValue *>(boxed);
}
inline Boxed *box(c10::IValue value) {
  return reinterpret_cast<Boxed *>(new c10::IValue(std::move(value)));
}

/// The keys below which a compiled program runs: autograd and autocast were
/// applied when it was traced.
constexpr c10::DispatchKeySet autogradKeys =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView;
constexpr c10::DispatchKeySet tracedKeys =
    autogradKeys | c10::autocast_dispatch_keyset;

/// Tensors whose memory is not what `sizes` and `strides` say.
inline bool hasLazyBits(const c10::TensorImpl *tensor) {
  constexpr c10::DispatchKeySet keys({c10::DispatchKey::Conjugate,
                                      c10::DispatchKey::Negative,
                                      c10::DispatchKey::ZeroTensor});
  return tensor->key_set().has_any(keys);
}

/// The calling thread's last error.
ShimError &error();
int fail(ErrorKind kind, std::string message,
         std::exception_ptr cause = nullptr);
/// Describes the exception that is being handled.
int failWithCurrentException(ErrorKind kind, const std::string &prefix = "",
                             const std::string &suffix = "");
void warn(const std::string &message);

/// Runs `body`, turning exceptions into an error of `kind`.
template <typename Body>
int guarded(ErrorKind kind, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return failWithCurrentException(kind);
  }
}

// Tensors.cpp: also used for calls.
at::Tensor makeView(c10::TensorImpl *source, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides, int64_t offset);
at::Tensor makeEmpty(c10::ScalarType dtype, c10::Device device,
                     c10::IntArrayRef sizes, c10::IntArrayRef strides);
void copyElements(const at::Tensor &target, const at::Tensor &source);
int itemOf(TensorImpl *tensor, Value *out);

// Schemas.cpp
const char *operatorSchema(const char *name);
const char *operatorOverloads(const char *qualifiedName);
/// "ns::name.overload" as PyTorch splits it.
c10::OperatorName splitName(const std::string &name);

// Calls.cpp
int prepareCall(const CallSite *site, PreparedCall **out);
void destroyCall(PreparedCall *call);
int runCall(PreparedCall *call, Frame *frame);
int runFake(PreparedCall *call, Frame *frame);

void fillTensorFunctions(TorchApi &api);

// Pickle.cpp
int readPickle(const char *path,
               void (*take)(void *context, const char *name,
                            TensorImpl *tensor),
               void *context);
int writePickle(const char *path, const char *const *names,
                TensorImpl *const *tensors, int64_t count);

} // namespace intarsia::runtime::shim

#endif // INTARSIA_LIB_RUNTIME_TORCH_SHIM_H
