//===- GraphFolds.cpp - Canonical forms of the intarsia dialect -----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements what the canonicaliser does to the operations of the
// intarsia dialect.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"

#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace intarsia::graph;

/// What always holds need not be checked.
LogicalResult AssertOp::canonicalize(AssertOp op, PatternRewriter &rewriter) {
  if (!op.getCondition().getExpr().asBool().value_or(false))
    return rewriter.notifyMatchFailure(op, "does not always hold");
  rewriter.eraseOp(op);
  return success();
}

/// Drops what a kernel does not use and what it is given twice.
LogicalResult KernelOp::canonicalize(KernelOp op, PatternRewriter &rewriter) {
  if (op.getDecisions())
    return rewriter.notifyMatchFailure(op, "its operands are counted already");

  // Block arguments that go, and which one stands for each that is given twice.
  Block &block = op.getBody().front();
  llvm::BitVector dropped(block.getNumArguments());
  SmallVector<std::pair<BlockArgument, BlockArgument>> merged;
  auto decide = [&](const void *given, BlockArgument argument,
                    llvm::SmallDenseMap<const void *, BlockArgument> &first) {
    auto [known, isFirst] = first.try_emplace(given, argument);
    if (argument.use_empty())
      dropped.set(argument.getArgNumber());
    else if (!isFirst && !known->second.use_empty()) {
      dropped.set(argument.getArgNumber());
      merged.emplace_back(argument, known->second);
    } else {
      known->second = argument; // the first one that is used
    }
  };
  llvm::SmallDenseMap<const void *, BlockArgument> firstInput, firstSymbol;
  for (auto [input, argument] :
       llvm::zip(op.getInputs(), op.getInputArguments()))
    decide(input.getAsOpaquePointer(), argument, firstInput);
  for (auto [symbol, argument] :
       llvm::zip(op.getSymbols(), op.getSymbolArguments()))
    decide(symbol.getAsOpaquePointer(), argument, firstSymbol);

  auto yield = cast<YieldOp>(block.getTerminator());
  SmallVector<Value> yielded, kept;
  SmallVector<Type> types;
  for (auto [result, value] : llvm::zip(op.getResults(), yield.getOperands()))
    if (!result.use_empty()) {
      kept.push_back(result);
      yielded.push_back(value);
      types.push_back(result.getType());
    }
  if (dropped.none() && kept.size() == op.getNumResults())
    return rewriter.notifyMatchFailure(op, "uses all that it is given");

  SmallVector<Value> inputs;
  for (auto [i, input] : llvm::enumerate(op.getInputs()))
    if (!dropped.test(i))
      inputs.push_back(input);
  SmallVector<Attribute> symbols;
  for (auto [i, symbol] : llvm::enumerate(op.getSymbols()))
    if (!dropped.test(op.getInputs().size() + i))
      symbols.push_back(symbol);

  rewriter.modifyOpInPlace(yield, [&] { yield->setOperands(yielded); });
  for (auto [from, to] : merged)
    rewriter.replaceAllUsesWith(from, to);
  auto replacement =
      KernelOp::create(rewriter, op.getLoc(), types, inputs,
                       rewriter.getArrayAttr(symbols), op.getOps(),
                       /*decisions=*/DictionaryAttr());
  replacement->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  rewriter.inlineRegionBefore(op.getBody(), replacement.getBody(),
                              replacement.getBody().end());
  replacement.getBody().front().eraseArguments(dropped);
  for (auto [from, to] : llvm::zip(kept, replacement.getResults()))
    rewriter.replaceAllUsesWith(from, to);
  rewriter.eraseOp(op);
  return success();
}
