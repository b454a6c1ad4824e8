//===- GraphOps.cpp - Operations of the intarsia dialect ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements the operations of the intarsia dialect other than the
// call (CallOp.cpp): symbolic numbers, assertions and kernels. Their
// canonicalisation is in GraphFolds.cpp.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Assembly.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;

//===----------------------------------------------------------------------===//
// Symbolic numbers
//===----------------------------------------------------------------------===//

std::optional<SymExpr> graph::symbolicValue(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function =
        dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
    if (!function || !argument.getOwner()->isEntryBlock())
      return std::nullopt;
    auto symbol = function.getArgAttrOfType<ExprAttr>(argument.getArgNumber(),
                                                      exprAttrName);
    return symbol ? std::optional(symbol.getExpr()) : std::nullopt;
  }
  if (auto size = value.getDefiningOp<SizeOp>())
    return size.getExpr().getExpr();
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return std::nullopt;
  if (auto boolean = dyn_cast<BoolAttr>(constant))
    return SymExpr::boolean(boolean.getValue());
  if (auto integer = dyn_cast<IntegerAttr>(constant))
    return SymExpr(integer.getInt());
  if (auto real = dyn_cast<FloatAttr>(constant))
    return SymExpr::real(real.getValueAsDouble());
  return std::nullopt;
}

LogicalResult SizeOp::verify() {
  const SymExpr expr = getExpr().getExpr();
  Type type = getType();
  // 1.
  if (expr.isBoolean() && !type.isInteger(1))
    return emitOpError() << "\"" << expr.str() << "\" is a condition: its type "
                         << "is i1, not " << type;
  if (!expr.isBoolean() && !expr.isSymbol() && type.isInteger(1))
    return emitOpError() << "\"" << expr.str()
                         << "\" is not a condition: its type is not i1";
  // 2.
  if (expr.mayBeReal() && !type.isF64())
    return emitOpError() << "\"" << expr.str()
                         << "\" may be a float: its type is f64, not " << type;
  return success();
}

LogicalResult AssertOp::verify() {
  // 1.
  const SymExpr condition = getCondition().getExpr();
  if (!condition.isBoolean() && !condition.isSymbol())
    return emitOpError() << "\"" << condition.str() << "\" is not a condition";
  return success();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

MutableArrayRef<BlockArgument> KernelOp::getInputArguments() {
  return getBody().getArguments().take_front(getInputs().size());
}

MutableArrayRef<BlockArgument> KernelOp::getSymbolArguments() {
  return getBody().getArguments().drop_front(getInputs().size());
}

SymExpr KernelOp::getSymbolExpr(unsigned index) {
  return cast<ExprAttr>(getSymbols()[index]).getExpr();
}

/// `symbols [s0, "2*s0"]`, nothing when there are none.
static void printSymbols(OpAsmPrinter &printer, Operation *,
                         ArrayAttr symbols) {
  if (symbols.empty())
    return;
  printer << "symbols [";
  llvm::interleaveComma(symbols, printer.getStream(), [&](Attribute symbol) {
    if (auto expr = dyn_cast<ExprAttr>(symbol))
      printExprText(printer, expr.getExpr());
    else
      printer << symbol; // invalid, but the verifier's message shows it
  });
  printer << ']';
}

static ParseResult parseSymbols(OpAsmParser &parser, ArrayAttr &symbols) {
  SmallVector<ExprAttr> exprs;
  if (succeeded(parser.parseOptionalKeyword("symbols")) &&
      parseExprs(parser, exprs))
    return failure();
  symbols = parser.getBuilder().getArrayAttr(
      SmallVector<Attribute>(exprs.begin(), exprs.end()));
  return success();
}

/// Whether a builtin tensor stands for a tensor of the graph.
static LogicalResult matches(KernelOp op, Type inner, graph::TensorType outer,
                             const Twine &what) {
  RankedTensorType expected = outer.toBuiltin();
  if (!expected)
    return op.emitOpError() << what << " has the type " << outer
                            << ", of which there are no kernels";
  if (inner != expected)
    return op.emitOpError()
           << what << " of type " << outer << " is a " << expected
           << " inside the kernel, not a " << inner;
  return success();
}

LogicalResult KernelOp::verify() {
  // 3.
  for (Attribute symbol : getSymbols())
    if (!isa<ExprAttr>(symbol))
      return emitOpError() << "expects expressions as symbols, not " << symbol;
  for (Attribute name : getOps())
    if (!isa<StringAttr>(name))
      return emitOpError() << "expects operators' names in ops, not " << name;
  // 1.
  size_t inputCount = getInputs().size(), symbolCount = getSymbols().size();
  if (getBody().getNumArguments() != inputCount + symbolCount)
    return emitOpError() << "has " << inputCount << " inputs and "
                         << symbolCount << " symbols, but its block has "
                         << getBody().getNumArguments() << " arguments";
  for (auto [i, pair] :
       llvm::enumerate(llvm::zip(getInputs(), getInputArguments()))) {
    auto [input, argument] = pair;
    if (failed(matches(*this, argument.getType(),
                       cast<graph::TensorType>(input.getType()),
                       "input " + Twine(i))))
      return failure();
  }
  for (auto [i, argument] : llvm::enumerate(getSymbolArguments()))
    if (!argument.getType().isIndex())
      return emitOpError() << "symbol " << i << " is an index inside the "
                           << "kernel, not a " << argument.getType();
  // 2.
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (yield.getNumOperands() != getNumResults())
    return emitOpError() << "has " << getNumResults() << " results, but yields "
                         << yield.getNumOperands() << " tensors";
  for (auto [i, type] : llvm::enumerate(getResultTypes()))
    if (failed(matches(*this, yield.getOperand(i).getType(),
                       cast<graph::TensorType>(type), "result " + Twine(i))))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Generated
//===----------------------------------------------------------------------===//

#define GET_OP_CLASSES
#include "dialects/Graph/GraphOps.cpp.inc"
