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

#include <functional>
#include <string>

namespace intarsia::runtime {

/// The record of the artifact that holds output `index` of the frozen part.
std::string frozenRecord(size_t index);

/// Runs a plan without inputs whose weights are records of `archive`, and gives
/// each output once, by its index, in an order that depends on the plan alone.
/// Steps that share no values run apart where their results are more than
/// `partBytes`: what was given is not kept. The tensors have the strides that
/// the plan promises. Throws Error.
void computeFrozen(const artifact::Archive &archive, const plan::Plan &plan,
                   const std::function<void(size_t index, Tensor)> &take,
                   int64_t partBytes = int64_t(64) << 20);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_FROZEN_H
