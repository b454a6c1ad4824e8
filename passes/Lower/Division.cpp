//===- Division.cpp - Quotients and remainders --------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Division in all roundings. An integer divided by zero is an error that the
// kernel raises, as eager does. The least integer divided by -1 wraps, where
// eager's own loop dies of the machine's instruction. Remainders of floats are
// exact.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

enum class Rounding { Trunc, Floor };

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// A divisor that the machine can divide by.
struct Divisor {
  Scalar safe;
  /// Where the divisor itself is -1, if that is not known.
  std::optional<Scalar> isMinusOne;
};

/// `known`: the divisor's value, if it is a constant: not zero.
Divisor checkedDivisor(graph::CallOp call, const Scalar &divisor,
                       std::optional<int64_t> known) {
  if (known)
    return {divisor, std::nullopt};
  Scalar isUnsafe = divisor == divisor.constant(0);
  check(~isUnsafe, (call.getCallee() + ": ZeroDivisionError").str());
  Divisor result{divisor, std::nullopt};
  if (isSignedInteger(divisor.dtype())) {
    result.isMinusOne = divisor == divisor.constant(-1);
    isUnsafe = isUnsafe | *result.isMinusOne;
  }
  result.safe = select(isUnsafe, divisor.constant(1), divisor);
  return result;
}

/// Where a rest of the sign of the dividend is not one of the divisor's.
Scalar hasOtherSign(const Scalar &rest, const Scalar &divisor) {
  Scalar zero = rest.constant(0);
  return (rest != zero) & ((rest < zero) ^ (divisor < zero));
}

Scalar divideInteger(graph::CallOp call, const Scalar &a, const Scalar &b,
                     std::optional<int64_t> known, Rounding rounding) {
  if (known == -1)
    return -a;
  auto [divisor, isMinusOne] = checkedDivisor(call, b, known);
  Scalar quotient = truncDiv(a, divisor);
  if (rounding == Rounding::Floor && isSignedInteger(a.dtype()))
    quotient = select(hasOtherSign(truncMod(a, divisor), divisor),
                      quotient - a.constant(1), quotient);
  return isMinusOne ? select(*isMinusOne, -a, quotient) : quotient;
}

Scalar remainderInteger(graph::CallOp call, const Scalar &a, const Scalar &b,
                        std::optional<int64_t> known, Rounding rounding) {
  if (known == -1)
    return a.constant(0);
  Scalar divisor = checkedDivisor(call, b, known).safe;
  Scalar rest = truncMod(a, divisor);
  if (rounding == Rounding::Trunc || !isSignedInteger(a.dtype()))
    return rest;
  return select(hasOtherSign(rest, divisor), rest + divisor, rest);
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

Scalar remainder(const Scalar &a, const Scalar &b) {
  Scalar rest = fmod(a, b);
  return select(hasOtherSign(rest, b), rest + b, rest);
}

/// As PyTorch has it: from the exact remainder, so that a quotient just below
/// a whole number does not round up to it.
Scalar floorDivide(const Scalar &a, const Scalar &b) {
  Scalar rest = fmod(a, b), plain = a / b;
  Scalar quotient = (a - rest) / b;
  quotient = select(hasOtherSign(rest, b), quotient - 1.0, quotient);
  Scalar whole = floor(quotient);
  whole = select(quotient - whole > 0.5, whole + 1.0, whole);
  Scalar result =
      select(quotient == 0.0, copysign(a.constant(0.0), plain), whole);
  return select(b == 0.0, plain, result);
}

//===----------------------------------------------------------------------===//
// The operators
//===----------------------------------------------------------------------===//

struct Operands {
  Argument self, other;

  static std::optional<Operands> get(graph::CallOp call,
                                     KernelBuilder &kernel) {
    std::optional<Argument> self = argument(call, kernel, "self");
    std::optional<Argument> other = argument(call, kernel, "other");
    if (!self || !other)
      return std::nullopt;
    return Operands{*self, *other};
  }
  std::optional<int64_t> knownDivisor() const {
    return isa_and_nonnull<FloatAttr>(other.constant) ? std::nullopt
                                                      : other.constantInt();
  }
  Lowered
  lower(graph::CallOp call, KernelBuilder &kernel, NumberPrecision precision,
        llvm::function_ref<Scalar(const Scalar &, const Scalar &)> formula)
      const {
    return lowerPointwise(call, kernel, {self, other}, resultDType(call),
                          precision, [&](ArrayRef<Scalar> scalars) {
                            return formula(scalars[0], scalars[1]);
                          });
  }
};

template <Rounding rounding>
Lowered lowerRemainder(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Operands> operands = Operands::get(call, kernel);
  DType dtype = resultDType(call);
  if (!operands || dtype == DType::Bool)
    return failure();
  if (isFloatingPoint(dtype))
    return operands->lower(call, kernel, NumberPrecision::Rounded,
                           [](const Scalar &a, const Scalar &b) {
                             return rounding == Rounding::Floor
                                        ? remainder(a, b)
                                        : fmod(a, b);
                           });
  std::optional<int64_t> known = operands->knownDivisor();
  if (known == 0)
    return failure(); // eager raises
  return operands->lower(call, kernel, NumberPrecision::Rounded,
                         [&](const Scalar &a, const Scalar &b) {
                           return remainderInteger(call, a, b, known, rounding);
                         });
}

Lowered lowerRoundedDivision(graph::CallOp call, KernelBuilder &kernel,
                             Rounding rounding) {
  std::optional<Operands> operands = Operands::get(call, kernel);
  DType dtype = resultDType(call);
  if (!operands || dtype == DType::Bool)
    return failure();
  if (isFloatingPoint(dtype)) {
    // Eager's loop over a tensor and a number does not round the quotient.
    bool rounds = !operands->other.isNumber() && !operands->other.isZeroDim();
    return operands->lower(call, kernel, NumberPrecision::ExactIfSecond,
                           [&](const Scalar &a, const Scalar &b) {
                             if (rounding == Rounding::Floor)
                               return floorDivide(a, b);
                             Scalar quotient = a / b;
                             return trunc(rounds ? quotient.roundedTo(dtype)
                                                 : quotient);
                           });
  }
  std::optional<int64_t> known = operands->knownDivisor();
  if (known == 0)
    return failure(); // eager raises
  return operands->lower(call, kernel, NumberPrecision::Rounded,
                         [&](const Scalar &a, const Scalar &b) {
                           return divideInteger(call, a, b, known, rounding);
                         });
}

Lowered lowerFloorDivide(graph::CallOp call, KernelBuilder &kernel) {
  return lowerRoundedDivision(call, kernel, Rounding::Floor);
}

Lowered lowerTrueDivision(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Operands> operands = Operands::get(call, kernel);
  DType dtype = resultDType(call);
  if (!operands || (!isFloatingPoint(dtype) && !isComplex(dtype)))
    return failure();
  return operands->lower(
      call, kernel, NumberPrecision::ExactIfSecond,
      [](const Scalar &a, const Scalar &b) { return a / b; });
}

Lowered lowerDivision(graph::CallOp call, KernelBuilder &kernel) {
  if (call.isNone("rounding_mode"))
    return lowerTrueDivision(call, kernel);
  std::optional<StringRef> mode = call.stringArg("rounding_mode");
  if (mode == "trunc")
    return lowerRoundedDivision(call, kernel, Rounding::Trunc);
  if (mode == "floor")
    return lowerRoundedDivision(call, kernel, Rounding::Floor);
  return failure();
}

/// Integers are divided as in C.
Lowered lowerPrimsDivision(graph::CallOp call, KernelBuilder &kernel) {
  if (!isInteger(resultDType(call)))
    return lowerTrueDivision(call, kernel);
  return lowerRoundedDivision(call, kernel, Rounding::Trunc);
}

} // namespace

void registerDivision(LoweringTable &table) {
  auto add = [&](std::initializer_list<StringRef> names, Lowering lowering) {
    for (StringRef name : names)
      table.add(name, lowering);
  };
  add({"aten::div.Tensor", "aten::div.Scalar", "aten::div.Tensor_mode",
       "aten::div.Scalar_mode", "aten::true_divide.Tensor"},
      lowerDivision);
  add({"aten::floor_divide", "aten::floor_divide.Scalar"}, lowerFloorDivide);
  add({"aten::remainder.Tensor", "aten::remainder.Scalar",
       "aten::remainder.Scalar_Tensor", "prims::remainder"},
      lowerRemainder<Rounding::Floor>);
  add({"aten::fmod.Tensor", "aten::fmod.Scalar", "prims::fmod"},
      lowerRemainder<Rounding::Trunc>);
  table.add("prims::div", lowerPrimsDivision);
}

} // namespace intarsia::lower
