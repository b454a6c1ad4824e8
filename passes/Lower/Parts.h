//===- Parts.h - What a composite operator is made of -------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The words in which the files of TakeApart.h say how an operator is taken
// apart.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_PARTS_H
#define INTARSIA_PASSES_LOWER_PARTS_H

#include "passes/Lower/Arguments.h"
#include "passes/Normalise/NewCall.h"

#include "llvm/ADT/StringMap.h"

namespace intarsia::lower {

/// What is in the place of the call's outputs; none if it stays.
using Parts = llvm::SmallVector<mlir::Value>;
using Composite = Parts (*)(graph::CallOp call, mlir::OpBuilder &builder);

inline graph::TensorType typeOf(mlir::Value value) {
  return value ? mlir::dyn_cast<graph::TensorType>(value.getType())
               : graph::TensorType();
}

inline NewCall make(graph::CallOp call, mlir::OpBuilder &builder,
                    llvm::StringRef name) {
  return NewCall(builder, call.getLoc(), name);
}

/// Losses, and the distances that they are made of.
void addLosses(llvm::StringMap<Composite> &table);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_PARTS_H
