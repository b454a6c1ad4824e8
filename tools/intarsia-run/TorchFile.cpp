//===- TorchFile.cpp - Files of torch.save --------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements TorchFile.h with the shim.
//
//===----------------------------------------------------------------------===//

#include "TorchFile.h"
#include "intarsia/Runtime/Npy.h"

using namespace intarsia;
using namespace intarsia::runtime;

using Named = std::vector<std::pair<std::string, Tensor>>;

static NpyError lastFault(const std::string &path) {
  return NpyError("'" + path + "': " + torchApi().lastError()->message);
}

Named tool::readTorchFile(const std::string &path) {
  checkRegularFile(path);
  Named tensors;
  auto take = [](void *context, const char *name, TensorImpl *tensor) {
    static_cast<Named *>(context)->emplace_back(name, Tensor(tensor));
  };
  if (torchApi().readPickle(path.c_str(), take, &tensors))
    throw lastFault(path);
  return tensors;
}

/// A file is for any machine.
static Tensor onCpu(const Tensor &tensor) {
  return !tensor || tensor.device() == "cpu" ? tensor
                                             : tensor.contiguousOnCpu();
}

void tool::writeTorchFile(const std::string &path,
                          const std::vector<Tensor> &tensors) {
  std::vector<Tensor> local;
  std::vector<TensorImpl *> members;
  for (const Tensor &tensor : tensors)
    members.push_back(local.emplace_back(onCpu(tensor)).get());
  if (torchApi().writePickle(path.c_str(), nullptr, members.data(),
                             int64_t(members.size())))
    throw lastFault(path);
}

void tool::writeTorchFile(const std::string &path, const Named &tensors) {
  std::vector<const char *> names;
  std::vector<Tensor> local;
  std::vector<TensorImpl *> members;
  for (const auto &[name, tensor] : tensors) {
    names.push_back(name.c_str());
    members.push_back(local.emplace_back(onCpu(tensor)).get());
  }
  if (torchApi().writePickle(path.c_str(), names.data(), members.data(),
                             int64_t(members.size())))
    throw lastFault(path);
}
