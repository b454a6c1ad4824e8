//===- Pickle.cpp - Files of torch.save through the shim ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PyTorch's own reader and writer of pickles, for tensors and numbers.
//
//===----------------------------------------------------------------------===//

#include "Shim.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;

/// A number becomes a tensor without dimensions.
static at::Tensor toTensor(const c10::IValue &value, const std::string &place) {
  if (value.isTensor() && value.toTensor().defined())
    return value.toTensor().detach();
  if (value.isBool())
    return at::scalar_tensor(value.toBool(), at::kBool);
  if (value.isInt())
    return at::scalar_tensor(value.toInt(), at::kLong);
  if (value.isDouble())
    return at::scalar_tensor(value.toDouble(), at::kDouble);
  throw std::runtime_error(place + " is a " + value.tagKind() +
                           "; tensors and numbers are read, alone or in one "
                           "list, tuple or dictionary with names");
}

int shim::readPickle(const char *path,
                     void (*take)(void *context, const char *name,
                                  TensorImpl *tensor),
                     void *context) {
  return guarded(ErrorKind::Guard, [&] {
    std::ifstream file(path, std::ios::binary);
    if (!file)
      throw std::runtime_error("cannot be opened");
    std::vector<char> content((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
    c10::IValue value = torch::jit::pickle_load(content);
    if (value.isGenericDict()) {
      for (const auto &entry : value.toGenericDict()) {
        if (!entry.key().isString())
          throw std::runtime_error("a key of the dictionary is no string");
        const std::string &name = entry.key().toStringRef();
        take(context, name.c_str(),
             give(toTensor(entry.value(), "\"" + name + "\"")));
      }
      return;
    }
    std::vector<c10::IValue> members = {value};
    if (value.isTuple())
      members = value.toTupleRef().elements().vec();
    else if (value.isList())
      members = value.toList().vec();
    for (size_t i = 0; i < members.size(); ++i)
      take(context, "",
           give(toTensor(members[i], "element " + std::to_string(i))));
  });
}

int shim::writePickle(const char *path, const char *const *names,
                      TensorImpl *const *tensors, int64_t count) {
  return guarded(ErrorKind::Internal, [&] {
    std::vector<c10::IValue> members;
    for (int64_t i = 0; i < count; ++i) {
      c10::IValue member;
      if (tensors[i])
        member = share(tensors[i]);
      if (names)
        member = c10::ivalue::Tuple::create(std::string(names[i]),
                                            std::move(member));
      members.push_back(std::move(member));
    }
    std::vector<char> content =
        torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(members)));
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(content.data(), std::streamsize(content.size()));
    file.flush();
    if (!file)
      throw std::runtime_error("cannot be written");
  });
}
