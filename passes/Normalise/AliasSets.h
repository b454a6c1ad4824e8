//===- AliasSets.h - Which values may share written storage -------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The alias analysis of programs that are not functional, in which an in-place
// operator changes every value that shares the storage. Values that may share
// storage are in one set; a set is written when any call writes a member.
//
// What an operator's schema and tags say of aliasing is on the calls; of the
// arguments, `intarsia.kind` and `intarsia.same_storage` (the number of an
// earlier argument whose bytes these are) tell.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_NORMALISE_ALIASSETS_H
#define INTARSIA_PASSES_NORMALISE_ALIASSETS_H

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/EquivalenceClasses.h"

namespace intarsia {

/// On a function some of whose storages are written through shared values.
inline constexpr llvm::StringLiteral aliasingAttrName = "intarsia.aliasing";
inline constexpr llvm::StringLiteral sameStorageAttrName =
    "intarsia.same_storage";
/// On a function of which every call is one that autocast acts on.
inline constexpr llvm::StringLiteral autocastAttrName = "intarsia.autocast";

bool isHigherOrder(graph::CallOp call);
/// The functions that a higher-order call refers to.
llvm::SmallVector<mlir::func::FuncOp> subgraphsOf(graph::CallOp call);

class AliasSets {
public:
  /// Of what a set is known by.
  using Key = void *;

  /// `inputsMayAlias`: the user may pass one tensor several times.
  AliasSets(mlir::func::FuncOp function, bool inputsMayAlias);

  Key setOf(mlir::Value value) const;
  /// False for what has no storage.
  bool isWritten(mlir::Value value) const;
  bool anyWritten() const { return !written.empty(); }

private:
  void join(mlir::Value a, mlir::Value b);

  llvm::EquivalenceClasses<void *> sets;
  llvm::DenseSet<void *> written;
};

/// Whether a result of the call may be one of its operands, or share storage
/// with one in a way that is not in its `views`: control flow whose subgraphs
/// return what they are given.
bool mayReturnOperand(graph::CallOp call);

/// Marks the calls that touch written storage `aliasing`, and the function.
/// Returns the arguments that are written.
llvm::SmallVector<unsigned> markAliasing(mlir::func::FuncOp function);

} // namespace intarsia

#endif // INTARSIA_PASSES_NORMALISE_ALIASSETS_H
