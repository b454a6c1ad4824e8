//===- TakeApart.h - Composite operators as calls -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_TAKEAPART_H
#define INTARSIA_PASSES_LOWER_TAKEAPART_H

#include "dialects/Graph/Graph.h"

#include <vector>

namespace intarsia::lower {

/// Replaces a call of a composite operator by calls of those that PyTorch
/// implements it with. False if it is none, or one that must stay whole.
bool takeApart(graph::CallOp call);

/// The names of the operators that are taken apart.
std::vector<llvm::StringRef> compositeOperators();

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_TAKEAPART_H
