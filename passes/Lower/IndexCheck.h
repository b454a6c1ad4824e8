//===- IndexCheck.h - Checks of indices ---------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_INDEXCHECK_H
#define INTARSIA_PASSES_LOWER_INDEXCHECK_H

#include "llvm/ADT/StringRef.h"

namespace intarsia {

/// On a `cf.assert` that is about an index: its failure is an IndexError.
inline constexpr llvm::StringLiteral indexCheckAttrName =
    "intarsia.index_check";

} // namespace intarsia

#endif // INTARSIA_PASSES_LOWER_INDEXCHECK_H
