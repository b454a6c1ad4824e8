//===- GraphTypes.cpp - Types of the intarsia dialect ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements the types of the intarsia dialect, and what they are
// inside kernels.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Assembly.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;
using Kind = SymExpr::Kind;

//===----------------------------------------------------------------------===//
// Sizes and strides
//===----------------------------------------------------------------------===//

SmallVector<SymExpr> graph::contiguousStrides(ArrayRef<SymExpr> sizes) {
  SmallVector<SymExpr> strides(sizes.size());
  SymExpr stride(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    // PyTorch counts an empty dimension as one here.
    if (!sizes[i].isInteger(0))
      stride = stride * sizes[i];
  }
  return strides;
}

static SmallVector<ExprAttr> attributesOf(MLIRContext *context,
                                          ArrayRef<SymExpr> exprs) {
  return llvm::map_to_vector(
      exprs, [&](const SymExpr &expr) { return ExprAttr::get(context, expr); });
}

static SmallVector<SymExpr> exprsOf(ArrayRef<ExprAttr> attributes) {
  return llvm::map_to_vector(attributes,
                             [](ExprAttr expr) { return expr.getExpr(); });
}

graph::TensorType graph::TensorType::get(MLIRContext *context,
                                         ArrayRef<SymExpr> sizes,
                                         ArrayRef<SymExpr> strides, DType dtype,
                                         StringRef device) {
  return get(context, attributesOf(context, sizes),
             attributesOf(context, strides), dtype, device);
}

graph::TensorType graph::TensorType::get(MLIRContext *context,
                                         ArrayRef<SymExpr> sizes, DType dtype,
                                         StringRef device) {
  return get(context, sizes, contiguousStrides(sizes), dtype, device);
}

SmallVector<SymExpr> graph::TensorType::getSizeExprs() const {
  return exprsOf(getSizes());
}

SmallVector<SymExpr> graph::TensorType::getStrideExprs() const {
  return exprsOf(getStrides());
}

SymExpr graph::TensorType::getNumElements() const {
  SymExpr product(1);
  for (ExprAttr size : getSizes())
    product = product * size.getExpr();
  return product;
}

bool graph::TensorType::hasContiguousStrides() const {
  if (llvm::any_of(getSizes(),
                   [](ExprAttr size) { return size.getExpr().isInteger(0); }))
    return true;
  // PyTorch writes max(1, u0) for an unbacked size u0, which may be 0.
  SymExpr plain(1), guarded(1);
  for (size_t i = getSizes().size(); i-- > 0;) {
    SymExpr size = getSizes()[i].getExpr(), stride = getStrides()[i].getExpr();
    if (size.isInteger(1))
      continue;
    if (stride != plain && stride != guarded)
      return false;
    plain = plain * size;
    guarded = guarded * SymExpr::make(Kind::Max, {SymExpr(1), size});
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Inside kernels
//===----------------------------------------------------------------------===//

Type graph::kernelElementType(MLIRContext *context, DType dtype) {
  Builder builder(context);
  switch (dtype) {
  case DType::F16:
    return builder.getF16Type();
  case DType::BF16:
    return builder.getBF16Type();
  case DType::F32:
    return builder.getF32Type();
  case DType::F64:
    return builder.getF64Type();
  case DType::Bool:
  case DType::F8E4M3FN:
  case DType::F8E5M2:
    return builder.getI8Type();
  case DType::C64:
  case DType::C128:
    return builder.getIntegerType(8 * dtypeSize(dtype));
  default:
    if (isInteger(dtype))
      return builder.getIntegerType(8 * dtypeSize(dtype));
    return {};
  }
}

RankedTensorType graph::TensorType::toBuiltin() const {
  Type element = kernelElementType(getContext(), getDtype());
  if (!element)
    return {};
  SmallVector<int64_t> shape;
  for (ExprAttr size : getSizes())
    shape.push_back(size.getExpr().asInteger().value_or(ShapedType::kDynamic));
  return RankedTensorType::get(shape, element);
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

LogicalResult
graph::TensorType::verify(function_ref<InFlightDiagnostic()> emitError,
                          ArrayRef<ExprAttr> sizes, ArrayRef<ExprAttr> strides,
                          DType dtype, StringRef device) {
  // 1.
  if (sizes.size() != strides.size())
    return emitError() << "a tensor type has as many strides as sizes, not "
                       << strides.size() << " strides for " << sizes.size()
                       << " sizes";
  // 2.
  for (auto [i, size] : llvm::enumerate(sizes))
    if (size.getExpr().asInteger().value_or(0) < 0)
      return emitError() << "size " << i
                         << " is negative: " << *size.getExpr().asInteger();
  // 3.
  for (ArrayRef<ExprAttr> exprs : {sizes, strides})
    for (ExprAttr expr : exprs)
      if (expr.getExpr().isBoolean())
        return emitError() << "\"" << expr.getText()
                           << "\" is a condition, not a size or stride";
  // 4.
  if (device.empty())
    return emitError() << "the device has no name";
  return success();
}

//===----------------------------------------------------------------------===//
// Assembly
//===----------------------------------------------------------------------===//

void graph::TensorType::print(AsmPrinter &printer) const {
  printer << '<';
  printExprs(printer, getSizes());
  printer << 'x' << dtypeName(getDtype());
  SmallVector<SymExpr> contiguous = contiguousStrides(getSizeExprs());
  if (getStrideExprs() != contiguous) {
    printer << ", strides = ";
    printExprs(printer, getStrides());
  }
  if (getDevice() != "cpu") {
    printer << ", device = ";
    printer.printString(getDevice());
  }
  printer << '>';
}

Type graph::TensorType::parse(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<ExprAttr> sizes, strides;
  if (parser.parseLess() || parseExprs(parser, sizes))
    return {};

  // The dtype sticks to its "x": `]xf32`.
  SMLoc dtypeLoc = parser.getCurrentLocation();
  StringRef name;
  if (parser.parseKeyword(&name))
    return {};
  std::optional<DType> dtype;
  if (name.consume_front("x"))
    dtype = dtypeFromName(name);
  if (!dtype) {
    parser.emitError(dtypeLoc, "expected 'x' and a dtype, such as 'xf32', "
                               "after the sizes");
    return {};
  }

  bool hasStrides = false;
  std::string device;
  while (succeeded(parser.parseOptionalComma())) {
    if (!hasStrides && succeeded(parser.parseOptionalKeyword("strides"))) {
      hasStrides = true;
      if (parser.parseEqual() || parseExprs(parser, strides))
        return {};
    } else if (device.empty() &&
               succeeded(parser.parseOptionalKeyword("device"))) {
      if (parser.parseEqual() || parser.parseString(&device))
        return {};
    } else {
      parser.emitError(parser.getCurrentLocation(),
                       "expected 'strides' or 'device'");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  MLIRContext *context = parser.getContext();
  if (!hasStrides)
    strides = attributesOf(context, contiguousStrides(exprsOf(sizes)));
  if (device.empty())
    device = "cpu";
  return parser.getChecked<graph::TensorType>(loc, context, sizes, strides,
                                              *dtype, device);
}

//===----------------------------------------------------------------------===//
// Generated
//===----------------------------------------------------------------------===//

#define GET_TYPEDEF_CLASSES
#include "dialects/Graph/GraphTypes.cpp.inc"

void GraphDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Graph/GraphTypes.cpp.inc"
      >();
}
