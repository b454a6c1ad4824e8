//===- GraphAttrs.cpp - Attributes of the intarsia dialect ----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements the attributes of the intarsia dialect: expressions and
// the constants that an operator's argument can be.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Assembly.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <charconv>
#include <limits>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

void graph::printExprText(AsmPrinter &printer, const SymExpr &expr) {
  if (expr.asInteger())
    printer << *expr.asInteger();
  else if (expr.isSymbol())
    printer.printKeywordOrString(expr.name());
  else
    printer.printString(expr.str());
}

ParseResult graph::parseExprText(AsmParser &parser, SymExpr &expr) {
  SMLoc loc = parser.getCurrentLocation();
  int64_t integer;
  OptionalParseResult isInteger = parser.parseOptionalInteger(integer);
  if (isInteger.has_value()) {
    expr = SymExpr(integer);
    return *isInteger;
  }
  StringRef keyword;
  if (succeeded(parser.parseOptionalKeyword(&keyword))) {
    expr = SymExpr::symbol(keyword);
    return success();
  }
  std::string text;
  if (failed(parser.parseOptionalString(&text)))
    return parser.emitError(loc, "expected an integer, a symbol or a quoted "
                                 "expression");
  std::string error;
  std::optional<SymExpr> parsed = SymExpr::parse(text, &error);
  if (!parsed)
    return parser.emitError(loc, "malformed expression: ") << error;
  expr = *parsed;
  return success();
}

ParseResult graph::parseExpr(AsmParser &parser, ExprAttr &expr) {
  SymExpr value;
  if (parseExprText(parser, value))
    return failure();
  expr = ExprAttr::get(parser.getContext(), value);
  return success();
}

void graph::printExprs(AsmPrinter &printer, ArrayRef<ExprAttr> exprs) {
  printer << '[';
  llvm::interleaveComma(exprs, printer.getStream(), [&](ExprAttr expr) {
    printExprText(printer, expr.getExpr());
  });
  printer << ']';
}

ParseResult graph::parseExprs(AsmParser &parser,
                              SmallVectorImpl<ExprAttr> &exprs) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
    return parseExpr(parser, exprs.emplace_back());
  });
}

/// The directive of a list of expressions in an attribute's format.
static void printExprList(AsmPrinter &printer, ArrayRef<ExprAttr> exprs) {
  printExprs(printer, exprs);
}
static ParseResult parseExprList(AsmParser &parser,
                                 SmallVector<ExprAttr> &exprs) {
  return parseExprs(parser, exprs);
}

void ExprAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printer.printString(getText());
  printer << '>';
}

Attribute ExprAttr::parse(AsmParser &parser, Type) {
  SymExpr expr;
  if (parser.parseLess() || parseExprText(parser, expr) ||
      parser.parseGreater())
    return {};
  return ExprAttr::get(parser.getContext(), expr);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

void DTypeAttr::print(AsmPrinter &printer) const {
  printer << '<' << dtypeName(getValue()) << '>';
}

Attribute DTypeAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  SMLoc loc = parser.getCurrentLocation();
  StringRef name;
  if (parser.parseKeyword(&name))
    return {};
  std::optional<DType> dtype = dtypeFromName(name);
  if (!dtype) {
    parser.emitError(loc, "unknown dtype '") << name << "'";
    return {};
  }
  if (parser.parseGreater())
    return {};
  return DTypeAttr::get(parser.getContext(), *dtype);
}

void graph::printDouble(AsmPrinter &printer, const APFloat &value) {
  double real = value.convertToDouble();
  if (value.isNaN()) {
    APFloat plain(std::numeric_limits<double>::quiet_NaN());
    if (value.bitwiseIsEqual(plain))
      printer << "nan";
    else
      printer.printFloat(value);
    return;
  }
  if (value.isInfinity()) {
    printer << (value.isNegative() ? "neg_inf" : "inf");
    return;
  }
  char buffer[32];
  char *end = std::to_chars(buffer, buffer + sizeof(buffer), real).ptr;
  std::string text(buffer, end);
  // MLIR's floats have a point before the exponent.
  if (text.find('.') == std::string::npos)
    text.insert(std::min(text.find('e'), text.size()), ".0");
  printer << text;
}

static ParseResult parseDouble(AsmParser &parser, APFloat &value) {
  value = APFloat(0.0);
  if (succeeded(parser.parseOptionalKeyword("inf")))
    value = APFloat(std::numeric_limits<double>::infinity());
  else if (succeeded(parser.parseOptionalKeyword("neg_inf")))
    value = APFloat(-std::numeric_limits<double>::infinity());
  else if (succeeded(parser.parseOptionalKeyword("nan")))
    value = APFloat(std::numeric_limits<double>::quiet_NaN());
  else
    return parser.parseFloat(APFloat::IEEEdouble(), value);
  return success();
}

ComplexAttr ComplexAttr::get(MLIRContext *context, double real,
                             double imaginary) {
  return Base::get(context, APFloat(real), APFloat(imaginary));
}

void ComplexAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printDouble(printer, getReal());
  printer << ", ";
  printDouble(printer, getImaginary());
  printer << '>';
}

Attribute ComplexAttr::parse(AsmParser &parser, Type) {
  APFloat real(0.0), imaginary(0.0);
  if (parser.parseLess() || parseDouble(parser, real) || parser.parseComma() ||
      parseDouble(parser, imaginary) || parser.parseGreater())
    return {};
  return ComplexAttr::get(parser.getContext(), real, imaginary);
}

//===----------------------------------------------------------------------===//
// What refers to operands and results
//===----------------------------------------------------------------------===//

LogicalResult ViewAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t index, ArrayRef<ExprAttr> sizes,
                               ArrayRef<ExprAttr> strides, ExprAttr offset) {
  if (sizes.size() != strides.size())
    return emitError() << "a view has as many strides as sizes, not "
                       << strides.size() << " strides for " << sizes.size()
                       << " sizes";
  return success();
}

LogicalResult BindAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               StringRef symbol, int64_t result,
                               StringRef path) {
  if (symbol.empty())
    return emitError() << "a binding names a symbol";
  if (result < 0)
    return emitError() << "a binding's result is not negative";
  if (path == "value" || path == "offset")
    return success();
  StringRef dimension = path;
  uint64_t number;
  if ((dimension.consume_front("size:") ||
       dimension.consume_front("stride:")) &&
      !dimension.getAsInteger(10, number))
    return success();
  return emitError() << "the path of a binding is \"value\", \"offset\", "
                        "\"size:D\" or \"stride:D\", not \""
                     << path << "\"";
}

//===----------------------------------------------------------------------===//
// Generated
//===----------------------------------------------------------------------===//

#define GET_ATTRDEF_CLASSES
#include "dialects/Graph/GraphAttrs.cpp.inc"

void GraphDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Graph/GraphAttrs.cpp.inc"
      >();
}

LogicalResult graph::printShortAttribute(AsmPrinter &printer,
                                         Attribute attribute) {
  return generatedAttributePrinter(attribute, printer);
}

OptionalParseResult graph::parseShortAttribute(AsmParser &parser,
                                               Attribute &attribute) {
  // Not by the generated parser: it takes any keyword, and `complex` and `none`
  // begin builtin types too.
  using Parse = Attribute (*)(AsmParser &, Type);
  const std::pair<StringRef, Parse> forms[] = {
      {ComplexAttr::getMnemonic(), ComplexAttr::parse},
      {DTypeAttr::getMnemonic(), DTypeAttr::parse},
      {DeviceAttr::getMnemonic(), DeviceAttr::parse},
      {LayoutAttr::getMnemonic(), LayoutAttr::parse},
      {MemoryFormatAttr::getMnemonic(), MemoryFormatAttr::parse},
      {ObjectAttr::getMnemonic(), ObjectAttr::parse},
      {OperandAttr::getMnemonic(), OperandAttr::parse},
  };
  for (auto [mnemonic, parse] : forms)
    if (succeeded(parser.parseOptionalKeyword(mnemonic))) {
      attribute = parse(parser, Type());
      return success(attribute != nullptr);
    }
  if (failed(parser.parseOptionalKeyword(NoneAttr::getMnemonic())))
    return std::nullopt;
  attribute = NoneAttr::get(parser.getContext());
  return success();
}
