//===- Tensor.cpp - A counted reference on a PyTorch tensor ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Tensor of Model.h, and what makes values of numbers and numbers of
// values.
//
//===----------------------------------------------------------------------===//

#include "LoadTorch.h"
#include "intarsia/Runtime/Model.h"

#include <algorithm>

using namespace intarsia;
using namespace intarsia::runtime;

Tensor::Tensor(const Tensor &other) : impl(other.impl) {
  if (impl)
    torchApi().retain(impl);
}

Tensor::~Tensor() {
  if (impl)
    torchApi().release(impl);
}

static TensorInfo describe(TensorImpl *tensor) {
  TensorInfo info;
  if (!tensor)
    throw Error(ErrorKind::Guard, "an empty Tensor is used");
  if (torchApi().describe(tensor, &info))
    throwShimError();
  return info;
}

static std::vector<int64_t>
contiguousStrides(const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

Tensor Tensor::empty(DType dtype, const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides = contiguousStrides(sizes);
  TensorImpl *out = nullptr;
  if (torchApi().emptyStrided(int16_t(dtype), 0, -1, int64_t(sizes.size()),
                              sizes.data(), strides.data(), &out))
    throwShimError();
  return Tensor(out);
}

std::vector<int64_t> Tensor::sizes() const {
  TensorInfo info = describe(impl);
  return {info.sizes, info.sizes + info.dim};
}

std::vector<int64_t> Tensor::strides() const {
  TensorInfo info = describe(impl);
  if (!info.strides)
    return {};
  return {info.strides, info.strides + info.dim};
}

int64_t Tensor::elementCount() const {
  int64_t count = 1;
  for (int64_t size : sizes())
    count *= size;
  return count;
}

DType Tensor::dtype() const {
  TensorInfo info = describe(impl);
  if (auto dtype = dtypeFromScalarType(info.dtype))
    return *dtype;
  throw Error(ErrorKind::Guard, "a tensor has a dtype that Intarsia does not "
                                "know (number " +
                                    std::to_string(info.dtype) + ")");
}

std::string Tensor::device() const {
  TensorInfo info = describe(impl);
  return torchApi().deviceName(info.deviceType, info.deviceIndex);
}

void *Tensor::data() const {
  void *data = nullptr;
  TensorImpl *resolved = nullptr;
  describe(impl);
  if (torchApi().dataPointer(impl, &data, &resolved))
    throwShimError();
  if (resolved)
    torchApi().release(std::exchange(impl, resolved));
  return data;
}

Tensor Tensor::contiguousOnCpu() const {
  const TorchApi &torch = torchApi();
  TensorImpl *local = nullptr;
  if (torch.toDevice(impl, 0, -1, &local))
    throwShimError();
  Tensor result(local);
  TensorInfo info = describe(local);
  std::vector<int64_t> shape(info.sizes, info.sizes + info.dim);
  bool same = info.strides && !info.lazyBits;
  std::vector<int64_t> strides = contiguousStrides(shape);
  for (size_t i = 0; same && i < shape.size(); ++i)
    same = info.strides[i] == strides[i] || shape[i] <= 1;
  if (same)
    return result;
  Tensor copy = empty(result.dtype(), shape);
  if (torch.copy(copy.get(), result.get()))
    throwShimError();
  return copy;
}

Value intarsia::runtime::constantValue(const plan::Arg &constant) {
  switch (constant.kind) {
  case plan::Arg::Kind::Int:
    return Value::of(constant.integer);
  case plan::Arg::Kind::Float:
    return Value::of(constant.real);
  case plan::Arg::Kind::Bool:
    return Value::of(constant.boolean);
  case plan::Arg::Kind::String:
    return Value::of(torchApi().boxString(constant.text.c_str()));
  default:
    return Value();
  }
}

Tensor intarsia::runtime::takeTensor(Value &value) {
  Tensor tensor;
  switch (value.kind) {
  case Value::Kind::Tensor:
    tensor = Tensor(value.tensor);
    value = Value();
    break;
  case Value::Kind::Int:
    tensor = Tensor::empty(DType::I64, {});
    *static_cast<int64_t *>(tensor.data()) = value.integer;
    break;
  case Value::Kind::Float:
    tensor = Tensor::empty(DType::F64, {});
    *static_cast<double *>(tensor.data()) = value.real;
    break;
  case Value::Kind::Bool:
    tensor = Tensor::empty(DType::Bool, {});
    *static_cast<bool *>(tensor.data()) = value.boolean;
    break;
  default:
    break;
  }
  release(value);
  return tensor;
}
