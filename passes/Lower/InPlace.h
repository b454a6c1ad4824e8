//===- InPlace.h - Operators that update their argument -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_INPLACE_H
#define INTARSIA_PASSES_LOWER_INPLACE_H

#include "dialects/Graph/Graph.h"

#include "mlir/IR/Builders.h"

namespace intarsia::lower {

/// The operator in the table of lowerings that computes what this call writes
/// into its argument `self` ("aten::add.Tensor" of "aten::add_.Tensor"); ""
/// when there is none. That it has a lowering does not mean that the lowering
/// takes the call.
std::string functionalTwin(graph::CallOp call);

/// A call of the twin with the same arguments, before `call`. Its result has
/// the type of what is written.
graph::CallOp createTwin(mlir::OpBuilder &builder, graph::CallOp call,
                         llvm::StringRef twin);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_INPLACE_H
