//===- LongRows.h - Reductions of few long rows -------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A row, or 32 of them side by side, is at most a block's on a GPU: few long
// ones leave most of it with nothing to do.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_LONGROWS_H
#define INTARSIA_PASSES_LOWER_LONGROWS_H

#include "dialects/Graph/Graph.h"

namespace intarsia::lower {

/// Whether the call is a reduction of so few and so long rows that PyTorch's
/// kernels, which split them, are better than one of ours. Of what is not known
/// only the worst is bad.
bool hasFewLongRows(graph::CallOp call);

/// Replaces such a call by two: of pieces of the rows, and of what those
/// make. The pieces and their order depend on sizes alone. False if it stays.
bool splitLongRows(graph::CallOp call);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_LONGROWS_H
