#!/usr/bin/env python3
"""Fits the polynomials of the CPU math emitters and prints their header.

    ./dev exec python tools/fit-math/fit.py > passes/CPU/MathCoefficients.h

Every polynomial is the minimax approximation of a smooth function that remains
when the exact leading terms are taken out (``sin(r) = r + r**3 * S(r*r)``), found
by Remez's exchange algorithm in 60-digit arithmetic. Coefficients are rounded to
the working format one after the other from the lowest power, and the others are
fitted again each time, so that rounding costs almost no accuracy. The largest
error, relative to the function that is computed in the end, is printed beside
each table as a power of two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

mp.dps = 60


@dataclass(frozen=True)
class Fit:
    """One table.

    Attributes
    ----------
    name : C++ name of the table.
    function : the function to approximate, by a polynomial in ``variable(x)``.
    weight : what an error of the polynomial at x is multiplied by, to be
        relative to the result of the whole computation.
    interval : the range of x.
    degree : degree in ``variable(x)``.
    bits : 24 or 53, the working format.
    variable : what the polynomial is in; x itself by default.
    """

    name: str
    function: Callable[[mpf], mpf]
    weight: Callable[[mpf], mpf]
    interval: tuple[float, float]
    degree: int
    bits: int
    variable: Callable[[mpf], mpf] = lambda x: x


def round_to(value: mpf, bits: int) -> mpf:
    return mpf(float(np.float32(float(value)))) if bits == 24 else mpf(float(value))


def single(
    xs: list[mpf], values: list[mpf], weights: list[mpf], power: int
) -> tuple[list[mpf], mpf]:
    """The best multiple of x**power, whose errors need not alternate if x has both signs."""

    def worst(c: mpf) -> mpf:
        return max(abs((v - c * x**power) * w) for x, v, w in zip(xs, values, weights, strict=True))

    # A convex function, whose minimum is between the best multiples for one point each.
    multiples = [v / x**power for x, v in zip(xs, values, strict=True)]
    low, high = min(multiples), max(multiples)
    while high - low > abs(high) * mpf(2) ** -60:
        third = (high - low) / 3
        if worst(low + third) < worst(high - third):
            high -= third
        else:
            low += third
    return [low], worst(low)


def remez(
    xs: list[mpf], values: list[mpf], weights: list[mpf], first: int, degree: int
) -> tuple[list[mpf], mpf]:
    """Coefficients of x**first .. x**degree of the best polynomial on a grid."""
    count = degree - first + 1
    grid = len(xs)
    if count == 0:
        return [], max(abs(v * w) for v, w in zip(values, weights, strict=True))
    if count == 1:
        return single(xs, values, weights, first)
    reference = [
        round((grid - 1) * (1 - float(mp.cos(mp.pi * k / count))) / 2) for k in range(count + 1)
    ]
    best: tuple[list[mpf], mpf] | None = None
    for _ in range(30):
        matrix = mp.matrix(count + 1, count + 1)
        right = mp.matrix(count + 1, 1)
        for row, i in enumerate(reference):
            for column in range(count):
                matrix[row, column] = xs[i] ** (first + column)
            matrix[row, count] = (-1) ** row / weights[i]
            right[row] = values[i]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(count)]
        level = abs(solution[count])
        errors = []
        for x, value, weight in zip(xs, values, weights, strict=True):
            total = mpf(0)
            for coefficient in reversed(coefficients):
                total = total * x + coefficient
            errors.append((value - total * x**first) * weight)
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[1]:
            best = (coefficients, worst)
        if worst <= level * mpf("1.001"):
            break
        # One extremum in each run of errors of the same sign.
        extrema: list[int] = []
        for i, error in enumerate(errors):
            if error == 0:
                continue
            if extrema and (errors[extrema[-1]] > 0) == (error > 0):
                if abs(error) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > count + 1:
            ends = (abs(errors[extrema[0]]), abs(errors[extrema[-1]]))
            extrema.pop(0 if ends[0] < ends[1] else -1)
        if len(extrema) < count + 1:
            break
        reference = extrema
    assert best is not None
    return best


def solve(fit: Fit) -> tuple[list[mpf], mpf]:
    low, high = mpf(fit.interval[0]), mpf(fit.interval[1])
    grid = 40 * (fit.degree + 2)
    points = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mpf(1) / 2) / grid)
        for k in range(grid)
    ]
    points = [x for x in points if abs(x) > mpf(10) ** -9]
    pairs = sorted(
        (fit.variable(x), fit.function(x), fit.weight(x)) for x in points if fit.weight(x) != 0
    )
    xs = [p[0] for p in pairs]
    values = [p[1] for p in pairs]
    weights = [p[2] for p in pairs]
    fixed: list[mpf] = []
    rest = list(values)
    worst = mpf(0)
    for power in range(fit.degree + 1):
        coefficients, worst = remez(xs, rest, weights, power, fit.degree)
        coefficient = round_to(coefficients[0], fit.bits)
        fixed.append(coefficient)
        rest = [value - coefficient * x**power for x, value in zip(xs, rest, strict=True)]
    worst = max(abs(value * weight) for value, weight in zip(rest, weights, strict=True))
    return fixed, worst


LN2 = mp.log(2)
QUARTER = 0.7854 + 0.02  # half a quadrant, and what rounding x*2/pi may add


def relative(result: Callable[[mpf], mpf], factor: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    return lambda x: factor(x) / result(x)


def erfcx_scaled(x: mpf) -> mpf:
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def erfc_variable(x: mpf) -> mpf:
    return (x - mpf("3.75")) / (x + mpf("3.75"))


def fits() -> list[Fit]:
    result: list[Fit] = []

    def both(name, function, weight, interval, degrees, variable=lambda x: x):
        for suffix, bits, degree in zip(("F32", "F64"), (24, 53), degrees, strict=True):
            if degree is not None:
                result.append(
                    Fit(name + suffix, function, weight, interval, degree, bits, variable)
                )

    # exp(r) = 1 + r + r*r*p(r), |r| <= ln(2)/2; also expm1, hence relative to it.
    both(
        "exp",
        lambda r: (mp.expm1(r) - r) / r**2,
        relative(mp.expm1, lambda r: r**2),
        (-0.3475, 0.3475),
        (5, 10),
    )
    # The same within 1/32 of an octave, of exp alone.
    result.append(
        Fit(
            "expSixteenthF32",
            lambda r: (mp.expm1(r) - r) / r**2,
            relative(mp.exp, lambda r: r**2),
            (-0.0218, 0.0218),
            1,
            24,
        )
    )
    # 2**r = 1 + r*p(r), |r| <= 1/2.
    both(
        "exp2",
        lambda r: mp.expm1(r * LN2) / r,
        relative(lambda r: mp.exp(r * LN2), lambda r: r),
        (-0.501, 0.501),
        (5, 11),
    )
    # log(1+f) = f - f*f/2 + f**3*p(f), -1/3 <= f <= 1/3.
    both(
        "log",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        relative(mp.log1p, lambda f: f**3),
        (-0.33334, 0.33334),
        (9, None),
    )
    # log(1+f) = 2*s + s**3*p(s*s), s = f/(2+f), sqrt(1/2) <= 1+f <= sqrt(2).
    result.append(
        Fit(
            "logAtanhF64",
            lambda s: (2 * mp.atanh(s) - 2 * s) / s**3,
            relative(lambda s: 2 * mp.atanh(s), lambda s: s**3),
            (1e-4, 0.17158),
            6,
            53,
            lambda s: s * s,
        )
    )
    # The same for results in f32: pow multiplies its error by up to 150.
    result.append(
        Fit(
            "logAtanhShortF64",
            lambda s: (2 * mp.atanh(s) - 2 * s) / s**3,
            relative(lambda s: 2 * mp.atanh(s), lambda s: s**3),
            (1e-4, 0.17158),
            4,
            53,
            lambda s: s * s,
        )
    )
    # The same lengths as in f32, to be evaluated in f64 for results in f32.
    result.append(
        Fit(
            "expShortF64",
            lambda r: (mp.expm1(r) - r) / r**2,
            relative(mp.expm1, lambda r: r**2),
            (-0.3475, 0.3475),
            5,
            53,
        )
    )
    result.append(
        Fit(
            "exp2ShortF64",
            lambda r: mp.expm1(r * LN2) / r,
            relative(lambda r: mp.exp(r * LN2), lambda r: r),
            (-0.501, 0.501),
            5,
            53,
        )
    )
    # sin(r) = r + r**3*p(r*r); cos(r) = 1 - r*r/2 + r**4*p(r*r); |r| <= pi/4.
    for suffix, bits, sin_degree, cos_degree in (
        ("F32", 24, 2, 2),
        ("ShortF64", 53, 3, 2),
        ("F64", 53, 5, 5),
    ):
        result.append(
            Fit(
                "sin" + suffix,
                lambda r: (mp.sin(r) - r) / r**3,
                relative(mp.sin, lambda r: r**3),
                (1e-4, QUARTER),
                sin_degree,
                bits,
                lambda r: r * r,
            )
        )
        result.append(
            Fit(
                "cos" + suffix,
                lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4,
                relative(mp.cos, lambda r: r**4),
                (1e-4, QUARTER),
                cos_degree,
                bits,
                lambda r: r * r,
            )
        )
    # erf(x) = x + x*p(x*x), |x| <= 1.
    for suffix, bits, degree in (("F32", 24, 6), ("ShortF64", 53, 6), ("F64", 53, 11)):
        result.append(
            Fit(
                "erfSmall" + suffix,
                lambda x: mp.erf(x) / x - 1,
                relative(mp.erf, lambda x: x),
                (1e-4, 1.0),
                degree,
                bits,
                lambda x: x * x,
            )
        )
    # log2(erfc(x)) = p(x), 1 <= x <= 4; an error counts as one of erf.
    result.append(
        Fit(
            "erfTailF32",
            lambda x: mp.log(mp.erfc(x)) / LN2,
            lambda x: LN2 * mp.erfc(x) / mp.erf(x),
            (1.0, 3.95),
            6,
            24,
        )
    )
    # (1+2x)*exp(x*x)*erfc(x) = p(t), t = (x-3.75)/(x+3.75), x >= 0.
    result.append(
        Fit(
            "erfcShortF64",
            erfcx_scaled,
            lambda x: 1 / erfcx_scaled(x),
            (0.0, 10.3),
            11,
            53,
            erfc_variable,
        )
    )
    # The same where erf needs it: an error counts as one of erf.
    result.append(
        Fit(
            "erfTailF64",
            erfcx_scaled,
            lambda x: mp.erfc(x) / erfcx_scaled(x) / mp.erf(x),
            (1.0, 6.0),
            12,
            53,
            erfc_variable,
        )
    )
    # tanh(x) = x + x**3*p(x*x), |x| <= 1/2.
    for suffix, bits, degree in (("F32", 24, 4), ("ShortF64", 53, 4), ("F64", 53, 10)):
        result.append(
            Fit(
                "tanh" + suffix,
                lambda x: (mp.tanh(x) - x) / x**3,
                relative(mp.tanh, lambda x: x**3),
                (1e-4, 0.5),
                degree,
                bits,
                lambda x: x * x,
            )
        )
    # atan(x) = x + x**3*p(x*x), |x| <= 1.
    result.append(
        Fit(
            "atanShortF64",
            lambda x: (mp.atan(x) - x) / x**3,
            relative(mp.atan, lambda x: x**3),
            (1e-4, 1.0),
            9,
            53,
            lambda x: x * x,
        )
    )
    # asin(x) = x + x**3*p(x*x), |x| <= 1/2.
    result.append(
        Fit(
            "asinShortF64",
            lambda x: (mp.asin(x) - x) / x**3,
            relative(mp.asin, lambda x: x**3),
            (1e-4, 0.5),
            6,
            53,
            lambda x: x * x,
        )
    )
    # atan(x) = x + x**3*p(x*x), |x| <= tan(pi/8).
    result.append(
        Fit(
            "atanF64",
            lambda x: (mp.atan(x) - x) / x**3,
            relative(mp.atan, lambda x: x**3),
            (1e-4, 0.41422),
            10,
            53,
            lambda x: x * x,
        )
    )
    result.append(
        Fit(
            "asinF64",
            lambda x: (mp.asin(x) - x) / x**3,
            relative(mp.asin, lambda x: x**3),
            (1e-4, 0.5),
            12,
            53,
            lambda x: x * x,
        )
    )
    # sinh(x) = x + x**3*p(x*x), |x| <= 1.
    result.append(
        Fit(
            "sinhF64",
            lambda x: (mp.sinh(x) - x) / x**3,
            relative(mp.sinh, lambda x: x**3),
            (1e-4, 1.0),
            7,
            53,
            lambda x: x * x,
        )
    )
    # log(gamma(x)) = (x-1)*(x-2)*p(x-1.75), 1 <= x <= 2.5; from there it is
    # (x-1/2)*log(x) - x + log(2*pi)/2 + p(1/(x*x))/x.
    result.append(
        Fit(
            "lgammaShortF64",
            lambda x: mp.loggamma(x) / ((x - 1) * (x - 2)),
            relative(mp.loggamma, lambda x: (x - 1) * (x - 2)),
            (1.0, 2.5),
            14,
            53,
            lambda x: x - mpf("1.75"),
        )
    )
    result.append(
        Fit(
            "lgammaTailShortF64",
            lambda x: x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2),
            lambda x: 1 / x / mp.loggamma(x),
            (2.5, 60.0),
            5,
            53,
            lambda x: 1 / (x * x),
        )
    )
    # Its derivative: (x-root)*p(x-1.75), and log(x) - 1/(2*x) + p(1/(x*x))/(x*x).
    root = mp.findroot(mp.digamma, 1.46)
    result.append(
        Fit(
            "digammaShortF64",
            lambda x: mp.digamma(x) / (x - root),
            relative(mp.digamma, lambda x: x - root),
            (1.0, 2.5),
            17,
            53,
            lambda x: x - mpf("1.75"),
        )
    )
    result.append(
        Fit(
            "digammaTailShortF64",
            lambda x: x * x * (mp.digamma(x) - mp.log(x) + 1 / (2 * x)),
            lambda x: 1 / (x * x) / mp.digamma(x),
            (2.5, 60.0),
            7,
            53,
            lambda x: 1 / (x * x),
        )
    )
    return result


ERF_STEP = 0.26953125  # few bits; the constants round well


def piece(
    f: Callable[[mpf], mpf], middle: mpf, half: mpf, weight: Callable[[mpf], mpf]
) -> tuple[list[mpf], mpf]:
    """f(middle + t), |t| <= half, as 6 coefficients, and the largest weighted error."""
    count = 200
    ts = [-half * mp.cos(mp.pi * (k + mpf(1) / 2) / count) for k in range(count)]
    values = [f(middle + t) for t in ts]
    weights = [weight(v) for v in values]
    rounded = [round_to(c, 24) for c in remez(ts, values, weights, 0, 5)[0]]
    error = max(
        abs(mp.polyval(rounded[::-1], t) - v) * w
        for t, v, w in zip(ts, values, weights, strict=True)
    )
    return rounded, error


def erf_pieces() -> tuple[list[list[mpf]], mpf]:
    """erf(i*step + t) for i = 0..15, |t| <= step/2, as 1 + 5 coefficients each.

    The first piece is t + t*p(t). The others' constant is rounded like the rest:
    the step was chosen among the multiples of 1/1024 for the smallest error of the
    whole computation.
    """
    half = mpf(ERF_STEP) / 2
    first, worst = solve(
        Fit("", lambda t: mp.erf(t) / t - 1, relative(mp.erf, lambda t: t), (0, half), 4, 24)
    )
    pieces = [[mpf(0), *first]]
    for i in range(1, 16):
        rounded, error = piece(mp.erf, i * mpf(ERF_STEP), half, lambda v: 1 / v)
        pieces.append(rounded)
        worst = max(worst, error)
    return pieces, worst


NORMAL_STEP = 0.359375  # chosen as ERF_STEP was, and so that 1/2 is reached at the end


def normal_pieces() -> tuple[list[list[mpf]], mpf]:
    """The normal distribution function less 1/2, in pieces as erf's; its error is
    absolute, because it is added to 1/2."""

    def phi(x: mpf) -> mpf:
        return mp.erf(x / mp.sqrt(2)) / 2

    half = mpf(NORMAL_STEP) / 2
    fits = [piece(phi, i * mpf(NORMAL_STEP), half, lambda v: mpf(1)) for i in range(16)]
    return [rounded for rounded, _ in fits], max(error for _, error in fits)


TANH_SCALE = 1.6640625  # the last piece ends where tanh is 1


def tanh_pieces() -> tuple[list[list[mpf]], mpf]:
    """tanh(x), x >= 0, by the leading bits of y = 1 + x*scale: four pieces an octave.

    Their number, modulo 16, is in the last two bits of y's exponent and the first two of
    its mantissa. Each is its middle and tanh(middle + t) as 1 + 5 coefficients; the first
    is t + t*t*p(t).
    """
    numbered: dict[int, list[mpf]] = {}
    worst = mpf(0)
    for octave in range(4):
        for quarter in range(4):
            low, width = mpf(2) ** octave * (4 + quarter) / 4, mpf(2) ** octave / 4
            low, width = (low - 1) / TANH_SCALE, width / TANH_SCALE
            middle = round_to(low + width / 2, 24)
            rounded, error = piece(mp.tanh, middle, width / 2, lambda v: 1 / v)
            row = [middle, *rounded]
            if low == 0:
                fit = Fit(
                    *("", lambda t: (mp.tanh(t) / t - 1) / t, lambda t: t * t / mp.tanh(t)),
                    *((0, width), 3, 24),
                )
                rounded, error = solve(fit)
                row = [mpf(0), mpf(0), mpf(1), *rounded]
            if (octave, quarter) == (3, 3):
                # At its end the last piece must be 1: what is beyond is multiplied by
                # numbers of any size.
                rounded[0] += mpf(2) ** -24
                row = [middle, *rounded]
                error += mpf(2) ** -24
            numbered[(4 * (127 + octave) + quarter) % 16] = row
            worst = max(worst, error)
    return [numbered[i] for i in range(16)], worst


def print_table(
    name: str, worst: mpf, kind: str, table: Sequence[mpf] | Sequence[Sequence[mpf]]
) -> None:
    print(f"/// 2^{float(mp.log(worst) / LN2):.1f}{kind}")
    print(f"inline constexpr double {name} = {{")
    for row in table:
        numbers = row if isinstance(row, Sequence) else [row]
        text = ", ".join(float(c).hex() for c in numbers)
        print(f"    {{{text}}}," if isinstance(row, Sequence) else f"    {text},")
    print("};\n")


def print_pieces(name: str, step: float, kind: str, pieces: list[list[mpf]], worst: mpf) -> None:
    print(f"/// The distance of the middles of {name}PiecesF32.")
    print(f"inline constexpr double {name}StepF32 = {step.hex()};\n")
    kind += "; for each power, the 16 pieces."
    print_table(f"{name}PiecesF32[6][16]", worst, kind, [*zip(*pieces, strict=True)])


HEADER = """\
//===- MathCoefficients.h - Polynomials of the math emitters ------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Minimax polynomials, lowest power first, made by tools/fit-math/fit.py: see
// there what each approximates. F32 and F64 name the format that they are
// evaluated in; a Short one is evaluated in f64 for a result in f32. The comment
// is the largest relative error of the result.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H
#define INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H

namespace intarsia::coefficients {
"""

FOOTER = """\
} // namespace intarsia::coefficients

#endif // INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H
"""


def main() -> None:
    wanted = sys.argv[1:]
    print(HEADER)
    for fit in fits():
        if wanted and fit.name not in wanted:
            continue
        coefficients, worst = solve(fit)
        print_table(f"{fit.name}[]", worst, "", coefficients)
        print(f"{fit.name}: 2^{float(mp.log(worst) / LN2):.1f}", file=sys.stderr)
    if not wanted or "erfPiecesF32" in wanted:
        print_pieces("erf", ERF_STEP, "", *erf_pieces())
    if not wanted or "normalPiecesF32" in wanted:
        print_pieces("normal", NORMAL_STEP, ", absolute", *normal_pieces())
    if not wanted or "tanhPiecesF32" in wanted:
        pieces, worst = tanh_pieces()
        print("/// What |x| is multiplied by to find its piece of tanhPiecesF32.")
        print(f"inline constexpr double tanhScaleF32 = {TANH_SCALE.hex()};\n")
        kind = "; the middles of the 16 pieces, then each power's coefficients."
        print_table("tanhPiecesF32[7][16]", worst, kind, [*zip(*pieces, strict=True)])
    if not wanted or "sixteenthsOfOctaveF32" in wanted:
        powers = [mpf(2) ** (mpf(i) / 16) for i in range(16)]
        rounded = [round_to(power, 24) for power in powers]
        worst = max(abs(r / power - 1) for r, power in zip(rounded, powers, strict=True))
        print_table("sixteenthsOfOctaveF32[16]", worst, "; 2^(i/16).", rounded)
    print(FOOTER, end="")


if __name__ == "__main__":
    main()
