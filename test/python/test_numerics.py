# ===- test_numerics.py - Values and sizes at the edges ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Values and sizes at which compiled programs go wrong, against eager.

test_lowerings.py has single operators on special values; here are programs: chains
that fuse, reductions, memory that overlaps itself, sizes of nothing and sizes beyond
32 bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, clone_inputs

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NAN, INF = math.nan, math.inf
BITS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def bits(x: torch.Tensor) -> torch.Tensor:
    """The representation, in which -0.0 is not 0.0; one for every NaN."""
    x = x.masked_fill(x.isnan(), NAN)
    return x.view(BITS[x.dtype]) if x.dtype in BITS else x


def check_bits(compile_with: Callable[..., Any], function: Any, *inputs: torch.Tensor) -> None:
    """Results equal eager's bit for bit."""
    want = function(*inputs)
    got = compile_with(function)(*clone_inputs(inputs))
    assert_same(got, want, exact=True)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(bits(a), bits(b)), f"result {i}: {a} instead of {b}"


# --- What is only stored ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.float8_e5m2), ids=str)
def test_eight_bit_floats(compile_with: Callable[..., Any], dtype: torch.dtype) -> None:
    """Every byte, and what lies beside each number of 16 bits and halfway to the next."""
    every = torch.arange(256).to(torch.uint8).view(dtype)
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    reals = (upper[:, None] + lower).to(torch.int32).view(torch.float32).flatten()

    def convert(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = x.to(torch.bfloat16) * 3
        return x.float(), x.double(), scaled, y.to(dtype), y.double().to(dtype), y.half().to(dtype)

    want, got = convert(every, reals), compile_with(convert)(every, reals)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype
        if a.dtype is dtype:
            # A NaN may have either sign.
            are_nan = a.float().isnan() & b.float().isnan()
            assert torch.equal(a.view(torch.uint8)[~are_nan], b.view(torch.uint8)[~are_nan])
            assert torch.equal(a.float().isnan(), b.float().isnan())
        else:
            assert torch.equal(bits(a), bits(b))


def test_large_unsigned_integers(compile_with: Callable[..., Any]) -> None:
    """Beyond the range of the signed integer of the same width."""
    x = torch.tensor([0, 1, -1, -2, 1 << 62, -(1 << 63), -(1 << 63) + 1, -1024])
    reals = torch.tensor([0.0, 1.5, 2.0**31, 2.0**32 - 256, 2.0**62, 2.0**63, 1.8e19])

    def convert(x: torch.Tensor, y: torch.Tensor, reals: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *(x.float(), x.double(), x.bfloat16(), x.to(torch.int32), x.to(torch.uint32)),
            *(y.float(), y.double(), y.to(torch.int64), y.to(torch.uint16)),
            *(reals.to(torch.uint64), reals.double().to(torch.uint64)),
            reals[:4].to(torch.uint32),
        )

    inputs = x.view(torch.uint64), x.to(torch.int32).view(torch.uint32), reals
    want, got = convert(*inputs), compile_with(convert)(*inputs)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype
        assert a.tolist() == b.tolist()


# --- How exact sums are --------------------------------------------------------------

# Rows, columns, what lies between, everything; long enough that adding one element
# after the other would lose three digits.
SUMS = (
    ((3, 300_000), (1,)),
    ((50_000, 5), (0,)),
    ((4, 30_000, 3), (1,)),
    ((40, 3, 50, 47), (0, 2, 3)),
    ((200_003,), (0,)),
)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("shape", "dims"), SUMS, ids=str)
def test_sums_of_many_are_as_exact_as_eager(compile_with, shape, dims, dynamic):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))

    def sums(x: torch.Tensor) -> list[torch.Tensor]:
        z = torch.complex(x, 1 - x)
        return [x.sum(dims), (x * x).mean(dims), (x + 1).sum(dims), z.sum(dims)]

    got = compile_with(sums, dynamic=dynamic)(x)
    for a, b, c in zip(got, sums(x), sums(x.double()), strict=True):
        error, allowed = ((y - c).abs().max() / c.abs().max() for y in (a, b))
        assert error <= max(4 * allowed, 5e-7)


def test_lengths_are_rounded_as_by_a_library(compile_with):
    """A gradient may ask which element's length a norm, of another kernel, is."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 67, 2, dtype=torch.float64, generator=generator)
    scales = torch.tensor([1, 1e300, 1e-300, 1e150, 1e-150], dtype=torch.float64)
    x = x.repeat(len(scales), 1, 1) * scales.repeat_interleave(64)[:, None, None]
    z = torch.view_as_complex(x)
    got = compile_with(lambda z: z.abs() * 1)(z).numpy()
    exact = np.hypot(*x.numpy().astype(np.longdouble).transpose(2, 0, 1))
    assert (abs(got - exact) <= 0.501 * np.spacing(got)).all()

    def gradient(f: Callable[..., Any]) -> torch.Tensor:
        leaf = z[:64].detach().requires_grad_()
        f(leaf).sum().backward()
        return leaf.grad

    norm = functools.partial(torch.linalg.vector_norm, ord=INF, dim=1)
    torch.testing.assert_close(gradient(compile_with(norm)), gradient(norm))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("shape", "dims"), [((7, 5003), (1,)), ((5003, 7), (0,)), ((50, 6, 70), (0, 2))]
)
def test_variances_far_from_zero_are_as_exact_as_eager(compile_with, shape, dims, dynamic):
    """The squares' mean less the mean's square would have no digit left."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 5000

    def variances(x: torch.Tensor) -> list[torch.Tensor]:
        results = [x.var(dims), *torch.var_mean(x, dims, correction=0), (x * 2 - 1).std(dims)]
        last = x.shape[-1:]
        return [*results, x.var(), F.layer_norm(x, last), F.group_norm(x, 1)]

    got = compile_with(variances, dynamic=dynamic)(x)
    for i, (a, b, c) in enumerate(zip(got, variances(x), variances(x.double()), strict=True)):
        error, allowed = ((y - c).abs().max() / c.abs().max() for y in (a, b))
        # The mean itself is rounded to 2e-4.
        assert error <= max(2 * allowed, 3e-4), i


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64, torch.int8), ids=str)
def test_first_of_equal_extrema(check, dtype):
    """Wherever a vector, a block or a thread begins; with NaN, the first NaN."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 3, (9, 3001), generator=generator).to(dtype)
    x[0] = 1
    if dtype.is_floating_point:
        x[1, [7, 100, 2999]] = NAN
        x[2, [0, 3000]] = -0.0
        x[3] = INF
        x[4, 2990:] = NAN

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        for y in (x, x * 1, x.t() + 0, x[2:3]):
            results += [y.argmax(), y.argmin()]
            for dim in (0, 1):
                results += [y.argmax(dim), y.argmin(dim), *y.max(dim), *y.min(dim)]
        return results

    check(function, (x,), exact=True)


# --- NaN, infinity, signs of zero, denormals ------------------------------------------

# Rows with one thing each; a last dimension that no vector length divides.
ROWS = [
    [1.5] * 19,
    [NAN] + [1.5] * 18,
    [1.5] * 18 + [NAN],
    [1.5] * 9 + [NAN] + [INF] * 9,
    [INF] + [1.5] * 18,
    [1.5] * 18 + [-INF],
    [INF] + [1.5] * 17 + [-INF],
    [-INF] * 19,
    [INF] * 19,
    [NAN] * 19,
    [-0.0] * 19,
    [0.0] * 19,
    [-3.0] * 18 + [2.0],
    [2.0] + [2.0] * 9 + [-3.0] * 9,
]


def reductions(x: torch.Tensor) -> list[Any]:
    y = x * 2 - 1  # so that reductions have a producer
    results: list[Any] = []
    for v in (x, y):
        for dim in (0, 1):
            results += [v.sum(dim), v.prod(dim), v.amax(dim), v.amin(dim), v.mean(dim)]
            results += [v.argmax(dim), v.argmin(dim), *v.max(dim), *v.min(dim)]
            results += [v.softmax(dim), v.log_softmax(dim), v.logsumexp(dim)]
            results += [v.std(dim), v.var(dim), v.any(dim), v.all(dim), v.cumsum(dim)]
            results += [v.norm(p, dim) for p in (0, 1, 2, INF, -INF)]
            results += [v.nan_to_num(1, 2, 3).sum(dim), v.count_nonzero(dim), v.isnan().any(dim)]
        results += [v.sum(), v.max(), v.min(), v.argmax(), v.mean(), v.isinf().all()]
    results += [F.layer_norm(x, (19,)), F.rms_norm(x, (19,)), F.normalize(x, dim=1)]
    return results


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions_of_nan_and_infinity(check, dtype):
    check(reductions, (torch.tensor(ROWS, dtype=dtype),))


SPECIAL = [0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.3, -0.3, 2.5, -2.5, 7.0, -7.0]


def signs(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    results = [x + y, x - y, x * y, x / y, -x, x.abs(), x.relu(), x.round(), x.trunc()]
    results += [x.ceil(), x.floor(), x.fmod(y), x.remainder(y), x.frac(), x.sgn(), x.sign()]
    results += [torch.copysign(x, y), torch.where(x > y, x, -y), x.reciprocal() * y]
    results += [torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")]
    results += [x * 0.0 + y * -0.0, (x - x) * y, x.clamp(-0.5, 0.5), x.sqrt()]
    results += [0 - x, x + 0, x * 1, x * -1, x / 1, x - 0.0, x + -0.0, x**1, x**3]
    results += [x == y, x != y, x < y, x >= y, x.signbit(), x.bool(), x.logical_xor(y)]
    results += [x.nan_to_num(1, 2, 3), F.hardtanh(x), F.leaky_relu(x), x.clamp(min=0) * y]
    return [
        *results,
        x.nan_to_num(1).atan2(y.nan_to_num(1)).signbit(),
        x.hypot(y),
        x.heaviside(y),
        x.lerp(y, 0.25),
    ]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_signs_of_zero_survive(compile_with, dtype):
    values = torch.tensor(SPECIAL, dtype=dtype)
    x, y = (m.reshape(-1).contiguous() for m in torch.meshgrid(values, values, indexing="ij"))
    check_bits(compile_with, signs, x, y)


FUNCTIONS = """
acos acosh asin asinh atan atanh cos cosh deg2rad digamma erf erfc exp exp2 expm1 lgamma log log10
log1p log2 rsqrt sigmoid sin sinc sinh sqrt tan tanh logit
""".split()
ACTIVATIONS = """
celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu
softplus softshrink softsign tanhshrink
""".split()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_special_values(compile_with, dtype):
    """What is no number, infinite, zero or a limit is as one of eager's loops has it:
    that over contiguous memory, which is oneDNN's for gelu, or that over any."""
    values = [*SPECIAL, 2.0, 3.0, 20.0, -20.0, 90.0, -90.0, 1e4, -1e4]
    values += [torch.finfo(dtype).max, torch.finfo(dtype).min]
    x = torch.tensor(values, dtype=dtype).repeat_interleave(64)

    def functions(x: torch.Tensor) -> list[torch.Tensor]:
        results = [getattr(torch, name)(x) for name in FUNCTIONS]
        results += [getattr(F, name)(x) for name in ACTIVATIONS]
        results.append(torch.special.entr(x))
        return [*results, F.gelu(x, approximate="tanh"), F.softplus(x, 2.0, 3.0)]

    def differs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        signed = (b == 0) | b.isinf()
        limits = signed | ((x.abs() >= 20) & ((b.abs() == 1) | (b == 2)))
        same = (a.isnan() == b.isnan()) & (a.isinf() == b.isinf()) & ((a == 0) == (b == 0))
        return ~same | (limits & (a != b)) | (signed & (a.signbit() != b.signbit()))

    strided = torch.stack([x, x], 1)[:, 0]
    results = zip(compile_with(functions)(x), functions(x), functions(strided), strict=True)
    names = [*FUNCTIONS, *ACTIVATIONS, "entr", "gelu tanh", "softplus(2, 3)"]
    problems = []
    for name, (got, *eager) in zip(names, results, strict=True):
        wrong = differs(got, eager[0]) & differs(got, eager[1])
        for i in wrong[::64].nonzero().flatten().tolist():
            wanted = " or ".join(str(b[64 * i].item()) for b in eager)
            problems.append(f"{name}({values[i]}) is {got[64 * i].item()}, not {wanted}")
    assert not problems, "\n".join(problems)


def denormals(x: torch.Tensor) -> list[torch.Tensor]:
    results = [x * 1, x + x, x * 0.5, x * 0.125 * 8, x / 2, x - x * 0.75, x.abs(), -x]
    results += [x == 0, x > 0, x.bool(), x.sign(), x[:9].sum(), x.amax(), x.amin(), x.cumsum(0)]
    results += [x.clamp(min=0), torch.where(x > 0, x, 0), x.flip(0) + 0, torch.cat([x, x * 2])]
    results += [x.to(torch.float64) * 0.5, x.to(torch.float32) * 0.5, x.sqrt(), x.frac()]
    return [*results, x.to(torch.bfloat16) * 1, x.to(torch.float16) * 1, torch.nextafter(x, -x)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_denormals_are_kept(compile_with, dtype):
    info = torch.finfo(dtype)
    steps = torch.tensor([1, 2, 3, 4, 5, 8, 100, 1023, 1024], dtype=torch.float64)
    x = torch.cat([steps * info.smallest_normal * info.eps, steps * info.smallest_normal])
    check_bits(compile_with, denormals, torch.cat([x, -x]).to(dtype))


def test_conversions_into_denormals(compile_with):
    x = torch.logspace(-330, -1, 400, dtype=torch.float64)

    def function(x):
        return [
            half
            for kind in (torch.float32, torch.bfloat16, torch.float16)
            for half in (x.to(kind), x.float().to(kind), (x.to(kind) * 1.5).double())
        ]

    check_bits(compile_with, function, torch.cat([x, -x]))


NEAR_ZERO = "asin asinh atan atanh expm1 log1p sin sinh tan tanh".split()


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_functions_of_denormals(compile_with, dtype):
    """Those that begin as the identity are it, to the last bit, as in eager all but log1p."""
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    x = tiny * torch.tensor([0, 1, 2, 3, 4, 5, 7, 1001], dtype=dtype).repeat(5)[:35]
    x = torch.cat([x, -x])

    def functions(x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch, name)(x) for name in NEAR_ZERO] + [F.elu(x), F.celu(x)]

    results = zip(compile_with(functions)(x), functions(x), strict=True)
    for name, (got, want) in zip([*NEAR_ZERO, "elu", "celu"], results, strict=True):
        equal = torch.equal(bits(got), bits(x))
        assert equal or (name == "log1p" and torch.equal(bits(got), bits(want))), name


def test_smaller_and_larger_of_two_zeros(compile_with):
    """C's functions, which eager calls, have the first one."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.fmax(x, y), torch.fmin(x, y)

    for dtype in FLOATS[:2]:
        values = torch.tensor([0.0, -0.0, NAN, 1.0, -1.0], dtype=dtype)
        x, y = (m.reshape(-1) for m in torch.meshgrid(values, values, indexing="ij"))
        check_bits(compile_with, function, x, y)


# --- Complex numbers whose parts are special -------------------------------------------


def grid_of_parts(dtype: torch.dtype, parts: list[float]) -> torch.Tensor:
    values = torch.tensor(parts, dtype=dtype.to_real())
    real, imaginary = torch.meshgrid(values, values, indexing="ij")
    return torch.complex(real.reshape(-1), imaginary.reshape(-1))


def same_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where two results agree: NaN, infinities and zeros with their signs, else nearly."""
    x, y = (torch.view_as_real(v) if v.is_complex() else v[:, None] for v in (a, b))
    if not y.is_floating_point():
        return (x == y).all(-1)
    exact = (x.isnan() & y.isnan()) | ((x == y) & (x.signbit() == y.signbit()))
    # Beside a large part, a small one may be what rounding left.
    size = y.abs().where(y.isfinite(), 0).amax(-1, keepdim=True)
    tolerance = 32 * torch.finfo(y.dtype).eps
    nearly = (x - y).abs() <= tolerance * y.abs() + 0.02 * tolerance * size
    return (exact | (nearly & x.isfinite() & y.isfinite() & (y != 0))).all(-1)


C_FUNCTIONS = """
abs acos acosh angle asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 neg
reciprocal rsqrt sgn sigmoid sin sinh sqrt square tan tanh isnan isinf isfinite logical_not
""".split()


def differences(got: torch.Tensor, eager: list[torch.Tensor]) -> list[int]:
    """Where the result is neither that of eager's loop over vectors nor of the other."""
    same = torch.stack([same_parts(got, want) for want in eager]).any(0)
    return (~same).nonzero().flatten().tolist()


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128), ids=str)
def test_complex_functions_of_special_parts(dtype):
    info = torch.finfo(dtype)
    denormal = info.smallest_normal * info.eps * 3
    parts = [0.0, -0.0, 1.0, -1.0, 0.7, info.max, -info.max, denormal, INF, -INF, NAN]
    z = grid_of_parts(dtype, parts).repeat_interleave(16)
    powers = (2, -2, -0.5, 1.5)
    numbers = (2, 1 - 2j)

    def functions(z: torch.Tensor) -> list[torch.Tensor]:
        results = [getattr(torch, name)(z) for name in C_FUNCTIONS]
        results += [z**power for power in powers]
        for number in numbers:
            results += [z * number, z / number, number / z, z + number, number - z, z - number]
        return [*results, F.silu(z), F.tanh(z) - z, torch.polar(z.real, z.imag), z.bool()]

    names = [*C_FUNCTIONS, *(f"** {power}" for power in powers)]
    for number in numbers:
        names += [f"{op} {number}" for op in ("*", "/", "divides", "+", "subtracted from", "-")]
    names += ["silu", "tanh - z", "polar", "bool"]
    strided = torch.stack([z, z], 1)[:, 0]
    compiled = torch.compile(functions, backend="intarsia")
    results = zip(compiled(z), functions(z), functions(strided), strict=True)
    problems = []
    for name, (got, *eager) in zip(names, results, strict=True):
        for i in differences(got, eager)[::16]:
            want = " or ".join(str(each[i].item()) for each in eager)
            problems.append(f"{name}({z[i].item()}) is {got[i].item()}, not {want}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128), ids=str)
def test_complex_arithmetic_of_special_parts(dtype):
    # Of numbers that are not 0 or 1, the last bit of a logarithm, of which libraries have
    # one or another, would be as large in a power as the exponent makes it.
    z = grid_of_parts(dtype, [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN])
    x, y = z.repeat_interleave(len(z)), z.repeat(len(z))
    x, y = x.repeat_interleave(16), y.repeat_interleave(16)

    def functions(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        results = [x + y, x - y, x * y, x / y, x**y, x == y, torch.add(x, y, alpha=2 - 1j)]
        results += [torch.sub(x, y, alpha=2), torch.rsub(x, y), torch.sub(x, y, alpha=2 - 1j)]
        return [*results, torch.addcmul(x, y, x), x * y.real, x / y.real, x.real / y]

    strided = [torch.stack([v, v], 1)[:, 0] for v in (x, y)]
    compiled = torch.compile(functions, backend="intarsia")
    results = zip(compiled(x, y), functions(x, y), functions(*strided), strict=True)
    problems = []
    for number, (got, *eager) in enumerate(results):
        for i in differences(got, eager)[::16]:
            want = " or ".join(str(each[i].item()) for each in eager)
            operands = f"{x[i].item()}, {y[i].item()}"
            problems.append(f"result {number} of {operands} is {got[i].item()}, not {want}")
    assert not problems, "\n".join(problems[:20])


# --- The ends of the integers -----------------------------------------------------------


def integers(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
    results: list[Any] = [x + y, x - y, x * y, -x, x.abs(), x.sign(), x * x * x, ~x, x & y, x ^ y]
    results += [torch.maximum(x, y), torch.minimum(x, y), x.clamp(-2, 2), x > y, x == -x]
    results += [
        x // 2,
        x % 3,
        x.remainder(-7 if x.dtype.is_signed else 7),
        torch.div(x, 3, rounding_mode="trunc"),
        x / 3,
    ]
    # By more than there are bits, and by less than none.
    results += [x << y, x >> y, x << 64, x >> 100, 1 << y, x**y, torch.pow(3, y), x / y]
    results += [x << 1, x >> 1, x.float(), x.double(), x.bool(), x.to(torch.int8)]
    results += [x.to(torch.int32), x.to(torch.int64) * 2, x.to(torch.uint8), x.square(), x**2]
    results += [x.sum(), x.prod(), x.sum(dtype=x.dtype), x.amax(), x.amin(), x.argmax()]
    results += [x.argmin(), *x.aminmax(), x.cumsum(0), x.cumprod(0), x.any(), x.all()]
    return [*results, (x * 2).sum(), (x + y).amax(), x.float().mean(), x.count_nonzero()]


@pytest.mark.parametrize(
    "dtype", (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), ids=str
)
def test_ends_of_the_integers(check, dtype):
    info = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
    values += [-1, -2] if info.min else [255, 254]
    x = torch.tensor(values, dtype=dtype)
    x, y = (m.reshape(-1).contiguous() for m in torch.meshgrid(x, x, indexing="ij"))
    check(integers, (x, y), exact=True)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *((torch.int64, INF), (torch.int64, NAN), (torch.int8, 200), (torch.uint8, 256)),
        *(
            (torch.int32, 2**31),
            (torch.int16, -40000.0),
            (torch.float16, 1e5),
            (torch.float32, 1e39),
        ),
    ],
    ids=str,
)
def test_numbers_beyond_the_range_are_refused(compile_with, dtype, number):
    def function(x):
        return torch.full_like(x, number) + x

    x = torch.ones(3, dtype=dtype)
    for f in (function, compile_with(function)):
        with pytest.raises(RuntimeError, match="without overflow"):
            f(x)


def test_bool_arithmetic(check):
    x = torch.tensor([True, True, False, False])
    y = torch.tensor([True, False, True, False])

    def function(x, y):
        results = [x + y, x * y, x & y, x | y, x ^ y, ~x, x == y, x < y, x.sum(), x.prod()]
        results += [x + 1, x * 2, x / y, x * 1.5, x.sum(dtype=torch.bool), x.cumsum(0)]
        results += [x.amax(), x.to(torch.uint8) - 1, torch.where(x, y, ~y), x.float().mean()]
        return [*results, torch.maximum(x, y), x.any() & y.all(), x.max(0)]

    check(function, (x, y), exact=True)


# --- Sizes of nothing -------------------------------------------------------------------


def of_no_elements(x: torch.Tensor, index: torch.Tensor) -> list[Any]:
    """`x` has a size 0, then a size 5."""
    y = x * 2 + 1
    results: list[Any] = [y, y.exp(), y.sum(), y.prod(), y.mean(), y.any(), y.all()]
    results += [y.sum(0), y.prod(0), y.mean(0), y.any(0), y.all(0), y.var(0), y.sum(1)]
    results += [y.amax(1), y.argmax(1), y.softmax(0), y.softmax(1), y.logsumexp(0), y.norm()]
    results += [y.cumsum(0), y.t(), y.flip(0), y.roll(1, 0), torch.cat([y, y]), y.sort().values]
    results += [torch.cat([y, y.new_ones(2, 5)]), F.pad(y, (0, 0, 1, 1)), y.repeat(2, 2)]
    results += [y[index], y.index_select(0, index), y.gather(0, index[:, None].expand(0, 5))]
    results += [y @ y.t(), y.t() @ y, F.layer_norm(y, (5,)), y.triu(), y.reshape(5, 0), y[:, 2]]
    results += [y.tril(), y[..., None] * 2, y.expand(3, *y.shape) + 1, y.new_zeros(0).sum()]
    return [*results, torch.where(y > 0, y, 0), y[:, 1:] - 1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_tensors_of_no_elements(check, dynamic):
    x = torch.randn(0, 5)
    check(of_no_elements, (x, torch.zeros(0, dtype=torch.int64)), dynamic=dynamic)


def test_gradients_of_no_elements(check):
    def function(x, w):
        y = F.layer_norm(x, (4,)) @ w
        return y.softmax(1) * y.relu(), y.mean(), y.sum(0)

    check(
        function,
        (torch.randn(0, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)),
        training=True,
    )


def of_no_dimensions(x: torch.Tensor, other: torch.Tensor) -> list[Any]:
    y = x * 2 + 1
    results: list[Any] = [y, y.exp(), y + other, y * other.double(), y.sum(), y.sum(0), y.mean(-1)]
    results += [y.amax(0), y.argmax(0), *y.max(0), y.softmax(0), y.log_softmax(-1), y.cumsum(0)]
    results += [y.prod(0), y.norm(), y.std(unbiased=False), y.any(0), y.all(), y.logsumexp(0)]
    results += [y.expand(3, 4) * other, y[None] + 1, y.reshape(1, 1), y.flatten() + 1, y.t() * 2]
    results += [torch.stack([y, x]), torch.cat([y[None], x[None]]), y.repeat(3), y.flip(0)]
    results += [torch.where(y > 0, y, x), y.clamp(-1, 1), y.half() + other.float(), y == x]
    return [*results, y.index_select(0, torch.zeros(1, dtype=torch.int64)), y.view(()) - 1]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_tensors_of_no_dimensions(check, dtype):
    check(of_no_dimensions, (torch.tensor(1.25, dtype=dtype), torch.randn(3, 4)))


def test_promotion_with_no_dimensions(check):
    def function(x, half, number, double, flag):
        return [
            *(x + number, x * double, half + x, half * double, number + double, number / flag),
            *(half.sum() + double, x[0] + half[0], number[None] + double, x * flag, half + x[0, 0]),
        ]

    check(
        function,
        (
            torch.randn(3, 4),
            torch.randn(4, dtype=torch.bfloat16),
            torch.tensor(3),
            torch.tensor(0.3, dtype=torch.float64),
            torch.tensor(True),
        ),
    )


# --- Results that are too large for the caches -------------------------------------------


def large(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    # Past 8 MiB in at least one dtype each; rows begin anywhere in a line of memory.
    y = x * w - 1
    normalised = torch.nn.functional.layer_norm(x, x.shape[1:], w, w)
    return [y, y > 0, normalised, x.t() + 1, x[:, 1:] * 2, y.to(torch.float64), x.softmax(1)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("columns", [1024, 1027])
def test_large_results(check, columns, dynamic):
    check(
        large, (torch.randn(8300 * 1024 // columns, columns), torch.rand(columns)), dynamic=dynamic
    )


def test_large_writes_in_place(check):
    def function(base, w):
        part = base[3:].view(-1, 1024)
        part.mul_(w).add_(1)
        base[:3] = part[0, :3]
        return part.sum()

    check(function, (torch.randn(2100 * 1024 + 3), torch.rand(1024)))


# --- Overlapping memory -----------------------------------------------------------------


def test_inputs_that_overlap_themselves(check):
    base = torch.arange(40.0)
    windows = base.as_strided((5, 9), (3, 2))
    repeated = base[:4].expand(6, 4)

    def function(windows, repeated):
        y = windows * 2 - 1
        results = [y, y.sum(0), y.softmax(1), windows.t() + 1, windows.flip(1) * windows]
        return [*results, repeated + 1, repeated.sum(0), repeated.reshape(-1), repeated.cumsum(0)]

    check(function, (windows, repeated))


def test_views_of_one_storage_written_in_turn(check):
    def function(x):
        x[1:].add_(x[:-1].clone() * 2)
        y = x * 2
        x[::2].mul_(-1)
        x.t()[0].copy_(y[:, 1])
        return y, x.sum(0), x[1:] - x[:-1]

    check(function, (torch.randn(6, 5),))


def test_inputs_that_share_memory(check):
    def shared():
        base = torch.arange(24.0)
        return base[2:14].view(3, 4), base[8:20].view(4, 3).t(), base

    def function(x, y, base):
        before = x * 2 + y
        x.mul_(3)
        middle = x - y + base.sum()
        y.add_(before)
        return before, middle, x * y

    check(function, shared())


def test_writing_to_memory_that_overlaps_itself_is_refused(compile_with):
    def function(x):
        x.add_(1)
        return x * 2

    for f in (function, compile_with(function)):
        with pytest.raises(RuntimeError, match="single memory location"):
            f(torch.zeros(1).expand(4))


# --- Beyond 2^31 elements ---------------------------------------------------------------

HUGE = 2**31 + 2**20


@pytest.fixture(scope="module")
def huge() -> torch.Tensor:
    """Memory of which only the pages that are touched exist."""
    x = torch.empty(HUGE, dtype=torch.uint8)
    for start in range(0, HUGE, 2**29):
        x[start : start + 64] = torch.arange(64, dtype=torch.uint8)
    x[-64:] = torch.arange(100, 164, dtype=torch.uint8)
    return x


def pieces_of_huge(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
    rows = x.as_strided((5, 8), (2**29, 1))  # the last row is beyond 2^31
    tail = x[-64:]
    results = [tail * 2, tail.flip(0) + 1, tail.sum(), rows * 2, rows.t() + 1, rows.sum(0)]
    results += [rows.amax(1), torch.cat([rows[:, 0], tail]) + 1, x[2**31 :][:5] - 1]
    results += [x[index] + 1, x.index_select(0, index) * 2, x.gather(0, index).sum()]
    return [*results, rows.float().softmax(0), x[index - HUGE] + tail[:3], x[HUGE - 3 :: 2] + 1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_reads_beyond_32_bits(compile_with, huge, dynamic):
    index = torch.tensor([3, 2**31 + 1, HUGE - 2])
    huge[2**31 + 1] = 77
    want = pieces_of_huge(huge, index)
    assert_same(compile_with(pieces_of_huge, dynamic=dynamic)(huge, index), want)


def test_writes_beyond_32_bits(huge):
    # Fused only: as calls, the functionalised program copies all of it.
    def function(x):
        x[2**31 + 5 : 2**31 + 9].mul_(3)
        x[:: 2**29].add_(1)
        return x[2**31 : 2**31 + 12] + 1

    places = [start + i for start in range(0, HUGE, 2**29) for i in range(12)]
    before = huge[places].clone()
    want, after = function(huge), huge[places].clone()
    huge[places] = before
    assert_same(torch.compile(function, backend="intarsia")(huge), want)
    assert torch.equal(huge[places], after)


def expanded(x: torch.Tensor) -> list[torch.Tensor]:
    wide = x.expand(3, 2**33)
    results = [wide[:, -5:] * 2 + 1, wide[:, 2**32 : 2**32 + 3].sum(1), wide.t()[-3:] - 1]
    return [*results, wide.as_strided((3, 2), (1, 0)) + 1, wide[:, :: 2**31].amax(0)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_expanded_beyond_32_bits(check, dynamic):
    check(expanded, (torch.randn(3, 1),), dynamic=dynamic)


def test_positions_beyond_32_bits(check):
    def function(x):
        results = [torch.arange(2**31 - 3, 2**31 + 4) * 2, torch.arange(0, 2**40, 2**38) + 1]
        results += [torch.arange(2**33, 2**33 - 5, -1).float(), x.numel() * x]
        return [*results, torch.arange(7) * 2**31 + x.long(), torch.linspace(0, 2.0**34, 5) + x[:5]]

    check(function, (torch.randn(7),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [torch.logaddexp, torch.logaddexp2])
def test_sums_of_exponentials_far_apart(function, dtype):
    """The smaller one is not lost beside 1 before the logarithm is taken."""
    a = torch.zeros(64, dtype=dtype)
    b = -torch.linspace(0, 60, 64, dtype=dtype)
    got = torch.compile(function, backend="intarsia")(a, b)
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(got, function(a, b), rtol=tolerance, atol=0)
