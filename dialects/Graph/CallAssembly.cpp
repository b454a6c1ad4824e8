//===- CallAssembly.cpp - The syntax of intarsia.call ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file prints and parses `intarsia.call`. The declarative format cannot
// express it: operands stand among the arguments, inside lists and views.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Assembly.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <limits>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

/// Whether the operands are numbered as the parser would number them: by first
/// appearance of their values among the arguments.
static bool isNumberedByAppearance(CallOp op) {
  llvm::SmallPtrSet<Value, 8> seen;
  for (Value input : op.getInputs())
    if (!seen.insert(input).second)
      return false;
  int64_t next = 0;
  std::function<bool(Attribute)> visit = [&](Attribute value) {
    if (auto list = dyn_cast<ArrayAttr>(value))
      return llvm::all_of(list, visit);
    int64_t index;
    if (auto operand = dyn_cast<OperandAttr>(value))
      index = operand.getIndex();
    else if (auto view = dyn_cast<ViewAttr>(value))
      index = view.getIndex();
    else
      return true;
    if (index < 0 || index > next)
      return false;
    next += index == next;
    return true;
  };
  return visit(op.getArgs()) &&
         next == static_cast<int64_t>(op.getInputs().size());
}

namespace {
class ArgumentPrinter {
public:
  ArgumentPrinter(OpAsmPrinter &printer, CallOp op)
      : printer(printer), op(op), byValue(isNumberedByAppearance(op)) {}

  void operand(int64_t index) {
    if (byValue)
      printer << op.getInputs()[index];
    else
      printer << index;
  }

  void argument(Attribute value) {
    if (auto list = dyn_cast<ArrayAttr>(value)) {
      printer << '[';
      llvm::interleaveComma(list, printer.getStream(),
                            [&](Attribute element) { argument(element); });
      printer << ']';
    } else if (auto attribute = dyn_cast<OperandAttr>(value);
               attribute && byValue) {
      operand(attribute.getIndex());
    } else if (auto view = dyn_cast<ViewAttr>(value)) {
      printer << "view<";
      operand(view.getIndex());
      printer << ", ";
      printExprs(printer, view.getSizes());
      printer << ", ";
      printExprs(printer, view.getStrides());
      printer << ", ";
      printExprText(printer, view.getOffset().getExpr());
      printer << '>';
    } else if (auto real = dyn_cast<FloatAttr>(value);
               real && real.getType().isF64()) {
      printDouble(printer, real.getValue());
      // A NaN with a payload is printed by its bits.
      if (real.getValue().isNaN() &&
          !real.getValue().bitwiseIsEqual(
              APFloat(std::numeric_limits<double>::quiet_NaN())))
        printer << " : f64";
    } else if (auto integer = dyn_cast<IntegerAttr>(value);
               integer && integer.getType().isSignlessInteger(64)) {
      printer << integer.getInt();
    } else if (failed(printShortAttribute(printer, value))) {
      printer << value;
    }
  }

  OpAsmPrinter &printer;
  CallOp op;
  /// Operands are shown as values, not as numbers.
  bool byValue;
};
} // namespace

static void printReturn(OpAsmPrinter &printer, Attribute value) {
  if (auto list = dyn_cast<ArrayAttr>(value)) {
    printer << '[';
    llvm::interleaveComma(list, printer.getStream(), [&](Attribute element) {
      printReturn(printer, element);
    });
    printer << ']';
  } else if (auto result = dyn_cast<OperandAttr>(value)) {
    printer << result.getIndex();
  } else if (isa<NoneAttr>(value)) {
    printer << "none";
  } else if (isa<UnitAttr>(value)) {
    printer << "tied";
  } else {
    printer << value; // invalid, but the verifier's message shows it
  }
}

/// Each output in turn: what `returns` is when it is not printed.
static ArrayAttr defaultReturns(MLIRContext *context, size_t outputCount) {
  SmallVector<Attribute> returns;
  for (size_t i = 0; i < outputCount; ++i)
    returns.push_back(OperandAttr::get(context, i));
  return ArrayAttr::get(context, returns);
}

/// After the operator: `%mul = intarsia.call "aten::mul.Scalar"...`.
void CallOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (getNumResults() > 0)
    setName(getResult(0), getCallee().split("::").second.split('.').first);
}

void CallOp::print(OpAsmPrinter &printer) {
  ArgumentPrinter arguments(printer, *this);
  printer << ' ';
  printer.printAttributeWithoutType(getCalleeAttr());
  printer << '(';
  bool first = true;
  for (auto [name, value] : llvm::zip(getArgNames(), getArgs())) {
    if (!first)
      printer << ", ";
    first = false;
    printer.printKeywordOrString(cast<StringAttr>(name).getValue());
    printer << " = ";
    arguments.argument(value);
  }
  printer << ')';
  if (!arguments.byValue)
    printer << " operands(" << getInputs() << ')';
  if (!getMutates().empty()) {
    printer << " mutates(";
    llvm::interleaveComma(getMutates(), printer.getStream(),
                          [&](int64_t index) { arguments.operand(index); });
    printer << ')';
  }
  if (getReturns() != defaultReturns(getContext(), getOutputs().size())) {
    printer << " returns(";
    llvm::interleaveComma(getReturns(), printer.getStream(),
                          [&](Attribute a) { printReturn(printer, a); });
    printer << ')';
  }
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {getCalleeAttrName(), getArgsAttrName(),
                                 getArgNamesAttrName(), getReturnsAttrName(),
                                 getMutatesAttrName(), "resultSegmentSizes"});
  printer << " : ";
  printer.printFunctionalType(getOperation());
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

namespace {
class ArgumentParser {
public:
  explicit ArgumentParser(OpAsmParser &parser)
      : parser(parser), context(parser.getContext()) {}

  ParseResult argument(Attribute &value) {
    // %x
    OpAsmParser::UnresolvedOperand operand;
    OptionalParseResult isOperand = parser.parseOptionalOperand(operand);
    if (isOperand.has_value()) {
      if (failed(*isOperand))
        return failure();
      value = OperandAttr::get(context, numberOf(operand));
      return success();
    }
    // [a, b]
    if (succeeded(parser.parseOptionalLSquare())) {
      SmallVector<Attribute> elements;
      if (failed(parser.parseOptionalRSquare()) &&
          (parser.parseCommaSeparatedList(
               [&] { return argument(elements.emplace_back()); }) ||
           parser.parseRSquare()))
        return failure();
      value = ArrayAttr::get(context, elements);
      return success();
    }
    // view<%x, [..], [..], offset>
    if (succeeded(parser.parseOptionalKeyword("view")))
      return view(value);
    // none, dtype<bf16>
    OptionalParseResult isShort = parseShortAttribute(parser, value);
    if (isShort.has_value())
      return *isShort;
    // Floats that have no digits.
    for (auto [keyword, real] :
         {std::pair("inf", std::numeric_limits<double>::infinity()),
          std::pair("neg_inf", -std::numeric_limits<double>::infinity()),
          std::pair("nan", std::numeric_limits<double>::quiet_NaN())})
      if (succeeded(parser.parseOptionalKeyword(keyword))) {
        value = parser.getBuilder().getF64FloatAttr(real);
        return success();
      }
    // 3, -1.5, true, "text", @symbol, #intarsia.none
    return parser.parseAttribute(value);
  }

  /// `%x`, or the number of an operand.
  ParseResult operandNumber(int64_t &index) {
    OptionalParseResult isInteger = parser.parseOptionalInteger(index);
    if (isInteger.has_value())
      return *isInteger;
    OpAsmParser::UnresolvedOperand operand;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseOperand(operand))
      return failure();
    size_t known = operands.size();
    index = numberOf(operand);
    if (operands.size() != known)
      return parser.emitError(loc, "'")
             << operand.name << "' is not an argument of the call";
    return success();
  }

  SmallVector<OpAsmParser::UnresolvedOperand> operands;

private:
  /// The operand's number: a value met before keeps its own.
  int64_t numberOf(const OpAsmParser::UnresolvedOperand &operand) {
    for (auto [i, known] : llvm::enumerate(operands))
      if (known.name == operand.name && known.number == operand.number)
        return i;
    operands.push_back(operand);
    return operands.size() - 1;
  }

  ParseResult view(Attribute &value) {
    SMLoc loc = parser.getCurrentLocation();
    int64_t index;
    OpAsmParser::UnresolvedOperand operand;
    if (parser.parseLess())
      return failure();
    OptionalParseResult isInteger = parser.parseOptionalInteger(index);
    if (isInteger.has_value()) {
      if (failed(*isInteger))
        return failure();
    } else {
      if (parser.parseOperand(operand))
        return failure();
      index = numberOf(operand);
    }
    SmallVector<ExprAttr> sizes, strides;
    ExprAttr offset;
    if (parser.parseComma() || parseExprs(parser, sizes) ||
        parser.parseComma() || parseExprs(parser, strides) ||
        parser.parseComma() || parseExpr(parser, offset) ||
        parser.parseGreater())
      return failure();
    value = parser.getChecked<ViewAttr>(loc, context, index,
                                        ArrayRef<ExprAttr>(sizes),
                                        ArrayRef<ExprAttr>(strides), offset);
    return success(value != nullptr);
  }

  OpAsmParser &parser;
  MLIRContext *context;
};
} // namespace

static ParseResult parseReturn(OpAsmParser &parser, Attribute &value) {
  MLIRContext *context = parser.getContext();
  if (succeeded(parser.parseOptionalLSquare())) {
    SmallVector<Attribute> elements;
    if (failed(parser.parseOptionalRSquare()) &&
        (parser.parseCommaSeparatedList(
             [&] { return parseReturn(parser, elements.emplace_back()); }) ||
         parser.parseRSquare()))
      return failure();
    value = ArrayAttr::get(context, elements);
    return success();
  }
  int64_t index;
  OptionalParseResult isInteger = parser.parseOptionalInteger(index);
  if (isInteger.has_value()) {
    value = OperandAttr::get(context, index);
    return *isInteger;
  }
  if (succeeded(parser.parseOptionalKeyword("none")))
    value = NoneAttr::get(context);
  else if (succeeded(parser.parseOptionalKeyword("tied")))
    value = UnitAttr::get(context);
  else
    return parser.emitError(parser.getCurrentLocation(),
                            "expected an output's number, a list of these, "
                            "'none' or 'tied'");
  return success();
}

ParseResult CallOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  ArgumentParser arguments(parser);

  StringAttr callee;
  SmallVector<Attribute> names, values;
  if (parser.parseAttribute(callee) ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Paren, [&]() -> ParseResult {
            std::string name;
            if (parser.parseKeywordOrString(&name) || parser.parseEqual())
              return failure();
            names.push_back(builder.getStringAttr(name));
            return arguments.argument(values.emplace_back());
          }))
    return failure();

  if (succeeded(parser.parseOptionalKeyword("operands"))) {
    SMLoc loc = parser.getCurrentLocation();
    if (!arguments.operands.empty())
      return parser.emitError(loc, "arguments are given as values or as "
                                   "numbers of operands, not as both");
    if (parser.parseOperandList(arguments.operands,
                                AsmParser::Delimiter::Paren))
      return failure();
  }

  SmallVector<int64_t> mutates;
  if (succeeded(parser.parseOptionalKeyword("mutates")) &&
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
        return arguments.operandNumber(mutates.emplace_back());
      }))
    return failure();

  bool hasReturns = succeeded(parser.parseOptionalKeyword("returns"));
  SmallVector<Attribute> returns;
  if (hasReturns &&
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
        return parseReturn(parser, returns.emplace_back());
      }))
    return failure();

  if (parser.parseOptionalAttrDict(result.attributes) || parser.parseColon())
    return failure();
  SMLoc typeLoc = parser.getCurrentLocation();
  FunctionType type;
  if (parser.parseType(type))
    return failure();
  size_t resultCount = type.getNumResults();
  if (resultCount < mutates.size())
    return parser.emitError(typeLoc)
           << "a call that mutates " << mutates.size()
           << " operands has at least as many results, not " << resultCount;
  if (parser.resolveOperands(arguments.operands, type.getInputs(), typeLoc,
                             result.operands))
    return failure();
  result.addTypes(type.getResults());

  size_t outputCount = resultCount - mutates.size();
  MLIRContext *context = parser.getContext();
  auto &properties = result.getOrAddProperties<CallOp::Properties>();
  properties.setCallee(callee);
  properties.setArgs(builder.getArrayAttr(values));
  properties.setArgNames(builder.getArrayAttr(names));
  properties.setReturns(hasReturns ? builder.getArrayAttr(returns)
                                   : defaultReturns(context, outputCount));
  if (!mutates.empty())
    properties.setMutates(builder.getDenseI64ArrayAttr(mutates));
  properties.resultSegmentSizes = {static_cast<int32_t>(outputCount),
                                   static_cast<int32_t>(mutates.size())};
  return success();
}
