//===- Preconditions.cpp - What operators demand of sizes -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An operator's kernel refuses some sizes and indices that its fake
// implementation let pass: the tracer takes any size for larger than one, and
// of an index that data decides it knows nothing. Where such an operator
// becomes a view or part of a kernel, nobody would refuse: the program asserts
// it before the operator, unless the ranges of its symbols prove it.
//
//===----------------------------------------------------------------------===//

#include "lib/Import/FunctionBuilder.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;

using Kind = SymExpr::Kind;

/// The least value that the ranges of its symbols leave an integer.
std::optional<int64_t> FunctionBuilder::lowerBound(const SymExpr &expr) const {
  if (std::optional<int64_t> value = expr.asInteger())
    return value;
  if (expr.isSymbol()) {
    for (const RangeConstraint &range : program.ranges)
      if (range.symbol == expr.str())
        return range.min;
    return std::nullopt;
  }
  if (expr.kind() != Kind::Add && expr.kind() != Kind::Mul)
    return std::nullopt;
  bool isSum = expr.kind() == Kind::Add;
  int64_t bound = isSum ? 0 : 1;
  for (const SymExpr &operand : expr.operands()) {
    std::optional<int64_t> least = lowerBound(operand);
    if (!least || (!isSum && *least < 0) ||
        (isSum ? llvm::AddOverflow(bound, *least, bound)
               : llvm::MulOverflow(bound, *least, bound)))
      return std::nullopt;
  }
  return bound;
}

void FunctionBuilder::demand(OpBuilder &inserter, Location place,
                             const SymExpr &condition, const Twine &message,
                             bool isIndexError) {
  if (condition.asBool() == true)
    return;
  useSymbols(condition);
  graph::AssertOp::create(
      inserter, place, graph::ExprAttr::get(inserter.getContext(), condition),
      inserter.getStringAttr(message),
      isIndexError ? inserter.getUnitAttr() : UnitAttr());
}

/// lhs < rhs, unless it is proved.
void FunctionBuilder::demandLess(OpBuilder &inserter, Location place,
                                 const SymExpr &lhs, const SymExpr &rhs,
                                 const Twine &message, bool isIndexError) {
  if (std::optional<int64_t> least = lowerBound(rhs - lhs); least && *least > 0)
    return;
  demand(inserter, place, SymExpr::make(Kind::Lt, {lhs, rhs}), message,
         isIndexError);
}

/// How many elements [start:end:step] of `size` elements has, as Python counts.
static std::optional<SymExpr> sliceLength(graph::CallOp call,
                                          const SymExpr &size) {
  SymExpr zero(0);
  auto clamped = [&](StringRef name,
                     const SymExpr &none) -> std::optional<SymExpr> {
    if (call.isNone(name))
      return none;
    std::optional<SymExpr> at = call.sizeArg(name);
    if (!at)
      return std::nullopt;
    std::optional<int64_t> known = at->asInteger();
    if (known == INT64_MAX)
      return size;
    if (known ? *known < 0 : true)
      at = known ? size + *at
                 : SymExpr::make(
                       Kind::Select,
                       {SymExpr::make(Kind::Lt, {*at, zero}), size + *at, *at});
    return SymExpr::make(Kind::Max,
                         {zero, SymExpr::make(Kind::Min, {*at, size})});
  };
  std::optional<SymExpr> start = clamped("start", zero);
  std::optional<SymExpr> end = clamped("end", size);
  std::optional<SymExpr> step =
      call.isNone("step") ? SymExpr(1) : call.sizeArg("step");
  if (!start || !end || !step)
    return std::nullopt;
  SymExpr length = SymExpr::make(Kind::FloorDiv,
                                 {*end - *start + *step - SymExpr(1), *step});
  return SymExpr::make(Kind::Max, {zero, length});
}

void FunctionBuilder::addPreconditions(graph::CallOp call) {
  StringRef callee = call.getCallee();
  enum class Demand { None, Index, Slice, NotOne, NotEmpty };
  Demand what =
      llvm::StringSwitch<Demand>(callee)
          .Cases({"aten::select.int", "aten::select_copy.int",
                  "aten::select_scatter"},
                 Demand::Index)
          .Case("aten::slice_scatter", Demand::Slice)
          .Cases({"aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims",
                  "aten::squeeze_", "aten::squeeze_.dim", "aten::squeeze_.dims",
                  "aten::squeeze_copy", "aten::squeeze_copy.dim",
                  "aten::squeeze_copy.dims"},
                 Demand::NotOne)
          .Cases({"aten::amax", "aten::amin", "aten::aminmax", "aten::argmax",
                  "aten::argmin", "aten::max", "aten::max.dim", "aten::min",
                  "aten::min.dim"},
                 Demand::NotEmpty)
          .Default(Demand::None);
  if (what == Demand::None)
    return;
  Value self = call.operand(call.operand("self") ? "self" : "input");
  auto type =
      self ? dyn_cast<graph::TensorType>(self.getType()) : graph::TensorType();
  if (!type)
    return;
  SmallVector<SymExpr> sizes = type.getSizeExprs();
  int64_t rank = sizes.size();
  // The dimensions that the argument names; all when there is none.
  SmallVector<int64_t> dims;
  SmallVector<SymExpr> named;
  if (std::optional<SmallVector<SymExpr>> list = call.sizesArg("dim"))
    named = *list;
  else if (std::optional<SymExpr> one = call.sizeArg("dim"))
    named = {*one};
  for (const SymExpr &dim : named) {
    std::optional<int64_t> number = dim.asInteger();
    if (!number || *number < -rank || *number >= rank)
      return; // eager's error
    dims.push_back(*number < 0 ? *number + rank : *number);
  }
  bool isWhole = dims.empty();
  for (int64_t dim = 0; isWhole && dim < rank; ++dim)
    dims.push_back(dim);

  OpBuilder before(call);
  Location place = call.getLoc();
  switch (what) {
  case Demand::None:
    return;
  case Demand::Index: {
    std::optional<SymExpr> index = call.sizeArg("index");
    if (isWhole || !index)
      return;
    const SymExpr &size = sizes[dims.front()];
    std::string text = (callee.drop_front(6).split('.').first + "(): index " +
                        index->str() + " is out of range for dimension " +
                        llvm::Twine(dims.front()) + " of size " + size.str())
                           .str();
    demandLess(before, place, *index, size, text, /*isIndexError=*/true);
    demandLess(before, place, SymExpr(-1), *index + size, text,
               /*isIndexError=*/true);
    return;
  }
  case Demand::Slice: {
    Value source = call.operand("src");
    auto part = source ? dyn_cast<graph::TensorType>(source.getType())
                       : graph::TensorType();
    int64_t dim = isWhole ? 0 : dims.front();
    std::optional<SymExpr> length =
        rank ? sliceLength(call, sizes[dim]) : std::nullopt;
    if (!part || !length || int64_t(part.getSizeExprs().size()) != rank)
      return;
    SymExpr given = part.getSizeExprs()[dim];
    demand(before, place, SymExpr::make(Kind::Eq, {given, *length}),
           "slice_scatter(): the source has " + given.str() +
               " elements in dimension " + llvm::Twine(dim) +
               ", but the slice has " + length->str(),
           /*isIndexError=*/false);
    return;
  }
  case Demand::NotOne: {
    // A size that a check has made 1 is a symbol still, and its dimension goes.
    auto result = dyn_cast<graph::TensorType>(call.getResult(0).getType());
    SmallVector<SymExpr> kept = result ? result.getSizeExprs() : sizes;
    int64_t ones = llvm::count_if(
        dims, [&](int64_t dim) { return sizes[dim].asInteger() == 1; });
    bool onlyOnesGo = rank - int64_t(kept.size()) <= ones;
    for (int64_t dim : dims) {
      const SymExpr &size = sizes[dim];
      bool stays =
          onlyOnesGo || llvm::count(kept, size) == llvm::count(sizes, size);
      if (stays && !size.asInteger() && lowerBound(size).value_or(1) < 2)
        demand(before, place, SymExpr::make(Kind::Ne, {size, SymExpr(1)}),
               "squeeze(): dimension " + llvm::Twine(dim) + " of size " +
                   size.str() +
                   " was traced as one that stays: its size must not be 1",
               /*isIndexError=*/false);
    }
    return;
  }
  case Demand::NotEmpty:
    for (int64_t dim : dims)
      if (!sizes[dim].asInteger())
        demandLess(before, place, SymExpr(0), sizes[dim],
                   callee.drop_front(6).split('.').first + "(): dimension " +
                       llvm::Twine(dim) + " of size " + sizes[dim].str() +
                       " must not be empty",
                   /*isIndexError=*/!isWhole);
    return;
  }
}
