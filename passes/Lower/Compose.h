//===- Compose.h - Kernels of several steps -----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Pointwise steps with formulas on scalars, reductions by name, and reduced
// tensors laid along the dimensions that they were reduced from: the words in
// which softmax, normalisations and losses are written.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_COMPOSE_H
#define INTARSIA_PASSES_LOWER_COMPOSE_H

#include "passes/Lower/Arguments.h"

namespace intarsia::lower {

using Formula = llvm::function_ref<Scalar(llvm::ArrayRef<Scalar>)>;
/// With the position, one `index` a dimension, as i64 scalars.
using FormulaAt =
    llvm::function_ref<Scalar(llvm::ArrayRef<Scalar>, llvm::ArrayRef<Scalar>)>;

/// A tensor of the computation's own sizes, or a smaller one in other
/// dimensions: see `along`, `broadcast`.
struct Operand : Access {
  Operand(const Tensor &tensor) : Access{tensor, {}} {
    llvm::append_range(dims, llvm::seq<int64_t>(0, tensor.rank()));
  }
  Operand(Access access) : Access(std::move(access)) {}
};

/// A pointwise step. Scalars come in the compute type of their tensors' dtype,
/// and the formula's is converted to `result`.
Tensor compute(KernelBuilder &kernel, llvm::ArrayRef<Operand> operands,
               llvm::ArrayRef<SymExpr> sizes, DType result, Formula formula);
Tensor computeAt(KernelBuilder &kernel, llvm::ArrayRef<Operand> operands,
                 llvm::ArrayRef<SymExpr> sizes, DType result,
                 FormulaAt formula);

/// A tensor whose dimensions `dims` of `rank` were reduced away.
Operand along(const Tensor &reduced, int64_t rank,
              llvm::ArrayRef<int64_t> dims);

enum class Reduction { Sum, Product, Max, Min };
/// Over `dims` (sorted), which are dropped. On bool, Max is "any" and Min
/// "all".
Tensor reduce(KernelBuilder &kernel, Reduction reduction, const Tensor &in,
              llvm::ArrayRef<int64_t> dims);

/// What the accumulator of a reduction starts from.
mlir::TypedAttr neutralElement(mlir::MLIRContext *context, Reduction reduction,
                               DType dtype);

/// The number of elements of `dims`.
SymExpr countOf(llvm::ArrayRef<SymExpr> sizes, llvm::ArrayRef<int64_t> dims);
/// An integer expression as a scalar, emitted where `like` is, in its dtype.
Scalar exprScalar(const SymExpr &expr, const Scalar &like);

/// Makes the kernel fail with `message` where `condition` does not hold: once
/// it has ended, the runtime raises it.
void check(const Scalar &condition, llvm::StringRef message);
/// What eager raises for an index that is out of range.
enum class IndexFailure { IndexError, RuntimeError };
/// An index (i64) into a dimension of `size`, checked at run time and clamped.
/// `message` is the error; `{index}` and `{size}` in it are their values. A
/// negative index counts from the end if `wraps`.
Scalar checkedIndex(const Scalar &index, const SymExpr &size, bool wraps,
                    llvm::StringRef message,
                    IndexFailure failure = IndexFailure::IndexError);
/// The element of `from` at an in-range position (i64), in its compute type.
Scalar readAt(const Tensor &from, llvm::ArrayRef<Scalar> position);

/// Gives a reduced tensor the sizes of a result that keeps reduced dimensions.
Tensor withSizes(KernelBuilder &kernel, const Tensor &in,
                 llvm::ArrayRef<SymExpr> sizes);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_COMPOSE_H
