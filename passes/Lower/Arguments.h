//===- Arguments.h - A call's arguments, for lowerings ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What several lowerings ask of a call: its result types, tensor arguments that
// may be numbers, dimensions counted from the end, PyTorch's type promotion.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_ARGUMENTS_H
#define INTARSIA_PASSES_LOWER_ARGUMENTS_H

#include "passes/Lower/Lowering.h"
#include "passes/Lower/Scalar.h"

namespace intarsia::lower {

using Lowered = mlir::FailureOr<llvm::SmallVector<Tensor>>;

graph::TensorType resultType(graph::CallOp call, unsigned index = 0);
/// Sizes of a result.
llvm::SmallVector<SymExpr> resultSizes(graph::CallOp call, unsigned index = 0);
DType resultDType(graph::CallOp call, unsigned index = 0);

/// A tensor argument as a kernel's input; nothing if it is None.
std::optional<Tensor> tensorArgument(graph::CallOp call, KernelBuilder &kernel,
                                     llvm::StringRef name);

/// `dim` counted from the front. A tensor without dimensions has one, of size
/// 1, for this purpose.
std::optional<int64_t> dimArgument(graph::CallOp call, llvm::StringRef name,
                                   int64_t rank);
/// A list of dimensions (or a single one), from the front, sorted; all of them
/// for None or an empty list.
std::optional<llvm::SmallVector<int64_t>>
dimsArgument(graph::CallOp call, llvm::StringRef name, int64_t rank);
/// Constant integers, None an empty list.
std::optional<llvm::SmallVector<int64_t>> intsArgument(graph::CallOp call,
                                                       llvm::StringRef name);
std::optional<llvm::SmallVector<bool>> boolsArgument(graph::CallOp call,
                                                     llvm::StringRef name);

/// A tensor or a number.
struct Argument {
  /// For a tensor.
  std::optional<Tensor> tensor;
  /// For a number: its constant, or a value of the graph that holds it.
  mlir::Attribute constant;
  mlir::Value symbol;
  /// The tensor's, or i64, f64, c128 or bool for a number.
  DType dtype = DType::F32;
  bool isCpu = true;

  bool isNumber() const { return !tensor; }
  bool isZeroDim() const { return tensor && tensor->sizes.empty(); }
  std::optional<int64_t> constantInt() const;
  std::optional<double> constantFloat() const; // int or float
  graph::ComplexAttr constantComplex() const;  // null for others
};

std::optional<Argument> argument(graph::CallOp call, KernelBuilder &kernel,
                                 llvm::StringRef name);

/// PyTorch's result type of an operation on tensors, tensors without dimensions
/// and Python numbers.
DType promoteTypes(llvm::ArrayRef<Argument> arguments);
/// Of two tensors with dimensions.
DType promoteTypes(DType a, DType b);

/// A dense tensor of these sizes, beside that of another type.
graph::TensorType denseType(graph::TensorType like,
                            llvm::ArrayRef<SymExpr> sizes);

/// True if the tensors broadcast to `sizes` and the types say so: no two
/// symbolic sizes are taken for equal unless they are.
bool broadcastsTo(llvm::ArrayRef<Argument> arguments,
                  llvm::ArrayRef<SymExpr> sizes);

/// When a number, or on the CPU a tensor without dimensions, keeps its own
/// precision in a computation on f16 or bf16. Others are rounded to the common
/// dtype first.
enum class NumberPrecision { Rounded, ExactIfSecond, Exact };

/// A pointwise computation on `arguments`, brought to `common` and then to its
/// compute type; the body's scalar is converted to the call's result dtype.
/// Fails if the shapes or a number don't allow it.
Lowered lowerPointwise(graph::CallOp call, KernelBuilder &kernel,
                       llvm::ArrayRef<Argument> arguments, DType common,
                       NumberPrecision precision,
                       llvm::function_ref<Scalar(llvm::ArrayRef<Scalar>)> body);

/// A number of the call as a scalar of `like`'s dtype; declines what is not a
/// constant or an integer symbol.
Scalar numberArgument(graph::CallOp call, llvm::StringRef name,
                      const Scalar &like);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_ARGUMENTS_H
