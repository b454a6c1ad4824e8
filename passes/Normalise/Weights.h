//===- Weights.h - The weights of a program ---------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the module's `intarsia.weights` says.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_NORMALISE_WEIGHTS_H
#define INTARSIA_PASSES_NORMALISE_WEIGHTS_H

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace intarsia {

/// The entries, by name, of the weights that a file holds and that `main`
/// writes neither itself nor through another weight of the same record.
llvm::StringMap<mlir::DictionaryAttr>
findUnwrittenWeights(mlir::ModuleOp module, mlir::func::FuncOp main);

/// The name of the weight that the value is: an argument of `main`, or a
/// `WeightOp`'s result; "" for anything else.
llvm::StringRef weightName(mlir::Value value, mlir::func::FuncOp main);

/// Adds entries to the list.
void addWeights(mlir::ModuleOp module, llvm::ArrayRef<mlir::Attribute> entries);

} // namespace intarsia

#endif // INTARSIA_PASSES_NORMALISE_WEIGHTS_H
