//===- Composites.h - Operators that PyTorch takes apart ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_COMPOSITES_H
#define INTARSIA_PASSES_LOWER_COMPOSITES_H

#include "passes/Lower/Lowering.h"

namespace intarsia::lower {

/// To be called last: these are other names of operators that are in the table.
void registerComposites(LoweringTable &table);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_COMPOSITES_H
