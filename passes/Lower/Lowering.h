//===- Lowering.h - The table from operators to kernels -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The one table: operator name -> function that builds the body of an
// `intarsia.kernel` for one call, on builtin tensors. An operator without an
// entry, or whose entry declines the call at hand, stays a call.
//
// The language of a kernel's body, which fusion and code generation rely on:
//   - `tensor.empty`, `linalg.fill` of one (the start of a reduction);
//   - `linalg.generic`, pointwise: all iterators parallel, one result, the
//     output map the identity, input maps projected permutations in which a
//     broadcast dimension is the constant 0; the body's scalars may read
//     captured tensors with `tensor.extract` at clamped or checked indices and
//     use `linalg.index`;
//   - `linalg.generic`, reduction: the body is nothing but the associative
//     combiner of (elements..., accumulators...), so that combining two
//     accumulators is the same body; what is computed before reducing is a
//     pointwise generic of its own;
//   - `linalg.generic`, running reduction: one reduction loop, all maps the
//     identity; its results are the accumulators after each element of that
//     loop, in order. The combiner need not be associative;
//   - `tensor.extract_slice`, `tensor.collapse_shape`, `tensor.expand_shape`,
//     `tensor.concat` (only as a result), `tensor.pad` with a constant.
// Element types are PyTorch's storage types as signless builtin types (bool is
// i8 holding 0 or 1, a complex number an integer of the bits of both parts).
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_LOWERING_H
#define INTARSIA_PASSES_LOWER_LOWERING_H

#include "dialects/Graph/Graph.h"
#include "intarsia/Support/DType.h"
#include "intarsia/Support/SymExpr.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"

#include <optional>

namespace intarsia::lower {

/// The builtin element type that stores a dtype; null when kernels have none
/// (complex numbers of halves, most formats of 8 bits and fewer).
mlir::Type storageType(mlir::MLIRContext *context, DType dtype);
/// The dtype in which PyTorch computes: f32 for f16 and bf16, else itself.
DType computeType(DType dtype);

/// Converts a scalar as PyTorch's casts do. A bool scalar is an `i1`, others
/// their storage type.
mlir::Value convertScalar(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, DType from, DType to);
/// A constant scalar of `dtype` (bool: `i1`).
mlir::Value constantScalar(mlir::OpBuilder &builder, mlir::Location loc,
                           DType dtype, double value);
mlir::Value constantScalar(mlir::OpBuilder &builder, mlir::Location loc,
                           DType dtype, int64_t value);

/// Whether code generation can expand this op of the math dialect for `dtype`.
/// Others are declined, so that a kernel never needs a mathematics library.
bool hasMathEmitter(llvm::StringRef mathOpName, DType dtype);

/// A tensor inside a kernel's body.
struct Tensor {
  mlir::Value value;
  llvm::SmallVector<SymExpr> sizes;
  DType dtype = DType::F32;
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
};

/// A tensor as an operand of a pointwise computation: its dimension k runs with
/// the result's dimension `dims[k]`; -1 for a dimension that stays at 0.
struct Access {
  Tensor tensor;
  llvm::SmallVector<int64_t> dims;
};
/// PyTorch's broadcasting, from the right.
Access broadcast(const Tensor &tensor, llvm::ArrayRef<SymExpr> sizes);

/// Builds one kernel. Nothing reaches the IR before `finish`.
class KernelBuilder {
public:
  using ScalarBody = llvm::function_ref<mlir::Value(
      mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;
  using ScalarsBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

  KernelBuilder(mlir::OpBuilder &outer, mlir::Location loc);
  ~KernelBuilder();

  mlir::Location getLoc() const { return loc; }
  /// Says that the call at hand has no kernel after all: for what is found out
  /// in the middle of a scalar body.
  void decline() { isDeclined = true; }
  bool declined() const { return isDeclined; }
  /// Inserts at the end of the body.
  mlir::OpBuilder &builder() { return inner; }

  /// The tensor operand as a block argument (the same one when asked twice).
  Tensor input(mlir::Value graphTensor);
  /// An `index` with the value of `expr`: a constant or a block argument.
  mlir::Value size(const SymExpr &expr);
  /// A scalar of `dtype` from a symbolic number (`index`, `f64`, `i1` graph
  /// value made by `intarsia.size`); null when it is something else.
  mlir::Value symbolScalar(mlir::Value graphScalar, DType dtype);

  /// `sizes` must be what the inputs broadcast to (PyTorch's rule, from the
  /// right; a dimension of size 1 is broadcast when the target's is not 1).
  /// The body gets one scalar an input (bool: i1) and returns one of `result`
  /// (bool: i1).
  Tensor pointwise(llvm::ArrayRef<Tensor> inputs, llvm::ArrayRef<SymExpr> sizes,
                   DType result, ScalarBody body);
  /// As `pointwise`, with the position (one `index` a dimension) after the
  /// inputs' scalars.
  Tensor pointwiseAt(llvm::ArrayRef<Tensor> inputs,
                     llvm::ArrayRef<SymExpr> sizes, DType result,
                     ScalarBody body);
  /// As both, with a map for each input.
  Tensor pointwiseAccess(llvm::ArrayRef<Access> inputs,
                         llvm::ArrayRef<SymExpr> sizes, DType result,
                         bool withPosition, ScalarBody body);
  /// Reduces `dims` (non-negative, sorted) of inputs of equal sizes.
  /// `neutral` are the accumulators' starts, one an input; `combine` gets
  /// (elements..., accumulators...) and returns the new accumulators; bool
  /// scalars are i1. The results have the reduced dimensions dropped.
  llvm::SmallVector<Tensor> reduce(llvm::ArrayRef<Tensor> inputs,
                                   llvm::ArrayRef<int64_t> dims,
                                   llvm::ArrayRef<mlir::TypedAttr> neutral,
                                   ScalarsBody combine);
  /// As `reduce`, along one dimension and in its order, with the accumulators
  /// after each element as results.
  llvm::SmallVector<Tensor> run(llvm::ArrayRef<Tensor> inputs, int64_t dim,
                                llvm::ArrayRef<mlir::TypedAttr> start,
                                ScalarsBody combine);
  /// Views, as index maps.
  Tensor permute(const Tensor &in, llvm::ArrayRef<int64_t> order);
  Tensor expand(const Tensor &in, llvm::ArrayRef<SymExpr> sizes);
  /// Any reshape: equal numbers of elements. A null value if the types can't
  /// tell that they are.
  Tensor reshape(const Tensor &in, llvm::ArrayRef<SymExpr> sizes);
  Tensor unsqueeze(const Tensor &in, int64_t dim);
  Tensor slice(const Tensor &in, int64_t dim, const SymExpr &start,
               const SymExpr &length, int64_t step);
  Tensor select(const Tensor &in, int64_t dim, const SymExpr &index);
  Tensor cast(const Tensor &in, DType dtype);
  /// The inputs one after the other along `dim`; only as a kernel's result.
  Tensor concat(llvm::ArrayRef<Tensor> inputs, int64_t dim,
                llvm::ArrayRef<SymExpr> sizes);
  /// `low` and `high` constant elements before and after each dimension.
  Tensor pad(const Tensor &in, llvm::ArrayRef<int64_t> low,
             llvm::ArrayRef<int64_t> high, mlir::Value value);
  /// `out[i...] = in[...]` read at computed positions: inside a scalar body.
  static mlir::Value extract(mlir::OpBuilder &builder, mlir::Location loc,
                             const Tensor &from, mlir::ValueRange position);

  /// Ends the body with these results, whose graph types are `types`, and
  /// creates the operation before the outer builder's insertion point.
  graph::KernelOp finish(llvm::ArrayRef<Tensor> results,
                         llvm::ArrayRef<graph::TensorType> types,
                         llvm::StringRef opName);

private:
  llvm::SmallVector<Tensor> accumulate(llvm::ArrayRef<Tensor> inputs,
                                       llvm::ArrayRef<int64_t> dims,
                                       bool keepsAll,
                                       llvm::ArrayRef<mlir::TypedAttr> neutral,
                                       ScalarsBody combine);
  mlir::Value emptyTensor(llvm::ArrayRef<SymExpr> sizes, mlir::Type element);
  mlir::OpFoldResult foldedSize(const SymExpr &expr);
  mlir::Value floatValue(const SymExpr &expr);

  mlir::OpBuilder &outer;
  mlir::Location loc;
  mlir::Region region;
  mlir::Block *block;
  mlir::OpBuilder inner;
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<SymExpr> symbols;
  bool isDeclined = false;
};

/// Builds the kernel's results for a call, in the order of its outputs (an
/// empty Tensor, null value, for an output that nobody uses and that costs to
/// make). Failure: this call stays a call; nothing was changed.
using Lowering = mlir::FailureOr<llvm::SmallVector<Tensor>> (*)(
    graph::CallOp call, KernelBuilder &kernel);

class LoweringTable {
public:
  void add(llvm::StringRef name, Lowering lowering) {
    addTo(table, name, lowering);
  }
  /// The lowering of calls with complex tensors, which others don't get.
  void addComplex(llvm::StringRef name, Lowering lowering) {
    addTo(complex, name, lowering);
  }
  Lowering lookup(llvm::StringRef name) const { return table.lookup(name); }
  Lowering lookupComplex(llvm::StringRef name) const {
    return complex.lookup(name);
  }
  const llvm::StringMap<Lowering> &entries() const { return table; }
  const llvm::StringMap<Lowering> &complexEntries() const { return complex; }

  /// The table with every entry; built once.
  static const LoweringTable &get();

private:
  /// One of two would never be called: nobody may overlook that.
  static void addTo(llvm::StringMap<Lowering> &entries, llvm::StringRef name,
                    Lowering lowering) {
    if (!entries.try_emplace(name, lowering).second)
      llvm::report_fatal_error(name + " has two lowerings");
  }

  llvm::StringMap<Lowering> table, complex;
};

/// Operators that are calls on purpose.
struct LibraryCalls {
  llvm::StringRef title, reason;
  std::vector<llvm::StringRef> names;
};
llvm::ArrayRef<LibraryCalls> libraryCalls();

/// The table as Markdown: docs/operators.md.
void printOperators(llvm::raw_ostream &os);

// One function a family, each in a file of its own.
void registerPointwise(LoweringTable &table);
void registerDivision(LoweringTable &table);
void registerReductions(LoweringTable &table);
void registerRunning(LoweringTable &table);
void registerNormalisations(LoweringTable &table);
void registerChannelNorms(LoweringTable &table);
void registerLosses(LoweringTable &table);
void registerIndexing(LoweringTable &table);
void registerFactories(LoweringTable &table);
void registerShapes(LoweringTable &table);
void registerSampling(LoweringTable &table);
void registerPooling(LoweringTable &table);
/// After all others, whose entries it takes.
void registerComplex(LoweringTable &table);

/// The view operators: given the call and its (in-kernel) source, the view as
/// an index map. Used by fusion to look through a view between two kernels.
using ViewLowering = mlir::FailureOr<Tensor> (*)(graph::CallOp call,
                                                 KernelBuilder &kernel,
                                                 const Tensor &source);
ViewLowering lookupView(llvm::StringRef name);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_LOWERING_H
