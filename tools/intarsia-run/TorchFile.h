//===- TorchFile.h - Files of torch.save ------------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Tensors in PyTorch's own files, read and written by libtorch.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_TORCHFILE_H
#define INTARSIA_TOOLS_INTARSIA_RUN_TORCHFILE_H

#include "intarsia/Runtime/Model.h"

#include <string>
#include <utility>
#include <vector>

namespace intarsia::tool {

/// The tensors of a file, in order: one alone, the members of a list or tuple
/// (their names are empty), or the values of a dictionary. Throws
/// runtime::NpyError naming the file and the fault.
std::vector<std::pair<std::string, runtime::Tensor>>
readTorchFile(const std::string &path);

/// Writes a tuple, on the CPU, that torch.load reads; an empty Tensor becomes
/// None. Throws runtime::NpyError.
void writeTorchFile(const std::string &path,
                    const std::vector<runtime::Tensor> &tensors);

/// The same for pairs of name and tensor.
void writeTorchFile(
    const std::string &path,
    const std::vector<std::pair<std::string, runtime::Tensor>> &tensors);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_TORCHFILE_H
