//===- MathEmitters.h - Vector code for math functions ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Writes exp, tanh, sin and the like in operations that every CPU has as vector
// instructions. In f32 each result is within 2 ulp of the exact one for every
// input, denormals, infinities and NaN included, and zeros keep their sign; the
// sweep in test/unit/Target measures it.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CPU_MATHEMITTERS_H
#define INTARSIA_PASSES_CPU_MATHEMITTERS_H

#include "mlir/IR/Builders.h"

#include <optional>

namespace intarsia {

enum class MathFunction {
  Acos,
  Acosh,
  Asin,
  Asinh,
  Atan,
  Atan2,
  Atanh,
  Cbrt,
  Cos,
  Cosh,
  Erf,
  Erfc,
  Exp,
  Exp2,
  Expm1,
  Fmod,
  Log,
  Log10,
  Log1p,
  Log2,
  /// The normal distribution function, (1 + erf(x/sqrt(2)))/2, to 2^-24
  /// absolutely.
  NormalCdf,
  Pow,
  Rsqrt,
  Sin,
  Sinh,
  Tan,
  Tanh,
};

/// The function that an operation of the math dialect computes; nothing for
/// those that are one or two instructions (absf, floor, sqrt, fma, ...).
std::optional<MathFunction> getMathFunction(mlir::Operation *op);

/// Whether emitMath knows the function for this element type: all of them in
/// f32, and in f16 and bf16 (computed in f32), those in f64 that reach 2 ulp.
bool canEmitMath(MathFunction function, mlir::Type elementType);

struct MathOptions {
  /// Whether the CPU has fused multiply-add. Without it f32 functions are
  /// computed in f64, because their error bounds rest on it.
  bool fma = true;
  /// Whether one instruction selects from 16 numbers by index, as AVX-512's
  /// vpermps does: on vectors of 16 lanes a table of polynomials then replaces
  /// several that are blended.
  bool avx512 = false;
};

/// Emits the function of one operand (Atan2, Fmod, Pow: two), scalars or
/// vectors of any shape of a type for which canEmitMath holds, and returns the
/// result, of the same type. Emits operations of arith, math (fma, absf,
/// copysign, sqrt), vector and, for the rare large argument of a trigonometric
/// function, scf.if.
mlir::Value emitMath(mlir::OpBuilder &builder, mlir::Location loc,
                     MathFunction function, mlir::ValueRange operands,
                     const MathOptions &options = {});

} // namespace intarsia

#endif // INTARSIA_PASSES_CPU_MATHEMITTERS_H
