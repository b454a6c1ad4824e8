//===- Check.h - Comparison with eager PyTorch --------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The exported program is still in the artifact: a Python process runs it
// eagerly on the same inputs and says how far the outputs are apart.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_CHECK_H
#define INTARSIA_TOOLS_INTARSIA_RUN_CHECK_H

#include "Files.h"
#include "Options.h"

namespace intarsia::tool {

/// Prints the differences. False: they are larger than PyTorch's tolerances.
/// Throws std::runtime_error when there is no Python with the intarsia package.
bool checkAgainstEager(const Options &options,
                       const std::map<std::string, runtime::Tensor> &inputs,
                       const std::vector<runtime::Tensor> &outputs);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_CHECK_H
