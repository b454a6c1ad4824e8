//===- Storage.h - Which values may share storage -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The alias analysis behind the in-place decisions and the plan. Each value of
// a function gets the set of *roots* (function arguments, or results of the
// operations that made new storage) in whose storage its elements may lie. Two
// values may share storage only if they have a root in common.
//
// Function arguments are taken for distinct storages: where two arguments of
// the same program share memory, writing one at its place in program order and
// reading the other later is what eager does too.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PLAN_STORAGE_H
#define INTARSIA_PASSES_PLAN_STORAGE_H

#include "dialects/Graph/Graph.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace intarsia {

/// Attribute names of the decisions.
inline constexpr llvm::StringLiteral inplaceAttrName = "intarsia.inplace";
inline constexpr llvm::StringLiteral writebackAttrName = "intarsia.writeback";
inline constexpr llvm::StringLiteral intoAttrName = "intarsia.into";
/// Beside it: which buffers of the kernel must not overlap, three numbers a
/// pair (plan::Step::Apart).
inline constexpr llvm::StringLiteral apartAttrName = "intarsia.apart";

/// On a kernel, for each result: the input whose tensor it takes over if nobody
/// else holds that when the kernel is launched; -1: none.
inline constexpr llvm::StringLiteral overAttrName = "intarsia.over";

/// Whether `plan-inplace` decided that the call writes the storage of its
/// `index`-th mutated base itself.
bool isInplace(graph::CallOp call, unsigned index);

/// Whether `plan-inplace` decided that this `aten::copy_` into an argument
/// happens at the end of the function: until then its result is its source.
bool isPostponed(graph::CallOp call);

/// The argument of `function` whose new value result `index` is; null when the
/// result is not a mutation.
mlir::BlockArgument mutatedArgument(mlir::func::FuncOp function,
                                    unsigned index);

/// The argument that an `aten::copy_` overwrites from end to end; null when the
/// call is something else.
mlir::BlockArgument overwrittenArgument(graph::CallOp call);

/// The argument whose storage the kernel writes this result into; null when the
/// result is a new tensor.
mlir::BlockArgument writtenArgument(mlir::OpResult result);

class Storage {
public:
  using Roots = llvm::SmallVector<mlir::Value, 2>;

  /// Starts with the arguments; results are entered by `visit`.
  explicit Storage(mlir::func::FuncOp function);

  /// Enters the results of `op`. For a mutating call the decisions must be
  /// there already. Operations are visited in order.
  void visit(mlir::Operation *op);

  /// Empty for what has no storage (numbers).
  const Roots &roots(mlir::Value value) const;
  bool mayShare(mlir::Value a, mlir::Value b) const;
  /// All visited values with this root.
  llvm::ArrayRef<mlir::Value> members(mlir::Value root) const;

  /// The first operation after `op` in its block that reads `value` or a value
  /// that may share storage with it; null when there is none. What is only
  /// overwritten is not read.
  mlir::Operation *laterReader(mlir::Operation *op, mlir::Value value) const;

  /// Whether `value` is what lies in the argument's storage after in-place
  /// writes only: the argument itself, its updated values, or a view of these
  /// that is the whole again.
  bool isCurrentValue(mlir::Value value, mlir::BlockArgument argument) const;

private:
  void enter(mlir::Value value, Roots roots);

  llvm::DenseMap<mlir::Value, Roots> rootsOf;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> membersOf;
  Roots none;
};

} // namespace intarsia

#endif // INTARSIA_PASSES_PLAN_STORAGE_H
