//===- Frozen.h - What depends on weights alone -----------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// For the offline compiler: what `--freeze` computes once and puts into the
// artifact.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_FROZEN_H
#define INTARSIA_RUNTIME_FROZEN_H

#include "intarsia/Artifact/Archive.h"
#include "intarsia/Runtime/Model.h"

#include <string>
#include <vector>

namespace intarsia::runtime {

/// The record of the artifact that holds output `index` of the frozen part.
std::string frozenRecord(size_t index);

/// Runs a plan without inputs whose weights are records of `archive`. The
/// tensors have the strides that the plan promises. Throws Error.
std::vector<Tensor> computeFrozen(const artifact::Archive &archive,
                                  const plan::Plan &plan);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_FROZEN_H
