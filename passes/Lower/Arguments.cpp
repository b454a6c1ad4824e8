//===- Arguments.cpp - A call's arguments, for lowerings ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads arguments, promotes dtypes as PyTorch does (c10/core/ScalarType.h and
// ATen/native/TypeProperties.cpp are the specification), and builds pointwise
// computations from a formula on scalars.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Arguments.h"

#include "mlir/IR/BuiltinAttributes.h"

#include <cmath>

using namespace mlir;

namespace intarsia::lower {
namespace {

/// bool < integer < float < complex: a number of a higher category than the
/// tensors' decides the result's category.
int category(DType dtype) {
  if (dtype == DType::Bool)
    return 0;
  if (isInteger(dtype))
    return 1;
  return isComplex(dtype) ? 3 : 2;
}

std::optional<DType> combine(std::optional<DType> higher,
                             std::optional<DType> lower) {
  if (!higher)
    return lower;
  if (lower && isComplex(*lower) && isFloatingPoint(*higher))
    return complexDType(*higher);
  if (!lower || category(*higher) >= category(*lower))
    return higher;
  return lower;
}

std::optional<int64_t> wrapDim(std::optional<int64_t> dim, int64_t rank) {
  int64_t count = std::max<int64_t>(rank, 1);
  if (!dim || *dim < -count || *dim >= count)
    return std::nullopt;
  return *dim < 0 ? *dim + count : *dim;
}

/// Whether an integer constant survives the conversion to `dtype`.
bool fits(int64_t value, DType dtype) {
  if (dtype == DType::Bool || !isInteger(dtype))
    return true;
  unsigned width = 8 * dtypeSize(dtype);
  if (width == 64)
    return true;
  return isSignedInteger(dtype) ? llvm::isIntN(width, value)
                                : value >= 0 && llvm::isUIntN(width, value);
}

/// Whether eager takes a number for one of this dtype: what is beyond its range
/// is an error, but for negative numbers in the place of unsigned ones.
bool isInRange(const Argument &number, DType dtype, MLIRContext *context) {
  std::optional<double> real = number.constantFloat();
  if (!real || dtype == DType::Bool || isComplex(dtype))
    return true;
  if (isFloatingPoint(dtype)) {
    auto type = dyn_cast<FloatType>(storageType(context, dtype));
    return !type || !std::isfinite(*real) ||
           std::abs(*real) <=
               APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
  }
  bool isSigned = isSignedInteger(dtype);
  if (std::optional<int64_t> integer = number.constantInt())
    return fits(*integer, dtype) ||
           (!isSigned && *integer < 0 && fits(-*integer, dtype));
  double limit = std::ldexp(1.0, 8 * dtypeSize(dtype) - int(isSigned));
  return std::abs(*real) < limit || (isSigned && *real == -limit);
}

/// The scalar of a number in `dtype`, emitted where `like` is.
Scalar numberScalar(const ScalarContext &context, const Argument &number,
                    DType dtype) {
  Value value;
  if (graph::ComplexAttr complex = number.constantComplex();
      complex && isComplex(dtype)) {
    DType part = realDType(dtype);
    auto scalar = [&](const APFloat &of) -> Scalar {
      return {context,
              constantScalar(context.builder, context.loc, part,
                             of.convertToDouble()),
              part};
    };
    return complexNumber(scalar(complex.getReal()),
                         scalar(complex.getImaginary()));
  }
  if (auto integer = number.constantInt();
      integer && isa<IntegerAttr>(number.constant))
    value = constantScalar(context.builder, context.loc, dtype, *integer);
  else if (auto real = number.constantFloat())
    value = constantScalar(context.builder, context.loc, dtype, *real);
  else if (number.symbol)
    value = context.kernel.symbolScalar(number.symbol, dtype);
  if (!value) {
    context.kernel.decline();
    value = constantScalar(context.builder, context.loc, dtype, int64_t(0));
  }
  return {context, value, dtype};
}

} // namespace

graph::TensorType resultType(graph::CallOp call, unsigned index) {
  return cast<graph::TensorType>(call.getOutputs()[index].getType());
}

SmallVector<SymExpr> resultSizes(graph::CallOp call, unsigned index) {
  return resultType(call, index).getSizeExprs();
}

DType resultDType(graph::CallOp call, unsigned index) {
  return resultType(call, index).getDtype();
}

std::optional<Tensor> tensorArgument(graph::CallOp call, KernelBuilder &kernel,
                                     StringRef name) {
  Value value = call.operand(name);
  if (!value || !isa<graph::TensorType>(value.getType()))
    return std::nullopt;
  return kernel.input(value);
}

std::optional<int64_t> dimArgument(graph::CallOp call, StringRef name,
                                   int64_t rank) {
  return wrapDim(call.intArg(name), rank);
}

std::optional<SmallVector<int64_t>> dimsArgument(graph::CallOp call,
                                                 StringRef name, int64_t rank) {
  SmallVector<int64_t> dims;
  if (!call.isNone(name)) {
    if (std::optional<int64_t> single = call.intArg(name)) {
      dims.push_back(*single);
    } else {
      std::optional<SmallVector<int64_t>> list = intsArgument(call, name);
      if (!list)
        return std::nullopt;
      dims = *list;
    }
    for (int64_t &dim : dims) {
      std::optional<int64_t> wrapped = wrapDim(dim, rank);
      if (!wrapped)
        return std::nullopt;
      dim = *wrapped;
    }
  }
  if (rank == 0)
    return SmallVector<int64_t>();
  if (dims.empty())
    return llvm::to_vector(llvm::seq<int64_t>(0, rank));
  llvm::sort(dims);
  return dims;
}

std::optional<SmallVector<int64_t>> intsArgument(graph::CallOp call,
                                                 StringRef name) {
  SmallVector<int64_t> values;
  if (call.isNone(name))
    return values;
  std::optional<SmallVector<SymExpr>> exprs = call.sizesArg(name);
  if (!exprs)
    return std::nullopt;
  for (const SymExpr &expr : *exprs) {
    std::optional<int64_t> value = expr.asInteger();
    if (!value)
      return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<SmallVector<bool>> boolsArgument(graph::CallOp call,
                                               StringRef name) {
  auto list = dyn_cast_or_null<ArrayAttr>(call.arg(name));
  if (!list)
    return std::nullopt;
  SmallVector<bool> values;
  for (Attribute element : list) {
    auto value = dyn_cast<BoolAttr>(element);
    if (!value)
      return std::nullopt;
    values.push_back(value.getValue());
  }
  return values;
}

std::optional<int64_t> Argument::constantInt() const {
  if (auto boolean = dyn_cast_or_null<BoolAttr>(constant))
    return boolean.getValue();
  if (auto integer = dyn_cast_or_null<IntegerAttr>(constant))
    return integer.getInt();
  if (symbol && symbol.getType().isIndex())
    if (std::optional<SymExpr> expr = graph::symbolicValue(symbol))
      return expr->asInteger();
  return std::nullopt;
}

std::optional<double> Argument::constantFloat() const {
  if (auto real = dyn_cast_or_null<FloatAttr>(constant))
    return real.getValueAsDouble();
  if (std::optional<int64_t> integer = constantInt())
    return static_cast<double>(*integer);
  return std::nullopt;
}

graph::ComplexAttr Argument::constantComplex() const {
  return dyn_cast_or_null<graph::ComplexAttr>(constant);
}

std::optional<Argument> argument(graph::CallOp call, KernelBuilder &kernel,
                                 StringRef name) {
  Argument result;
  if (Value value = call.operand(name)) {
    if (auto type = dyn_cast<graph::TensorType>(value.getType())) {
      if (!storageType(call.getContext(), type.getDtype()))
        return std::nullopt;
      result.tensor = kernel.input(value);
      result.dtype = type.getDtype();
      result.isCpu = type.getDevice() == "cpu";
      return result;
    }
    result.symbol = value;
    if (value.getType().isIndex())
      result.dtype = DType::I64;
    else if (value.getType().isF64())
      result.dtype = DType::F64;
    else
      return std::nullopt;
    return result;
  }
  result.constant = call.arg(name);
  if (!result.constant)
    return std::nullopt;
  if (isa<BoolAttr>(result.constant))
    result.dtype = DType::Bool;
  else if (isa<IntegerAttr>(result.constant))
    result.dtype = DType::I64;
  else if (isa<FloatAttr>(result.constant))
    result.dtype = DType::F64;
  else if (result.constantComplex())
    result.dtype = DType::C128;
  else
    return std::nullopt;
  return result;
}

graph::TensorType denseType(graph::TensorType like, ArrayRef<SymExpr> sizes) {
  return graph::TensorType::get(like.getContext(), sizes, like.getDtype(),
                                like.getDevice());
}

DType promoteTypes(DType a, DType b) {
  if (a == b)
    return a;
  if (isComplex(a) || isComplex(b)) {
    auto isWide = [](DType dtype) { return realDType(dtype) == DType::F64; };
    return isWide(a) || isWide(b) ? DType::C128 : DType::C64;
  }
  if (category(a) != category(b))
    return category(a) > category(b) ? a : b;
  if (isFloatingPoint(a)) {
    if (dtypeSize(a) == dtypeSize(b)) // f16 and bf16
      return DType::F32;
    return dtypeSize(a) > dtypeSize(b) ? a : b;
  }
  if (isSignedInteger(a) == isSignedInteger(b))
    return dtypeSize(a) > dtypeSize(b) ? a : b;
  // u8 and a signed type: the smallest signed type that holds both.
  DType isSigned = isSignedInteger(a) ? a : b;
  return isSigned == DType::I8 ? DType::I16 : isSigned;
}

DType promoteTypes(ArrayRef<Argument> arguments) {
  std::optional<DType> withDims, zeroDim, number;
  auto add = [](std::optional<DType> &slot, DType dtype) {
    slot = slot ? promoteTypes(*slot, dtype) : dtype;
  };
  for (const Argument &argument : arguments) {
    if (argument.isNumber()) {
      // A Python number has PyTorch's default dtype.
      add(number, argument.dtype == DType::F64    ? DType::F32
                  : argument.dtype == DType::C128 ? DType::C64
                                                  : argument.dtype);
    } else {
      add(argument.isZeroDim() ? zeroDim : withDims, argument.dtype);
    }
  }
  return *combine(combine(withDims, zeroDim), number);
}

bool broadcastsTo(ArrayRef<Argument> arguments, ArrayRef<SymExpr> sizes) {
  for (const Argument &argument : arguments) {
    if (argument.isNumber())
      continue;
    ArrayRef<SymExpr> own = argument.tensor->sizes;
    if (own.size() > sizes.size())
      return false;
    for (auto [size, target] : llvm::zip(own, sizes.take_back(own.size())))
      if (size != target && !size.isInteger(1))
        return false;
  }
  return true;
}

Lowered lowerPointwise(graph::CallOp call, KernelBuilder &kernel,
                       ArrayRef<Argument> arguments, DType common,
                       NumberPrecision precision,
                       llvm::function_ref<Scalar(ArrayRef<Scalar>)> body) {
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!broadcastsTo(arguments, sizes) ||
      !storageType(call.getContext(), common))
    return failure();
  SmallVector<Tensor> tensors;
  for (const Argument &argument : arguments) {
    if (argument.tensor)
      tensors.push_back(*argument.tensor);
    else if (std::optional<int64_t> integer = argument.constantInt();
             integer && !fits(*integer, common))
      return failure(); // eager's own checks decide what happens
  }
  bool onCpu = resultType(call).getDevice() == "cpu";
  DType compute = computeType(common);
  DType result = resultDType(call);
  auto isExact = [&](const Argument &argument, size_t position) {
    if (!argument.isNumber() && !(argument.isZeroDim() && onCpu))
      return false;
    switch (precision) {
    case NumberPrecision::Rounded:
      return false;
    case NumberPrecision::ExactIfSecond:
      return position == 1 || !onCpu;
    case NumberPrecision::Exact:
      return true;
    }
    llvm_unreachable("covered switch");
  };
  Tensor output = kernel.pointwise(
      tensors, sizes, result,
      [&](OpBuilder &builder, Location loc, ValueRange values) {
        ScalarContext context{kernel, builder, loc};
        SmallVector<Scalar> scalars;
        size_t used = 0;
        for (auto [position, argument] : llvm::enumerate(arguments)) {
          bool exact = isExact(argument, position);
          if (argument.isNumber()) {
            Scalar number =
                numberScalar(context, argument, exact ? compute : common);
            scalars.push_back(number.to(compute));
            continue;
          }
          Scalar scalar(context, values[used++], argument.dtype);
          scalars.push_back(exact ? scalar.to(compute)
                                  : scalar.to(common).to(compute));
        }
        return body(scalars).to(result).getValue();
      });
  return SmallVector<Tensor>{output};
}

Scalar numberArgument(graph::CallOp call, StringRef name, const Scalar &like) {
  const ScalarContext &context = like.getContext();
  std::optional<Argument> number = argument(call, context.kernel, name);
  if (!number || !number->isNumber() ||
      !isInRange(*number, like.dtype(), call.getContext())) {
    context.kernel.decline();
    return like.constant(0);
  }
  return numberScalar(context, *number, like.dtype());
}

} // namespace intarsia::lower
