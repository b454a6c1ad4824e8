//===- FuseAnalyse.cpp - The iteration space of each kernel -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `fuse-analyse`: gives every kernel its iteration space, and splits
// a kernel whose results do not share one.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/Body.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_FUSEANALYSE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// The reductions that a result is computed from.
SmallVector<linalg::GenericOp> reductionsOf(Value root) {
  SmallVector<linalg::GenericOp> found;
  SetVector<Value> work;
  work.insert(root);
  for (size_t next = 0; next < work.size(); ++next) {
    Operation *op = work[next].getDefiningOp();
    if (!op)
      continue;
    if (reduces(op) && !llvm::is_contained(found, cast<linalg::GenericOp>(op)))
      found.push_back(cast<linalg::GenericOp>(op));
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        work.insert(operand);
    op->walk(
        [&](tensor::ExtractOp extract) { work.insert(extract.getTensor()); });
  }
  return found;
}

/// The space of a reduction: what it keeps are the rows. Nullopt for one that
/// reads its input otherwise than element by element.
std::optional<Space> rowSpace(linalg::GenericOp reduction) {
  OpOperand *input = reduction.getDpsInputOperand(0);
  if (!reduction.getMatchingIndexingMap(input).isIdentity())
    return std::nullopt;
  Space space = Space::ofElements(sizesOf(input->get()));
  SmallVector<utils::IteratorType> iterators =
      reduction.getIteratorTypesArray();
  auto isRow = [&](int64_t dim) {
    return iterators[dim] == utils::IteratorType::parallel;
  };
  space.rows = llvm::count(iterators, utils::IteratorType::parallel);
  llvm::stable_sort(space.order,
                    [&](int64_t a, int64_t b) { return isRow(a) > isRow(b); });
  return space;
}

Space spaceOf(graph::KernelOp kernelOp, unsigned result) {
  auto type = cast<graph::TensorType>(kernelOp.getResult(result).getType());
  Space own = Space::ofElements(type.getSizeExprs());
  Value root = kernelOp.getBody().front().getTerminator()->getOperand(result);
  std::optional<Space> rows;
  for (linalg::GenericOp reduction : reductionsOf(root)) {
    std::optional<Space> space = rowSpace(reduction);
    if (!space || (rows && !rows->hasRowsOf(*space)))
      return own;
    if (!rows)
      rows = space;
  }
  if (!rows)
    return own;
  // A result that lies otherwise than what is reduced has no rows.
  bool isFull = rows->isTrailing() ? own.size() == rows->size()
                                   : own.sizes == rows->sizes;
  return isFull || own.size() == rows->rowCount() ? *rows : own;
}

class FuseAnalyse final
    : public ::intarsia::impl::FuseAnalyseBase<FuseAnalyse> {
public:
  using FuseAnalyseBase::FuseAnalyseBase;

  void runOnOperation() override {
    // What nobody needs is no part of any decision.
    getOperation().walk([](func::FuncOp function) {
      if (function.isExternal())
        return;
      SmallVector<Operation *> ops;
      for (Operation &op : function.getBody().front().without_terminator())
        ops.push_back(&op);
      for (Operation *op : llvm::reverse(ops))
        if (isOpTriviallyDead(op))
          op->erase();
    });
    SmallVector<graph::KernelOp> kernels;
    getOperation().walk(
        [&](graph::KernelOp kernelOp) { kernels.push_back(kernelOp); });
    for (graph::KernelOp kernelOp : kernels)
      analyse(kernelOp);
  }

private:
  void analyse(graph::KernelOp kernelOp) {
    SmallVector<Space> spaces;
    SmallVector<SmallVector<unsigned>> results;
    for (unsigned result = 0; result < kernelOp.getNumResults(); ++result) {
      Space space = spaceOf(kernelOp, result);
      auto *known = llvm::find_if(
          spaces, [&](const Space &other) { return other.hasRowsOf(space); });
      if (known == spaces.end()) {
        spaces.push_back(space);
        results.push_back({result});
      } else {
        results[known - spaces.begin()].push_back(result);
      }
    }
    if (spaces.size() == 1)
      return annotate(kernelOp, spaces[0]);
    ++numSplit;
    OpBuilder builder(kernelOp);
    for (auto [space, chosen] : llvm::zip_equal(spaces, results)) {
      graph::KernelOp part = extract(builder, kernelOp, chosen);
      for (auto [number, result] : llvm::enumerate(chosen))
        kernelOp.getResult(result).replaceAllUsesWith(part.getResult(number));
      annotate(part, space);
    }
    kernelOp.erase();
  }

  /// A kernel with some of the results, and no more inputs than these need.
  graph::KernelOp extract(OpBuilder &builder, graph::KernelOp whole,
                          ArrayRef<unsigned> results) {
    auto part = cast<graph::KernelOp>(builder.clone(*whole));
    Block &body = part.getBody().front();
    Operation *yield = body.getTerminator();
    SmallVector<Value> yielded;
    SmallVector<Type> types;
    for (unsigned result : results) {
      yielded.push_back(yield->getOperand(result));
      types.push_back(whole.getResult(result).getType());
    }
    yield->setOperands(yielded);
    // Not an early-increment range: reversing a range with an end that is no
    // block's end gives iterators that hold on to the element just erased.
    SmallVector<Operation *> ops;
    for (Operation &op : body.without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (isOpTriviallyDead(op))
        op->erase();
    BitVector unused(body.getNumArguments());
    SmallVector<Value> inputs;
    SmallVector<Attribute> symbols;
    unsigned inputCount = part.getInputs().size();
    for (BlockArgument argument : body.getArguments()) {
      unsigned number = argument.getArgNumber();
      if (argument.use_empty())
        unused.set(number);
      else if (number < inputCount)
        inputs.push_back(part.getInputs()[number]);
      else
        symbols.push_back(part.getSymbols()[number - inputCount]);
    }
    body.eraseArguments(unused);
    auto fresh = graph::KernelOp::create(builder, whole.getLoc(), types, inputs,
                                         builder.getArrayAttr(symbols),
                                         whole.getOps(), DictionaryAttr());
    fresh.getBody().takeBody(part.getBody());
    part.erase();
    return fresh;
  }

  void annotate(graph::KernelOp kernelOp, const Space &space) {
    NamedAttrList decisions(kernelOp.getDecisionsAttr());
    space.set(decisions, &getContext());
    kernelOp.setDecisionsAttr(decisions.getDictionary(&getContext()));
  }
};

} // namespace
