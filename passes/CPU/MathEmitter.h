//===- MathEmitter.h - The writer behind MathEmitters.h ---------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Internal to the math emitters: the class that writes their arithmetic.
//
// Each function is an argument reduction, a minimax polynomial and a
// reconstruction, without branches. The methods are textbook ones (Cody and
// Waite, Software Manual for the Elementary Functions; Payne and Hanek, Radian
// Reduction for Trigonometric Functions; Muller, Elementary Functions); the
// polynomials are our own, from tools/fit-math/fit.py.
//
// There are two precisions to reach and two formats to work in. The functions
// that models use most are written for f32 in f32 with fused multiply-add.
// Those that are rare, and all of them on a CPU without FMA, are computed in
// f64 for a result in f32, where rounding errors don't matter. Results in f64
// are computed in f64 with the care that f32 in f32 takes.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CPU_MATHEMITTER_H
#define INTARSIA_PASSES_CPU_MATHEMITTER_H

#include "passes/CPU/MathEmitters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace intarsia::math_emitters {

using llvm::APInt;
using llvm::ArrayRef;
using mlir::DenseElementsAttr;
using mlir::getElementTypeOrSelf;
using mlir::Location;
using mlir::OpBuilder;
using mlir::Type;
using mlir::TypedAttr;
using mlir::Value;
using mlir::ValueRange;
using mlir::VectorType;
namespace arith = mlir::arith;
namespace math = mlir::math;

/// A constant to more digits than a double has, as a sum.
struct Split {
  double high, low, lowest = 0;
};
inline constexpr Split ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
inline constexpr Split log2e = {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
inline constexpr Split log10e = {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57};
inline constexpr Split log10of2 = {0x1.34413509f79ffp-2,
                                   -0x1.9dc1da994fd21p-59};
inline constexpr Split halfPi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                 -0x1.f1976b7ed8fbcp-110};
inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();

/// `value` with only its `bits` leading bits: products with a number of few
/// bits are then exact without FMA.
inline double leadingBits(double value, unsigned bits) {
  uint64_t mask = ~uint64_t(0) << (53 - bits);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & mask);
}

/// Writes arithmetic on values of one floating-point type, scalar or vector,
/// and the integers of the same width.
class MathEmitter {
public:
  MathEmitter(OpBuilder &builder, Location loc, Type type,
              const MathOptions &options, bool shortResult)
      : b(builder), loc(loc), type(type), hasFMA(options.fma),
        shortResult(shortResult) {
    width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    mantissa = width == 32 ? 23 : 52;
    auto vector = llvm::dyn_cast<VectorType>(type);
    hasLookup = options.avx512 && options.fma && width == 32 &&
                (!vector || vector.getRank() == 1);
    intType = withElement(b.getIntegerType(width));
  }

  Value emit(MathFunction function, ValueRange x);

private:
  // --- Types and constants ---------------------------------------------------
  Type withElement(Type element) const {
    if (auto vector = llvm::dyn_cast<VectorType>(type))
      return vector.clone(element);
    return element;
  }
  Value constant(Type ofType, TypedAttr scalar) {
    if (auto vector = llvm::dyn_cast<VectorType>(ofType))
      return arith::ConstantOp::create(b, loc,
                                       DenseElementsAttr::get(vector, scalar));
    return arith::ConstantOp::create(b, loc, scalar);
  }
  Value real(double value) {
    return constant(type, b.getFloatAttr(getElementTypeOrSelf(type), value));
  }
  Value integer(Type ofType, const APInt &value) {
    return constant(ofType,
                    b.getIntegerAttr(getElementTypeOrSelf(ofType), value));
  }
  Value integer(Type ofType, int64_t value) {
    unsigned bits = getElementTypeOrSelf(ofType).getIntOrFloatBitWidth();
    return integer(ofType, APInt(bits, uint64_t(value), true, true));
  }
  Value integer(int64_t value) { return integer(intType, value); }
  /// The bits of a number in the working format.
  int64_t bitsOf(double value) const {
    return width == 32 ? int64_t(std::bit_cast<int32_t>(float(value)))
                       : std::bit_cast<int64_t>(value);
  }
  /// `value` as a sum of three numbers of the working format, the first two
  /// exact in products with integers of up to 20 bits where there is no FMA.
  std::array<double, 3> threeParts(Split value) const {
    if (width == 32) {
      // Rounded towards zero, so that all parts have the same sign and a zero
      // keeps its own.
      double first = leadingBits(value.high, 24);
      double second = leadingBits(value.high - first, 24);
      return {first, second, (value.high - first - second) + value.low};
    }
    unsigned bits = hasFMA ? 53 : 33;
    double first = leadingBits(value.high, bits);
    double rest = value.high - first;
    if (rest == 0)
      return {first, value.low, value.lowest};
    double second = leadingBits(rest + value.low, bits);
    return {first, second, (rest - second) + value.low};
  }
  /// The table for the working format and the precision wanted.
  template <size_t N, size_t M, size_t K>
  ArrayRef<double> pick(const double (&f32)[N], const double (&shortF64)[M],
                        const double (&f64)[K]) const {
    if (width == 32)
      return f32;
    if (shortResult)
      return shortF64;
    return f64;
  }

  // --- Arithmetic ------------------------------------------------------------
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
  Value neg(Value x) { return arith::NegFOp::create(b, loc, x); }
  Value abs(Value x) { return math::AbsFOp::create(b, loc, x); }
  Value sqrt(Value x) { return math::SqrtOp::create(b, loc, x); }
  Value copySign(Value x, Value sign) {
    return math::CopySignOp::create(b, loc, x, sign);
  }
  /// x*y + z.
  Value fma(Value x, Value y, Value z) {
    if (hasFMA)
      return math::FmaOp::create(b, loc, x, y, z);
    return add(mul(x, y), z);
  }
  /// Horner's rule.
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value result = real(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      result = fma(result, x, real(coefficient));
    return result;
  }
  Value less(Value x, Value y) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, y);
  }
  Value equal(Value x, Value y) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }
  /// In this form a NaN in x stays and one instruction does it.
  Value atMost(Value x, double bound) {
    return select(less(real(bound), x), real(bound), x);
  }
  Value atLeast(Value x, double bound) {
    return select(less(x, real(bound)), real(bound), x);
  }

  // --- Integers and bits -----------------------------------------------------
  Value bits(Value x) { return arith::BitcastOp::create(b, loc, intType, x); }
  Value fromBits(Value i) { return arith::BitcastOp::create(b, loc, type, i); }
  Value addI(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subI(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value mulI(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value andI(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value orI(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value xorI(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value shiftLeft(Value x, Value y) {
    return arith::ShLIOp::create(b, loc, x, y);
  }
  Value shiftRight(Value x, Value y) {
    return arith::ShRUIOp::create(b, loc, x, y);
  }
  Value shiftRightSigned(Value x, Value y) {
    return arith::ShRSIOp::create(b, loc, x, y);
  }
  Value isEqual(Value x, Value y) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
  }

  /// The nearest multiple n of 2^-fraction to x*y, |x*y| < 2^(22-fraction)
  /// (2^51): adding 1.5*2^mantissa leaves no bits for a fraction. Works on
  /// every CPU, which roundeven doesn't.
  struct Rounded {
    Value value;   // n as a number
    Value shifted; // bits whose low part is n*2^fraction in two's complement
  };
  Rounded roundProduct(Value x, double y, unsigned fraction = 0) {
    Value magic = real(std::ldexp(1.5, mantissa - fraction));
    Value sum = fma(x, real(y), magic);
    return {sub(sum, magic), bits(sum)};
  }
  /// 2^n for n as in Rounded::shifted, -bias < n <= bias. The magic number's
  /// own bits are shifted out.
  Value powerOfTwo(Value shifted) {
    return fromBits(
        addI(shiftLeft(shifted, integer(mantissa)), integer(bitsOf(1.0))));
  }

  /// Applies an AVX-512 instruction to 16 lanes at a time. Only where
  /// `hasLookup`.
  Value
  byLanes(ValueRange operands,
          llvm::function_ref<Value(VectorType lanes, ValueRange)> instruction);
  /// For each lane, the number of `table` that the low four bits of `index`
  /// name.
  Value lookup(ArrayRef<double> table, Value index);
  /// p*2^floor(n), rounded once.
  Value scaleByFloor(Value p, Value n);

  // --- Sums of two numbers, for more digits than one has ---------------------
  struct Pair {
    Value high, low;
  };
  /// |x| >= |y|, or x = 0.
  Pair twoSum(Value x, Value y) {
    Value sum = add(x, y);
    return {sum, sub(y, sub(sum, x))};
  }
  Pair twoProduct(Value x, Value y);

  // --- The functions ---------------------------------------------------------
  struct Reduced {
    Rounded n;
    Value r;
  };
  Reduced reduceExp(Value x, unsigned fraction = 0);
  Value expOfReduced(Value r);
  Value expm1OfReduced(Value r);
  Value scale(Value p, Value shifted);
  Value emitExp(Value x);
  Value expByLookup(Value x);
  Value halfExp(Value x);
  Value emitExp2(Value x);
  Value exp2Small(Value x);
  Value emitExpm1(Value x);

  struct LogReduced {
    Value exponent; // as a number
    Value f;        // x = 2^exponent * (1 + f)
  };
  LogReduced reduceLog(Value x, Value correction);
  struct LogParts {
    Value high, low; // log(1+f) = high + low, high with few enough bits
  };
  LogParts logOfReduced(Value f);
  Value logWithBase(LogReduced reduced, Split perExponent, Split factor);
  Value logSpecialCases(Value x, Value zero, Value result);
  Value emitLog(Value x, Split perExponent, Split factor);
  Value emitLog1p(Value x);
  Value log1pOrTwice(Value x, Value argument);

  Value emitTanh(Value x);
  Value tanhByLookup(Value x);
  Value emitErf(Value x);
  struct Piece {
    Rounded n; // which
    Value t;   // the distance from its middle
  };
  Piece findPiece(Value x, double step);
  /// The polynomial in t whose coefficients from the first power on `table`
  /// has, its constant given.
  Value polynomialByLookup(Value index, Value t, ArrayRef<double[16]> table,
                           Value constant);
  Value erfByLookup(Value x);
  Value emitNormalCdf(Value x);
  Value emitErfc(Value x);
  Value erfcPositive(Value a, ArrayRef<double> coefficients);

  struct Quadrant {
    Value number; // an integer; its two low bits count
    Value r;      // x = number*pi/2 + r
    Value low;    // that is added to r; null where it was not asked for
  };
  Quadrant reducePi(Value x, bool inPairs = false);
  Quadrant reduceLargeSingle(Value x);
  Quadrant reduceLargeDouble(Value x);
  Value sinOfReduced(Value r);
  Value cosOfReduced(Value r);
  Value sinOrCos(const Quadrant &quadrant, bool cosine);
  Value tanOfReduced(const Quadrant &quadrant);
  Value emitTan(Value x);
  Value any(Value condition);

  struct Angle {
    Value high, low; // a sum
  };
  Angle atanOfQuotient(Value y, Value x);
  Value atanPositive(Value x);
  Value asinSmall(Value x);
  Angle asinOfRoot(Value half);
  Value rightAngleLess(Angle angle, double count);
  Value emitAcos(Value x);
  Value emitAsin(Value x);
  Value emitAtan2(Value y, Value x);
  Pair log2OfPositive(Value x);
  Value powOfPositive(Value x, Value y);
  Value emitPow(Value x, Value y);
  Value emitCbrt(Value x);
  Value emitFmod(Value x, Value y);

  OpBuilder &b;
  Location loc;
  Type type, intType;
  bool hasFMA, shortResult, hasLookup;
  unsigned width, mantissa;
};

} // namespace intarsia::math_emitters

#endif // INTARSIA_PASSES_CPU_MATHEMITTER_H
