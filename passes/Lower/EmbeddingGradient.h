//===- EmbeddingGradient.h - Gradients of tied embeddings ---------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_EMBEDDINGGRADIENT_H
#define INTARSIA_PASSES_LOWER_EMBEDDINGGRADIENT_H

#include "dialects/Graph/Graph.h"

namespace intarsia::lower {

/// Where a table of words is also the weight of a product, its gradient is the
/// product's and that of the few rows which were looked up. Replaces the sum of
/// the two (`add`), for which the second would be as large as the table and
/// mostly zero, by an addition of these rows to the first. The result is
/// eager's to the last bit, but for the sign of a zero: each row is added up by
/// itself, in the order of its positions. False if the call is no such sum.
bool addRowsOfEmbedding(graph::CallOp add);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_EMBEDDINGGRADIENT_H
