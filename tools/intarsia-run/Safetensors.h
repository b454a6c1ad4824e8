//===- Safetensors.h - Tensors by name in one file ----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The format of github.com/huggingface/safetensors: eight bytes with the length
// of a JSON header, the header (dtype, shape and place of each tensor), then
// the tensors' bytes, contiguous and little-endian.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_SAFETENSORS_H
#define INTARSIA_TOOLS_INTARSIA_RUN_SAFETENSORS_H

#include "intarsia/Runtime/Model.h"

#include <map>
#include <string>

namespace intarsia::tool {

/// Every tensor of a file, on the CPU. Throws runtime::NpyError naming the file
/// and the fault.
std::map<std::string, runtime::Tensor> readSafetensors(const std::string &path);

/// Writes tensors of any strides and device. Throws runtime::NpyError.
void writeSafetensors(const std::string &path,
                      const std::map<std::string, runtime::Tensor> &tensors);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_SAFETENSORS_H
