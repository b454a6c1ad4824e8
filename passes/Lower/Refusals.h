//===- Refusals.h - Dtypes that eager refuses -----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_REFUSALS_H
#define INTARSIA_PASSES_LOWER_REFUSALS_H

#include "dialects/Graph/Graph.h"

namespace intarsia::lower {

/// Whether PyTorch's CPU kernel raises for the dtypes of this call, though its
/// fake implementation let them pass: it must stay a call, which raises.
bool refusedByEager(graph::CallOp call);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_REFUSALS_H
