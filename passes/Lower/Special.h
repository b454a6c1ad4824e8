//===- Special.h - Functions made of others -----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Functions that the math dialect has no operation for. Of at most 2 ulp on f32
// (and f16 and bf16, which are computed in it); f64 is declined.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_LOWER_SPECIAL_H
#define INTARSIA_PASSES_LOWER_SPECIAL_H

#include "passes/Lower/Scalar.h"

namespace intarsia::lower {

Scalar cbrt(const Scalar &x);
/// log(abs(gamma(x))).
Scalar logGamma(const Scalar &x);
/// Its derivative.
Scalar digamma(const Scalar &x);

} // namespace intarsia::lower

#endif // INTARSIA_PASSES_LOWER_SPECIAL_H
