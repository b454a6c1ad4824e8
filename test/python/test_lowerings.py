# ===- test_lowerings.py - Every lowering against eager ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Each operator that has a kernel, against the operator itself.

A case is one call of one operator. Its operands come in every dtype that it takes,
contiguous and not, at odd sizes, with the values at which formulas differ: NaN,
infinities, zeros of both signs, denormals, the ends of the integers. The cases of a
group are compiled together, since most of the time goes to tracing.

Results are compared in units in the last place of the result's dtype: 0 wherever the
operator is exact, 2 for a math function in float32 and float64, 1 where a half
precision result may round the other way because of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.utils import _pytree as pytree

import intarsia.backend
from intarsia import decompositions
from intarsia.options import Options

aten = torch.ops.aten
f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
HALVES = (bf16, f16)
FLOATS = (f32, *HALVES)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
BOOL = (torch.bool,)
ALL = (*FLOATS, f64, *INTEGERS, torch.bool)
COMPLEX = (torch.complex64, torch.complex128)

SHAPE = (7, 13)

# --- Operands ---------------------------------------------------------------------


def special(dtype: torch.dtype) -> list[float | int]:
    """Values at which formulas go wrong."""
    if dtype is torch.bool:
        return [0, 1]
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
    info = torch.finfo(dtype)
    finite = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 20.0, 90.0, info.tiny, info.smallest_normal / 8]
    finite += [info.max, info.eps, 6.0]
    return [math.nan, math.inf, -math.inf, *finite, *(-value for value in finite)]


def tensor(
    dtype: torch.dtype,
    shape: Sequence[int] = SHAPE,
    *,
    seed: int = 0,
    low: float = -4,
    high: float = 4,
    specials: bool = True,
) -> torch.Tensor:
    """Random values, the first of them (shuffled) the special ones."""
    if dtype.is_complex:
        parts = [
            tensor(dtype.to_real(), shape, seed=s, low=low, high=high, specials=specials)
            for s in (seed, seed + 100)
        ]
        return torch.complex(*parts)
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    if dtype is torch.bool:
        values = torch.randint(0, 2, (count,), generator=generator).to(dtype)
    elif dtype.is_floating_point:
        values = torch.rand(count, generator=generator, dtype=f64) * (high - low) + low
        values = values.to(dtype)
    else:
        least = max(int(low), torch.iinfo(dtype).min)
        values = torch.randint(least, int(high) + 1, (count,), generator=generator).to(dtype)
    if specials:
        chosen = torch.tensor(special(dtype), dtype=dtype)[:count]
        places = torch.randperm(count, generator=generator)[: len(chosen)]
        values[places] = chosen[torch.randperm(len(chosen), generator=generator)]
    return values.reshape(tuple(shape))


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same values, neither contiguous nor dense."""
    if x.dim() == 0:
        return x
    order = list(range(x.dim()))[::-1]
    storage = torch.zeros([2 * x.shape[i] for i in order], dtype=x.dtype)
    view = storage[tuple(slice(1, None, 2) for _ in order)].permute(order)
    view.copy_(x)
    return view


# --- Cases --------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes
    ----------
    name : str
        What a failure says.
    call : callable
        Takes the operands.
    operands : list of tuple of torch.Tensor
        One tuple a variant.
    ulp : dict of dtype to int
        What each result dtype may differ by; 0 if it isn't there.
    relative : float
        Another tolerance, relative to the largest result: for sums, whose order of
        additions is free.
    """

    name: str
    call: Callable[..., Any]
    operands: list[tuple[torch.Tensor, ...]]
    ulp: dict[torch.dtype, int] = field(default_factory=dict)
    relative: dict[torch.dtype, float] = field(default_factory=dict)


C64, C128 = COMPLEX
FUNCTION = {f32: 2, f64: 2, f16: 1, bf16: 1}
SUM = {f32: 2e-6, f64: 1e-14, f16: 2e-3, bf16: 8e-3}
HALF_SUM = {f16: 1e-3, bf16: 8e-3}
# For operators whose fake implementation keeps strides that their kernel doesn't.
DENSE = (torch.Tensor.contiguous,)
GROUPS: dict[str, list[Case]] = {}


def add(
    group: str,
    call: Callable[..., Any],
    *operands: Callable[[torch.dtype], torch.Tensor],
    dtypes: Sequence[torch.dtype] = FLOATS,
    name: str = "",
    ulp: dict[torch.dtype, int] | None = None,
    relative: dict[torch.dtype, float] | None = None,
    layouts: Sequence[Callable[[torch.Tensor], torch.Tensor]] | None = None,
) -> None:
    """A case whose operands are made for each dtype, in both layouts."""
    variants = []
    for dtype in dtypes:
        made = tuple(make(dtype) for make in operands)
        for layout in layouts or (torch.Tensor.contiguous, strided):
            variants.append(tuple(layout(x) for x in made))
    label = name or getattr(call, "__name__", str(call))
    if isinstance(call, torch._ops.OpOverload):
        label = str(call)
    GROUPS.setdefault(group, []).append(Case(label, call, variants, ulp or {}, relative or {}))


def x(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype)


def y(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, seed=1)


def z(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, seed=2)


def row(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, (1, 13), seed=3)


def column(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, (7, 1), seed=4)


def scalar(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, (), seed=5, specials=False)


def tame(dtype: torch.dtype) -> torch.Tensor:
    """No value whose square overflows, and nothing that drowns the others."""
    return tensor(dtype, seed=6, specials=False)


def without_nan(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, seed=2).nan_to_num(nan=0.25)


def positive(dtype: torch.dtype) -> torch.Tensor:
    return tensor(dtype, seed=7, specials=False, low=0, high=5)


def mask(_: torch.dtype) -> torch.Tensor:
    return tensor(torch.bool, seed=8)


def of(dtype: torch.dtype, *shape: int, seed: int = 9) -> Callable[..., torch.Tensor]:
    """An operand of one dtype, whatever the case's."""
    return lambda _: tensor(dtype, shape, seed=seed, specials=False)


def shaped(*shape: int, seed: int = 10, specials: bool = False) -> Callable[..., torch.Tensor]:
    return lambda dtype: tensor(dtype, shape, seed=seed, specials=specials)


def indices(high: int, *shape: int, low: int = 0) -> Callable[..., torch.Tensor]:
    return lambda _: tensor(torch.int64, shape, seed=11, low=low, high=high - 1, specials=False)


def with_numbers(call: Callable[..., Any], *numbers: Any, **keywords: Any) -> Callable[..., Any]:
    def bound(*operands: torch.Tensor) -> Any:
        return call(*operands, *numbers, **keywords)

    bound.__name__ = f"{call}{numbers or ''}{keywords or ''}"
    return bound


n = with_numbers

# Arithmetic.
for op in (aten.add.Tensor, aten.mul.Tensor, aten.maximum, aten.minimum):
    add("arithmetic", op, x, y, dtypes=ALL)
    add("arithmetic", op, column, row, dtypes=FLOATS)
    add("arithmetic", op, x, of(torch.float32), dtypes=HALVES)
    add("arithmetic", op, of(torch.float32), x, dtypes=HALVES)
for op in (aten.sub.Tensor, aten.fmax, aten.fmin):
    add("arithmetic", op, x, y, dtypes=(*FLOATS, f64, *INTEGERS))
add("arithmetic", aten.div.Tensor, x, y, dtypes=ALL)
add("arithmetic", aten.div.Tensor, x, of(torch.float32), dtypes=HALVES)
add("arithmetic", n(aten.div.Tensor_mode, rounding_mode="trunc"), x, y, dtypes=FLOATS)
for op in (aten.add, aten.sub, aten.mul, aten.div):
    add("numbers", n(op, 1.3001), x, dtypes=(*FLOATS, f64, torch.int64))
    add("numbers", n(op, 3), x, dtypes=(*FLOATS, f64, *INTEGERS))
for op in (aten.add, aten.sub, aten.rsub):
    # On halves, eager's own scalar and vector loops round differently.
    add("numbers", n(op, alpha=1.3001), tame, positive, dtypes=FLOATS, relative=HALF_SUM)
    add("numbers", n(op, alpha=3), x, y, dtypes=INTEGERS)
add("numbers", n(aten.rsub, 1.3001), x)
for divisor in (3, -3, -1, 1):
    # Eager dies of the least integer divided by -1.
    dividend = tame if divisor == -1 else x
    for op in (aten.floor_divide, aten.remainder, aten.fmod):
        add("numbers", n(op, divisor), dividend, dtypes=INTEGERS[:4])
    for mode in ("trunc", "floor"):
        add("numbers", n(aten.div, divisor, rounding_mode=mode), dividend, dtypes=INTEGERS[:4])
add("numbers", n(aten.remainder, 3), x, dtypes=(torch.uint8,))
add("arithmetic", n(aten.addcmul, value=1.3), tame, positive, y, ulp={bf16: 1, f16: 1})
add("arithmetic", aten.addcmul, x, y, z)
add("arithmetic", n(aten.addcdiv, value=1.3), tame, positive, tame)
add(
    "arithmetic",
    aten.lerp.Tensor,
    tame,
    positive,
    lambda d: tensor(d, low=0, high=1, specials=False),
)
for weight in (0.3, 0.7):
    add("arithmetic", n(aten.lerp.Scalar, weight), tame, positive)
add("arithmetic", aten.square, x, dtypes=(*FLOATS, f64, *INTEGERS))
for exponent in (0, 1, 2, 3, 5, 0.5, -0.5, -1, -2, 1.75, -3.25):
    add("powers", n(aten.pow.Tensor_Scalar, exponent), x, dtypes=(*FLOATS, f64), ulp=FUNCTION)
for exponent in (0, 1, 2, 3, 5, 12):
    add("powers", n(aten.pow.Tensor_Scalar, exponent), x, dtypes=INTEGERS)
add("powers", aten.pow.Tensor_Tensor, x, y, dtypes=(*FLOATS, f64), ulp=FUNCTION)
add("powers", aten.hypot, x, y, dtypes=(*FLOATS, f64), ulp=FUNCTION)

# One operand.
for op in (aten.neg, aten.abs, aten.sign, aten.ceil, aten.floor, aten.trunc, aten.round):
    add("signs", op, x, dtypes=(*FLOATS, f64, *INTEGERS))
for op in (aten.frac, aten.reciprocal, aten.nan_to_num, aten.relu):
    add("signs", op, x, dtypes=(*FLOATS, f64))
for op in (aten.sqrt, aten.rsqrt):  # ours is exact, eager's library is not
    add("signs", op, x, dtypes=(*FLOATS, f64), ulp=FUNCTION)
add("signs", aten.copysign.Tensor, x, y, dtypes=(*FLOATS, f64))
add("signs", n(aten.copysign.Scalar, -1.0), x)
add("signs", aten.heaviside, x, y)
for op in (aten.isnan, aten.isinf, aten.isfinite, aten.logical_not, aten.signbit):
    add("signs", op, x, dtypes=ALL)
for op in (aten.isposinf, aten.isneginf):
    add("signs", op, x, dtypes=(*FLOATS, f64, torch.int64))
SINGLE = "erfc lgamma"
DOUBLE = "acos acosh asin asinh atan atanh cos cosh erf exp exp2 expm1 log log10 log1p log2"
DOUBLE += " sigmoid sin sinh tan tanh"
add("functions", lambda a: a[0, :1].sinh().amin(0), x, ulp=FUNCTION, name="one sinh")
for names, dtypes in ((SINGLE, FLOATS), (DOUBLE, (*FLOATS, f64))):
    for function in names.split():
        op = getattr(aten, function)
        add("functions", op, x, dtypes=(*dtypes, torch.int32, torch.bool), ulp=FUNCTION)
# Eager's own is not as accurate.
add("functions", aten.digamma, x, ulp={f32: 64, f16: 1, bf16: 1})
add("functions", aten.atan2, x, y, dtypes=(*FLOATS, f64), ulp=FUNCTION)
add("functions", aten.logaddexp, x, y, ulp={**FUNCTION, f32: 64})
add("functions", aten.xlogy.Tensor, x, y, ulp=FUNCTION)
add("functions", aten.sinc, tame, ulp={f32: 8, f16: 1, bf16: 1})

# Activations: a formula around one function loses a little more, and more still where
# it subtracts. NaN operands of some derivatives give one result in eager's vector loop
# and another in its scalar loop: those have none.
AROUND = {f32: 8, f16: 1, bf16: 1}
CANCELS = {f32: 1e-6, f16: 1e-3, bf16: 8e-3}
for op in (aten.gelu, n(aten.gelu, approximate="tanh")):
    add("activations", op, tame, relative=CANCELS)
for op in (aten.silu, aten.mish, aten.softplus):
    add("activations", op, tame, ulp=AROUND)
for op in (aten.gelu_backward, aten.silu_backward, n(aten.gelu_backward, approximate="tanh")):
    add("activations", op, tame, positive, relative=CANCELS)
add("activations", n(aten.softplus, 2.0, 3.0), tame, ulp=AROUND)
add("activations", n(aten.softplus_backward, 2.0, 3.0), tame, positive, ulp=AROUND)
add("activations", n(aten.elu, 1.5, 1.1, 0.9), x, ulp=AROUND)
add("activations", aten.elu, x, ulp=AROUND)
for is_result in (False, True):

    def elu_backward(g: torch.Tensor, v: torch.Tensor, given: bool = is_result) -> torch.Tensor:
        return aten.elu_backward(g, 1.5, 1.1, 0.9, given, v)

    add("activations", elu_backward, tame, without_nan, ulp=AROUND)
add("activations", n(aten.leaky_relu, 0.013), x)
add("activations", n(aten.leaky_relu_backward, 0.013, False), x, y)
add("activations", aten.sigmoid_backward, tame, positive, ulp={f32: 1})
add("activations", aten.tanh_backward, tame, positive, ulp={f32: 1, bf16: 1, f16: 1})
add("activations", n(aten.threshold_backward, 0), x, y, dtypes=(*FLOATS, torch.int32))
add("activations", n(aten.threshold, 0.5, 7.0), x)
for op in (aten.hardtanh, n(aten.hardtanh, -0.7, 1.3)):
    add("activations", op, x)
for op in (aten.hardswish, aten.hardsigmoid):
    add("activations", op, x, ulp={f32: 1})
for op in (aten.hardswish_backward, aten.hardsigmoid_backward):
    add("activations", op, tame, without_nan, dtypes=(*FLOATS, f64), ulp={f32: 1, f64: 1})
add("activations", n(aten.hardtanh_backward, -1.0, 1.0), tame, without_nan)
add("activations", n(aten.hardshrink, 0.5), x)
add("activations", aten._prelu_kernel, x, row)
add("activations", aten.glu, shaped(7, 14), ulp=AROUND)
add("activations", n(aten.glu, 0), shaped(6, 11), ulp=AROUND)
add("activations", aten.log_sigmoid_forward, tame, ulp=AROUND, layouts=DENSE)

# Comparisons, limits, logic, bits.
for op in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
    add("comparisons", op, x, y, dtypes=ALL)
    add("comparisons", op, x, scalar, dtypes=FLOATS)
    add("comparisons", n(op, 1), x, dtypes=ALL)
    add("comparisons", n(op, 0.1), x, dtypes=(*FLOATS, torch.int32))
    add("comparisons", op, x, of(f32, *SHAPE), dtypes=(bf16, torch.int64))
add("comparisons", n(aten.clamp, -1.0, 1.3), x)
add("comparisons", n(aten.clamp, 2, 1), x, dtypes=(*FLOATS, torch.int32))
add("comparisons", n(aten.clamp, -1, 3), x, dtypes=INTEGERS[:4])
add("comparisons", n(aten.clamp, min=0.0), x)
add("comparisons", n(aten.clamp, max=math.nan), x)
add("comparisons", n(aten.clamp_min, 1), x, dtypes=(f32, torch.int32))
add("comparisons", aten.clamp.Tensor, x, column, row)
add("comparisons", aten.where.self, mask, x, y, dtypes=ALL)
add("comparisons", aten.where.self, mask, x, of(f32, *SHAPE), dtypes=(bf16, torch.int64))
add("comparisons", n(aten.masked_fill.Scalar, -math.inf), x, mask)
add("comparisons", aten.masked_fill.Tensor, x, mask, scalar)
for op in (aten.logical_and, aten.logical_or, aten.logical_xor):
    add("bits", op, x, y, dtypes=ALL)
for op in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor, aten.__and__, aten.__xor__):
    add("bits", op, x, y, dtypes=(*INTEGERS, torch.bool))
    add("bits", n(op, 5), x, dtypes=INTEGERS)
add("bits", aten.bitwise_not, x, dtypes=(*INTEGERS, torch.bool))
for op in (aten.bitwise_left_shift, aten.bitwise_right_shift):
    add("bits", op, x, lambda d: tensor(d, seed=1, low=0, high=9, specials=False), dtypes=INTEGERS)

# Conversions.
for target in ALL:

    def convert(v: torch.Tensor, target: torch.dtype = target) -> torch.Tensor:
        return torch.ops.prims.convert_element_type(v, target)

    # A float that the integer type can't hold converts as the machine does, alone.
    fitting = target.is_floating_point or target is torch.bool
    make = x if fitting else lambda d: tensor(d, low=0, high=100, specials=False)
    add("conversions", convert, make, dtypes=ALL, name=f"to {target}")
    add("conversions", convert, x, dtypes=(*INTEGERS, torch.bool), name=f"to {target}")
add("conversions", aten.clone, x, dtypes=ALL)
add("conversions", aten.copy, x, row)

# Reductions.
for dims, keep in (([0], False), ([1], True), ([0, 1], False), ([0, 2], True)):
    data = shaped(5, 7, 11)
    add("sums", n(aten.sum.dim_IntList, dims, keep), data, relative=SUM)
    add("sums", n(aten.mean.dim, dims, keep), data, relative=SUM)
    add("sums", n(aten.amax, dims, keep), shaped(5, 7, 11, specials=True), dtypes=ALL)
    add("sums", n(aten.amin, dims, keep), shaped(5, 7, 11, specials=True), dtypes=ALL)
    add("sums", n(aten.var.correction, dims, correction=1, keepdim=keep), data, relative=SUM)
    add("sums", n(aten.std.correction, dims, correction=0, keepdim=keep), data, relative=SUM)
    add("sums", n(aten.var_mean.correction, dims, correction=1), data, relative=SUM)
    add("sums", n(aten.logsumexp, dims, keep), data, ulp={f32: 16, f16: 2, bf16: 2})
    for order in (1, 2, math.inf, -math.inf, 0):
        add("norms", n(aten.linalg_vector_norm, order, dims, keep), data, relative=SUM)
    add("sums", n(aten.any.dims, dims, keep), shaped(5, 7, 11, specials=True), dtypes=ALL)
    add("sums", n(aten.all.dims, dims, keep), shaped(5, 7, 11, specials=True), dtypes=ALL)
# Of one element each: nothing is squared, which would overflow.
add("norms", n(aten.linalg_vector_norm, 2, [1, 2]), shaped(26, 1, 1, specials=True))
for op in (aten.sum, aten.prod):
    add("sums", op, shaped(3, 5), dtypes=(*INTEGERS, torch.bool))
    add("sums", op, shaped(3, 5), relative=SUM)
for op in (aten.mean, aten.max, aten.min, aten.amax, aten.amin):
    add("sums", op, shaped(3, 5), relative=SUM)
add("sums", n(aten.sum, dtype=f64), shaped(3, 5), relative=SUM)
add("sums", n(aten.prod.dim_int, 1), shaped(3, 5), relative=SUM)
add("sums", aten.any, x, dtypes=ALL)
add("sums", aten.all, x, dtypes=ALL)
add(
    "sums",
    n(aten.var.correction, [1], correction=1),
    lambda d: tame(d) * 1e30,
    dtypes=(f32,),
    relative={f32: 1e-6},
)
for dim in (0, 1):
    for op in (aten.max.dim, aten.min.dim, aten.argmax, aten.argmin):
        add(
            "extrema", n(op, dim), x, dtypes=ALL if op in (aten.max.dim, aten.min.dim) else ALL[:-1]
        )
        add(
            "extrema",
            n(op, dim, True),
            lambda d: tensor(d, low=0, high=2, specials=False).round(),
            dtypes=FLOATS,
        )
for op in (aten.argmax, aten.argmin):
    add("extrema", op, x, dtypes=ALL[:-1])
add("losses", aten.mse_loss, x, y, dtypes=FLOATS)
for reduction in (0, 1, 2):
    add("losses", n(aten.mse_loss, reduction), tame, positive, relative=SUM)
    add("losses", n(aten.smooth_l1_loss, reduction, 0.7), tame, positive, relative=SUM)
    add("losses", n(aten.huber_loss, reduction, 0.7), tame, positive, relative=SUM)
    bce = n(aten.binary_cross_entropy_with_logits, None, None, reduction)
    add("losses", bce, tame, lambda d: tensor(d, low=0, high=1, specials=False), relative=SUM)
    grad = (lambda d: tensor(d, seed=12)) if reduction == 0 else scalar
    add(
        "losses",
        n(aten.mse_loss_backward, reduction),
        grad,
        tame,
        positive,
        ulp={f32: 1, bf16: 1, f16: 1},
        layouts=DENSE,
    )


def nll(v: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> Any:
    return aten.nll_loss_forward(v, target, None, reduction, 2)


def nll_weighted(v: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> Any:
    return aten.nll_loss_forward(v, target, weight, 1, -100)


def nll_backward(
    grad: torch.Tensor, v: torch.Tensor, target: torch.Tensor, total: torch.Tensor
) -> Any:
    return aten.nll_loss_backward(grad, v, target, None, 1, 2, total)


add("losses", nll, tame, indices(13, 7), dtypes=(f32, f64), relative=SUM)
add("losses", n(nll, 2), tame, indices(13, 7), dtypes=(f32, f64), relative=SUM)
add("losses", nll_weighted, tame, indices(13, 7), shaped(13), dtypes=(f32, f64), relative=SUM)
add("losses", nll_backward, scalar, tame, indices(13, 7), scalar, dtypes=(f32, f64), relative=SUM)

# Softmax and normalisations.
LOOSE = {f32: 1e-5, f64: 1e-13, f16: 2e-3, bf16: 1.6e-2}
for dim in (0, 1, -1):
    data = shaped(5, 7, 11)
    for op in (aten._softmax, aten._log_softmax):
        add("softmax", n(op, dim, False), data, dtypes=(*FLOATS, f64), relative=LOOSE)
    for op in (aten._softmax_backward_data, aten._log_softmax_backward_data):

        def backward(
            grad: torch.Tensor, out: torch.Tensor, op: Any = op, dim: int = dim
        ) -> torch.Tensor:
            return op(grad, out, dim, grad.dtype)

        add(
            "softmax",
            backward,
            data,
            shaped(5, 7, 11, seed=13),
            relative=LOOSE,
            name=f"{op}({dim})",
            layouts=DENSE,
        )
add("softmax", n(aten._softmax, 1, False), x, relative=LOOSE)


def safe_softmax(v: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return aten._safe_softmax(v.masked_fill(hidden, -math.inf), -1)


some_rows = lambda _: torch.arange(7).reshape(7, 1) % 3 == 0  # noqa: E731
add("softmax", safe_softmax, tame, some_rows, relative=LOOSE)


def layer_norm(v: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return aten.native_layer_norm(v, [v.shape[-1]], weight, bias, 1e-5)


def layer_norm_plain(v: torch.Tensor) -> Any:
    return aten.native_layer_norm(v, [v.shape[-2], v.shape[-1]], None, None, 1e-5)


def layer_norm_backward(grad: torch.Tensor, v: torch.Tensor, weight: torch.Tensor) -> Any:
    shape = [v.shape[-1]]
    _, mean, rstd = aten.native_layer_norm(v, shape, weight, weight, 1e-5)
    return aten.native_layer_norm_backward(
        grad, v, shape, mean, rstd, weight, weight, [True, True, True]
    )


add("normalisations", layer_norm, shaped(5, 7, 11), shaped(11), shaped(11), relative=LOOSE)
add("normalisations", layer_norm_plain, shaped(5, 7, 11), relative=LOOSE)
add(
    "normalisations",
    layer_norm_backward,
    shaped(5, 7, 11),
    shaped(5, 7, 11, seed=13),
    shaped(11),
    relative=LOOSE,
    layouts=DENSE,
)


def group_norm(v: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return aten.native_group_norm(v, weight, bias, v.shape[0], 6, v.shape[2] * v.shape[3], 3, 1e-5)


def batch_norm(
    v: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor
) -> Any:
    return aten._native_batch_norm_legit_no_training(v, weight, weight, mean, variance, 0.1, 1e-5)[
        0
    ]


def rms_norm(v: torch.Tensor, weight: torch.Tensor) -> Any:
    return torch.nn.functional.rms_norm(v, [v.shape[-1]], weight, 1e-5)


add("normalisations", group_norm, shaped(3, 6, 5, 7), shaped(6), shaped(6), relative=LOOSE)
variance = lambda d: tensor(d, (6,), low=0.1, high=2, specials=False)  # noqa: E731
add(
    "normalisations",
    batch_norm,
    shaped(3, 6, 5, 7),
    shaped(6),
    variance,
    shaped(6),
    relative=LOOSE,
    layouts=DENSE,
)
add("normalisations", rms_norm, shaped(5, 7, 11), shaped(11), relative=LOOSE)

# Indexing.
add(
    "indexing",
    lambda w, i: aten.embedding(w, i),
    shaped(11, 5),
    indices(11, 3, 7),
    dtypes=ALL,
    name="embedding",
)
add("indexing", lambda v, i: aten.gather(v, 1, i), x, indices(13, 7, 9), dtypes=ALL, name="gather")
add(
    "indexing",
    lambda v, i: aten.index_select(v, 0, i),
    x,
    indices(7, 9),
    dtypes=ALL,
    name="index_select",
)
add("indexing", lambda v, i: v[i], x, indices(7, 9, low=-7), name="index(i)")
add("indexing", lambda v, i, j: v[i, j], x, indices(7, 4, 1), indices(13, 5), name="index(i, j)")
add(
    "indexing",
    lambda v, i, j: v[:, i, :, j],
    shaped(3, 5, 7, 5),
    indices(5, 4, low=-5),
    indices(5, 4),
    name="index(:, i, :, j)",
)
add(
    "indexing",
    lambda v, i: v[:, i],
    shaped(3, 5, 7),
    indices(5, 2, 3),
    name="index(:, i)",
    layouts=DENSE,
)


def put_where(v: torch.Tensor, chosen: torch.Tensor, number: torch.Tensor) -> Any:
    """A mask of all dimensions, and one of the first."""
    return aten.index_put(v, [chosen], number), aten.index_put(v, [chosen[:, 0]], number)


add("indexing", put_where, x, mask, scalar, dtypes=ALL, name="index_put(mask)")
add("indexing", put_where, x, mask, scalar, dtypes=COMPLEX, name="index_put(mask)")

# Factories and shapes.
add("factories", lambda v: torch.arange(v.shape[0], device=v.device) + v[:, 0], x, name="arange")
add("factories", lambda v: torch.arange(3, 17, 2, dtype=f32) * v[:, 0], x, name="arange step")
add(
    "factories",
    lambda v: torch.zeros_like(v) + torch.ones_like(v) * 2,
    x,
    dtypes=(*FLOATS, *INTEGERS),
    name="like",
)
add("factories", lambda v: torch.full_like(v, 3.7), x, dtypes=(*FLOATS, f64), name="full_like")
add(
    "factories",
    lambda v: torch.full((v.shape[1],), 3.7, dtype=v.dtype),
    x,
    dtypes=(*FLOATS, f64),
    name="full",
)
add("factories", lambda v: torch.eye(v.shape[0], dtype=v.dtype) * 2, x, name="eye")
add(
    "factories", lambda v: v.new_full((2, v.shape[0]), 3) + v.new_ones((v.shape[0],)), x, name="new"
)
for dim in (0, 1):
    add(
        "shapes",
        lambda a, b, dim=dim: aten.cat([a, b, a], dim),
        x,
        y,
        dtypes=ALL,
        name=f"cat {dim}",
    )
    add(
        "shapes",
        lambda a, b, dim=dim: aten.stack([a, b, a], dim),
        x,
        y,
        dtypes=FLOATS,
        name=f"stack {dim}",
    )
    add("shapes", lambda a, dim=dim: aten.flip(a, [dim]), x, name=f"flip {dim}")
    add("shapes", lambda a, dim=dim: aten.roll(a, [3], [dim]), x, name=f"roll {dim}")
add(
    "shapes", lambda a, b: aten.cat([a, b], 1), x, of(f32, 7, 5), dtypes=HALVES, name="cat promoted"
)
add("shapes", lambda a: aten.constant_pad_nd(a, [2, 1], 0.5), x, name="pad 1")
add("shapes", lambda a: aten.constant_pad_nd(a, [2, 1, 0, 3]), x, dtypes=ALL, name="pad 2")
add("shapes", lambda a: aten.constant_pad_nd(a, [-2, 1, 3, -3], 2.0), x, name="pad and cut")
add("shapes", lambda a: aten.constant_pad_nd(a[:, :1], [-1, 2], 2.0), x, name="pad of nothing")
add(
    "shapes",
    lambda a: aten.cat([torch.tensor([], dtype=a.dtype), a, a[:0], a]),
    x,
    name="cat of nothing",
)
add("shapes", lambda a: aten.repeat(a, [2, 1, 3]), x, name="repeat")
for diagonal in (0, 2, -3):
    add("shapes", n(aten.tril, diagonal), x, dtypes=ALL)
    add("shapes", n(aten.triu, diagonal), x, dtypes=ALL)
add("shapes", lambda a, b: aten.slice_scatter(a, b, 1, 2, 7), x, shaped(7, 5), name="slice_scatter")
add("shapes", lambda a, b: aten.select_scatter(a, b, 0, -2), x, shaped(13), name="select_scatter")


# What is read in pieces along lanes: longer than vectors, and on several threads.
PIECES: dict[str, Callable[..., Any]] = {
    "rolled": lambda v: [v.roll(shift, -1) + 1 for shift in (7, -5, 70, 0, 1000, -1000)],
    "rolled twice": lambda v: (v * 2).roll((3, -20, 1), (0, 1, 1)) - v,
    "rolled, all": lambda v: v.roll(39),
    "repeated": lambda v: (v.repeat(1, 3), v.repeat(2, 2) * 2, v.repeat(2, 1, 20)),
    "repeated and reshaped": lambda v: v.repeat(1, 3).reshape(-1) + v.repeat(3, 1).reshape(-1),
    "repeated, short": lambda v: v[:, :7].repeat(1, 20) + v[:, :4].repeat(1, 35),
    "each repeated": lambda v: [v.repeat_interleave(k, -1).sin() for k in (2, 16, 20)],
    "side by side": lambda v: torch.cat([v, -v], 1).reshape(-1) * 2,
    "inserted": lambda v: torch.slice_scatter(v, v[:, :30] * 2, 1, 17, 47),
    "mirrored": lambda v: aten.reflection_pad1d(v, [20, 17]) * 2,
    "mirrored rows": lambda v: aten.reflection_pad2d(v.view(1, *v.shape), [3, 2, 1, 3]),
    "edges": lambda v: aten.replication_pad1d(v, [20, 17]) + aten.replication_pad1d(v, [37, 0]),
    "interleaved": lambda v: torch.stack([-v[:, 1::2], v[:, ::2]], -1).flatten(-2),
    "shuffled": lambda v: aten.pixel_shuffle(v.reshape(1, 4, -1, 15), 2) * 2,
}
for label, pieces in PIECES.items():
    add("pieces", pieces, shaped(6, 70), dtypes=(f32, bf16), name=label, ulp=FUNCTION)
add("pieces", lambda v: v.repeat(2, 2).sum(1), shaped(6, 70), name="summed", relative=SUM)
FLAT_PIECES: dict[str, Callable[..., Any]] = {
    "rolled, flat": lambda v: v.roll(777) + 1,
    "one after the other": lambda v: torch.cat([v, v * 2, v[:100]]),
    "padded, flat": lambda v: aten.constant_pad_nd(v, [5, 9], 1.5) * 2,
    "repeated, flat": lambda v: v.repeat(3) * 2,
}
for label, pieces in FLAT_PIECES.items():
    add("pieces", pieces, shaped(70_001), dtypes=(f32,), name=label, layouts=DENSE)


# Memory that lies otherwise than the dimensions do decides where lanes run.
def channels_last(v: torch.Tensor) -> torch.Tensor:
    return v.contiguous(memory_format=torch.channels_last)


def permuted(v: torch.Tensor) -> torch.Tensor:
    return v.permute(3, 2, 0, 1).contiguous().permute(2, 3, 1, 0)


OF_CHANNELS: dict[str, Callable[..., Any]] = {
    "of an image": lambda v: [f(v, (2, 3)) for f in (torch.mean, torch.amax, torch.sum)],
    "of channels": lambda v: [f(v, (0, 2, 3)) for f in (torch.mean, torch.amin, torch.var)],
    "beside": lambda v: [f(v, d, keepdim=True) for f in (torch.sum, torch.amax) for d in (0, 1, 2)],
    "softmax": lambda v: [v.softmax(d) for d in range(4)],
    "deviations": lambda v: (v - v.mean((2, 3), keepdim=True)) / v.std((2, 3), keepdim=True),
    "mixed": lambda v: (v * v.contiguous()).sum((2, 3)) + (v.flip(3) + v.contiguous()).sum(1).sum(),
    "largest": lambda v: [*v.max(1), *v.flatten(2).min(2)],
    "running": lambda v: (v.cumsum(1), v.cumsum(2)),
}
for label, reduced in OF_CHANNELS.items():
    add(
        "channels last",
        reduced,
        shaped(3, 70, 5, 4),
        dtypes=(f32,),
        name=label,
        relative=SUM,
        layouts=(channels_last, permuted),
    )


# Division. Eager dies of the least integer divided by -1, so the dividends have none.
# Its vector loop gives up on quotients beyond 2**24 or so, which ours are exact for (the
# unit tests of the math functions see to that).
def dividend(dtype: torch.dtype) -> torch.Tensor:
    v = tensor(dtype, seed=16, low=-50, high=50)
    return v.where((v.abs() < 1e4) | v.isinf() | v.isnan(), 7.5)


def divisor(dtype: torch.dtype) -> torch.Tensor:
    v = tensor(dtype, seed=14)
    if not dtype.is_floating_point:
        return v.where(v != 0, 3)
    return v.where((v.abs() > 1e-2) | (v == 0) | v.isnan(), 1.5)


for op in (aten.floor_divide, aten.remainder.Tensor, aten.fmod.Tensor):
    add("division", op, tame, divisor, dtypes=INTEGERS)
    add("division", op, dividend, divisor)
for mode in ("trunc", "floor"):
    add("division", n(aten.div.Tensor_mode, rounding_mode=mode), tame, divisor, dtypes=INTEGERS)
    add("division", n(aten.div.Tensor_mode, rounding_mode=mode), dividend, divisor)
    by_scalar = n(aten.div.Tensor_mode, rounding_mode=mode)
    add("division", by_scalar, dividend, scalar, layouts=DENSE)
for number in (0.3, -2.5, 3, -1, 0):
    add("division", n(aten.remainder.Scalar, number), dividend, dtypes=(*FLOATS, f64))
    add("division", n(aten.fmod.Scalar, number), dividend, dtypes=(*FLOATS, f64))
    add("division", n(aten.div, number, rounding_mode="floor"), dividend)
add(
    "division",
    lambda v: aten.remainder.Scalar_Tensor(7, v),
    divisor,
    dtypes=(f32, torch.int64),
    name="remainder.Scalar_Tensor",
)

# Overloads that nobody gets by calling the packet.
for op in (aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar, aten.div.Scalar):
    add("overloads", n(op, 1.3001), x)
add("overloads", n(aten.div.Scalar_mode, 3, rounding_mode="trunc"), x, dtypes=(f32, torch.int32))
add(
    "overloads",
    lambda v: aten.pow.Scalar(2.5, v),
    x,
    name="pow.Scalar",
    ulp=FUNCTION,
    layouts=DENSE,
)
add("overloads", n(aten.fill.Scalar, 2.5), x)
add("overloads", n(aten.any.dim, 1), x, dtypes=ALL)
add("overloads", n(aten.all.dim, 1), x, dtypes=ALL)
add("overloads", n(aten.var.dim, [1]), tame, relative=SUM)
add("overloads", lambda v: v + aten.scalar_tensor(2.5, dtype=v.dtype), x, name="scalar_tensor")

# More activations and their derivatives.
for op in (aten.hardshrink_backward, aten.softshrink_backward):
    add("static derivatives", n(op, 0.5), tame, without_nan)
add("derivatives", aten.log_sigmoid_backward, tame, without_nan, positive, ulp=AROUND)
add("derivatives", aten._prelu_kernel_backward, tame, without_nan, row)
add(
    "derivatives",
    n(aten.glu_backward, 1),
    tame,
    shaped(7, 26),
    dtypes=(f32, f64),
    ulp={f32: 8, f64: 8},
)
add("derivatives", n(aten.celu, 1.5), x, ulp=AROUND)
unit = lambda d: tensor(d, low=0.01, high=0.99, specials=False)  # noqa: E731
add("derivatives", aten.logit, unit, relative=CANCELS)
add("derivatives", n(aten.logit, 0.1), unit, relative=CANCELS)
add("derivatives", n(aten.logit_backward, 0.1), tame, unit, relative=CANCELS)
add("derivatives", aten.logit_backward, tame, unit, relative=CANCELS)
add("derivatives", aten.special_entr, x, ulp=FUNCTION)
add("derivatives", aten.logaddexp2, tame, positive, ulp={f32: 8, f16: 1, bf16: 1})
for op in (aten.deg2rad, aten.rad2deg, aten.angle):
    add("derivatives", op, x, dtypes=(f32, f64, torch.int32) if op is aten.angle else (f32, f64))
for op in (aten.smooth_l1_loss_backward, aten.huber_loss_backward):
    for reduction in (0, 1, 2):
        grad = (lambda d: tensor(d, seed=12)) if reduction == 0 else scalar
        add(
            "derivatives",
            n(op, reduction, 0.7),
            grad,
            tame,
            positive,
            # On f16, eager's own scalar and vector loops round differently.
            ulp={f32: 1, bf16: 1, f16: 2},
            layouts=DENSE,
        )
for reduction in (0, 1, 2):
    bce = n(aten.binary_cross_entropy, None, reduction)
    add(
        "losses",
        bce,
        unit,
        lambda d: tensor(d, low=0, high=1, specials=False),
        dtypes=(f32, f64),
        relative=SUM,
    )
    grad = (lambda d: tensor(d, seed=12, specials=False)) if reduction == 0 else scalar
    bce_backward = n(aten.binary_cross_entropy_backward, None, reduction)
    add("losses", bce_backward, grad, unit, positive, dtypes=(f32, f64), relative=SUM)
add(
    "losses",
    lambda v, t, w: aten.binary_cross_entropy(v, t, w),
    unit,
    unit,
    row,
    dtypes=(f32,),
    relative=SUM,
    name="binary_cross_entropy(weight)",
)


def nll2d(v: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> Any:
    loss, total = aten.nll_loss2d_forward(v, target, weight, 1, 2)
    return loss, total, aten.nll_loss2d_backward(loss, v, target, weight, 1, 2, total)


add(
    "losses",
    nll2d,
    shaped(3, 5, 4, 2),
    indices(5, 3, 4, 2),
    shaped(5),
    dtypes=(f32, f64),
    relative=SUM,
    layouts=DENSE,
)
for power, reduction in ((1, 0), (2, 1), (1, 2)):
    margin = n(aten.multi_margin_loss, power, 0.7, None, reduction)
    add("static losses", margin, tame, indices(13, 7), dtypes=(f32, f64), relative=SUM)

    def margin_backward(
        v: torch.Tensor, target: torch.Tensor, w: torch.Tensor, p: int = power, r: int = reduction
    ) -> Any:
        loss = aten.multi_margin_loss(v, target, p, 0.7, w, r)
        return loss, aten.multi_margin_loss_backward(loss, v, target, p, 0.7, w, r)

    operands = (tame, indices(13, 7), shaped(13))
    add("static losses", margin_backward, *operands, dtypes=(f32, f64), relative=SUM, layouts=DENSE)

# Means over windows, added up in eager's order.
WINDOWS = (
    ([2, 2],),
    ([3, 2], [2, 1], [1, 0]),
    ([3, 3], [2, 2], [1, 1], False, False),
    ([3, 3], [2, 2], [0, 1], True),
    ([3, 2], [3, 2], [1, 1], True, False),
    ([2, 3], [1, 2], [0, 0], False, True, 5),
)
for window in WINDOWS:
    ulp = {f16: 1, bf16: 1}
    add("pooling", n(aten.avg_pool2d, *window), shaped(3, 4, 9, 40), ulp=ulp, layouts=DENSE)
add("pooling", n(aten.avg_pool2d, *WINDOWS[1]), shaped(4, 9, 40), dtypes=(f64,), layouts=DENSE)
for window in (([2, 1, 3],), ([2, 2, 3], [1, 2, 2], [1, 0, 1], True, False)):
    add(
        "pooling", n(aten.avg_pool3d, *window), shaped(2, 3, 5, 6, 40), dtypes=(f32,), layouts=DENSE
    )
add("pooling", n(aten.avg_pool1d, 3, 2, 1), shaped(2, 3, 41), dtypes=(f32,), layouts=DENSE)
add("sums", n(aten.nansum, [1]), x, dtypes=(f32, f64), relative=SUM)


# Batch and group norm.
def batch_norm_training(v: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> Any:
    return aten._native_batch_norm_legit_functional(
        v, weight, mean, mean, weight.abs(), True, 0.2, 1e-3
    )


def batch_norm_backward(g: torch.Tensor, v: torch.Tensor, weight: torch.Tensor) -> Any:
    _, mean, rstd = aten._native_batch_norm_legit.no_stats(v, weight, weight, True, 0.2, 1e-3)
    training = aten.native_batch_norm_backward(
        g, v, weight, None, None, mean, rstd, True, 1e-3, [True, True, True]
    )
    frozen = aten.native_batch_norm_backward(
        g, v, weight, weight, weight.abs(), None, None, False, 1e-3, [True, True, True]
    )
    return [mean, rstd, *training, *frozen]


def group_norm_backward(g: torch.Tensor, v: torch.Tensor, weight: torch.Tensor) -> Any:
    count = v.shape[2] * v.shape[3]
    _, mean, rstd = aten.native_group_norm(v, weight, weight, v.shape[0], 6, count, 3, 1e-5)
    return aten.native_group_norm_backward(
        g, v, mean, rstd, weight, v.shape[0], 6, count, 3, [True, True, True]
    )


def channels_last(v: torch.Tensor) -> torch.Tensor:
    return v.contiguous(memory_format=torch.channels_last) if v.dim() == 4 else v


BOTH = (torch.Tensor.contiguous, channels_last)
image = shaped(3, 6, 5, 7)
add(
    "channel norms",
    batch_norm_training,
    image,
    shaped(6),
    shaped(6, seed=15),
    dtypes=(f32, f64),
    relative=LOOSE,
    layouts=BOTH,
)
add(
    "channel norms",
    # PyTorch's fake is wrong about the dtype of what is saved; see decompositions.py.
    lambda *operands: [batch_norm_training(*operands)[i] for i in (0, 3, 4)],
    image,
    of(f32, 6),
    of(f32, 6, seed=15),
    dtypes=HALVES,
    relative=LOOSE,
    layouts=BOTH,
)
add(
    "channel norms",
    batch_norm_training,
    shaped(7, 6),
    shaped(6),
    shaped(6, seed=15),
    dtypes=(f32,),
    relative=LOOSE,
    layouts=DENSE,
)
gradient = shaped(3, 6, 5, 7, seed=13)
for backward, dtypes in ((batch_norm_backward, (f32, f64)), (group_norm_backward, FLOATS)):
    add(
        "channel norms",
        backward,
        gradient,
        image,
        shaped(6),
        dtypes=dtypes,
        relative=LOOSE,
        layouts=DENSE,
    )

# Borders, blocks, enlarged images, scattered values.
for op in (aten.reflection_pad1d, aten.replication_pad1d):
    add("borders", n(op, [3, 2]), shaped(3, 4, 5), layouts=DENSE)
for op in (aten.reflection_pad2d, aten.replication_pad2d):
    add("borders", n(op, [3, 2, 0, 1]), shaped(3, 4, 5, 6), layouts=DENSE)
for op in (aten.reflection_pad3d, aten.replication_pad3d):
    add("borders", n(op, [3, 2, 0, 1, 1, 1]), shaped(2, 3, 4, 5, 6), layouts=DENSE)
add("borders", n(aten.pixel_shuffle, 2), shaped(3, 8, 5, 7), dtypes=(f32, bf16), layouts=DENSE)
add("borders", n(aten.pixel_unshuffle, 2), shaped(3, 2, 6, 8), dtypes=(f32, bf16), layouts=DENSE)
for span in ((0, 4, 1), (-3, 100, 1), (1, 7, 2)):

    def slice_backward(v: torch.Tensor, span: tuple[int, int, int] = span) -> torch.Tensor:
        return aten.slice_backward(v[:, slice(*span)].contiguous(), v.shape, 1, *span)

    add("borders", slice_backward, x, name=f"slice_backward{span}", layouts=DENSE)
add(
    "borders",
    lambda v: aten.select_backward(v[:, -2].contiguous(), v.shape, 1, -2),
    x,
    name="select_backward",
    layouts=DENSE,
)
for op in (aten.tril_indices, aten.triu_indices):
    for offset in (-1, 0, 2):

        def triangle(v: torch.Tensor, op: Any = op, offset: int = offset) -> torch.Tensor:
            return op(5, 7, offset) * v

        add("borders", triangle, lambda _: torch.tensor(2), dtypes=(torch.int64,), name=f"{op}")
for size in ((10, 14), (15, 7), (7, 9), (3, 4)):
    add("images", n(aten.upsample_nearest2d, size), shaped(2, 3, 5, 7), layouts=BOTH)
    for corners in (False, True):
        bilinear = n(aten.upsample_bilinear2d, size, corners)
        add("images", bilinear, shaped(2, 3, 5, 7), relative=CANCELS, layouts=BOTH)
add("images", n(aten.upsample_nearest1d, [11]), shaped(2, 3, 4), layouts=DENSE)
add(
    "images",
    n(aten.upsample_nearest3d, [4, 6, 3]),
    shaped(2, 3, 2, 3, 3),
    dtypes=(f32,),
    layouts=DENSE,
)
add(
    "images",
    n(aten.upsample_linear1d, [11], False),
    shaped(2, 3, 4),
    relative=CANCELS,
    layouts=DENSE,
)
add("images", n(aten.upsample_nearest2d, [12, 17], 2.4, 2.5), shaped(2, 3, 5, 7), layouts=DENSE)
add(
    "images",
    n(aten.upsample_bilinear2d, [12, 17], False, 2.4, 2.5),
    shaped(2, 3, 5, 7),
    relative=CANCELS,
    layouts=DENSE,
)
add(
    "images",
    n(aten.upsample_nearest2d_backward, [10, 21], [2, 3, 5, 7]),
    shaped(2, 3, 10, 21),
    relative=SUM,
    layouts=DENSE,
)
add(
    "images",
    lambda v, i, j: torch.ops.aten._unsafe_index(v, [None, None, i, j]),
    shaped(2, 3, 5, 7),
    indices(5, 4, 1),
    indices(7, 6),
    name="_unsafe_index",
    layouts=DENSE,
)
add(
    "scatter",
    lambda v, i: aten.scatter.value(v, 1, i, 2.6),
    x,
    indices(13, 7, 1),
    dtypes=ALL,
    name="scatter.value",
)
add(
    "scatter",
    lambda v, i, s: aten.scatter.src(v, 0, i, s),
    x,
    indices(7, 1, 13),
    row,
    dtypes=ALL,
    name="scatter.src",
)
add(
    "scatter",
    lambda i: aten.scatter.value(torch.zeros(3, 4, 5), 2, i.unsqueeze(2), 1.0),
    indices(5, 3, 4),
    name="one hot",
    dtypes=(f32,),
)

# Views, between two kernels.
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "permute": lambda v: v.permute(2, 0, 1),
    "transpose": lambda v: v.transpose(0, -1),
    "t": lambda v: v[0].t(),
    "view": lambda v: v.view(-1, v.shape[2]),
    "reshape": lambda v: v.transpose(0, 1).reshape(-1),
    "split": lambda v: v.view(v.shape[0], 7, 2, 2),
    "unsqueeze": lambda v: v.unsqueeze(1),
    "squeeze": lambda v: v[:, :1].squeeze(1),
    "expand": lambda v: v[:, :1].expand(v.shape[0], 7, v.shape[2]),
    "slice": lambda v: v[1:4, ::2, -3:],
    "select": lambda v: v[:, -2],
}
for label, view in VIEWS.items():
    add(
        "views",
        lambda v, view=view: view(v * 2).exp() + 1,
        shaped(5, 7, 4),
        name=label,
        ulp=FUNCTION,
        layouts=DENSE,
    )

# What has no arithmetic is converted all the same.
STORED = (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2)


def small(dtype: torch.dtype) -> torch.Tensor:
    """Numbers that are the same in every dtype, but for their sign."""
    return torch.arange(91).remainder(7).reshape(SHAPE).to(dtype)


for stored in STORED:
    for other in (*ALL, *STORED):
        copy = n(aten._to_copy, dtype=other)
        add("stored", copy, small, dtypes=(stored,), layouts=(strided,))
    add("stored", n(aten._to_copy, dtype=stored), small, dtypes=ALL, layouts=DENSE)
    add("stored", aten.clone, small, dtypes=(stored,))

# Running values: to the last bit, since every addition has its place.
for dim in (0, 1):
    for op in (aten.cumsum, aten.cumprod):
        add("running", n(op, dim), x, dtypes=ALL)
    add("running", n(aten.logcumsumexp, dim), tame, dtypes=(f32, f64, bf16), relative=SUM)
    add("running", n(aten.logcumsumexp, dim), x, dtypes=(f32, bf16), relative=SUM)
for op in (aten.cummax, aten.cummin):
    add("running", n(op, 0), x, dtypes=ALL)
    add("running", n(op, 1), x, dtypes=(*INTEGERS, torch.bool))
add("running", n(aten.cumsum, 1, dtype=f64), x, dtypes=(f32, bf16, torch.int32))
add("running", n(aten.cumprod, -1, dtype=torch.int32), tame, dtypes=(torch.int64, torch.uint8))
for shape in ((3, 5, 7), (2, 300), (150, 70), (1, 9)):
    for dim in range(len(shape)):
        add("running", n(aten.cumsum, dim), shaped(*shape))
        if math.prod(shape[dim + 1 :]) > 1:
            add("running", n(aten.cummax, dim), shaped(*shape), dtypes=(f32,))


def distribution(v: torch.Tensor, dim: int) -> Any:
    """Top-p sampling's: what the sum runs over is a reduction's result."""
    return v.softmax(dim).cumsum(dim) > 0.5


# What is fused with a running value, on both sides, and what can't be.
AROUND_RUNNING: dict[str, Callable[..., Any]] = {
    "in place": lambda v: (v * 2 + 1).cumsum(0) * v.flip(0) + v,
    "in place, innermost": lambda v: (v.flip(1) - 1).cumsum(1) * v.sum(1, keepdim=True) + v,
    "functions": lambda v: v.sin().cumsum(0).cos() + v.cos().cumsum(1).sin(),
    "backwards": lambda v: v.flip(0).cumsum(0).flip(0) + v.flip(1).cumsum(1).flip(1),
    "elsewhere": lambda v: (v.cumsum(0)[1:] - v.cumsum(0)[:-1], v.cumsum(1).t() + 1),
    "reduced": lambda v: (v.cumsum(0).amax(0), v.cumsum(1).sum(1), v.cumsum(0).softmax(0)),
    "twice": lambda v: v.cumsum(0).cumsum(1).cumsum(0),
    "side by side": lambda v: v.cumsum(0) * v.cummax(0).values + v.cumprod(0),
    "two results": lambda v: [part + 1 for part in (v * 2).cummin(0)],
    "reshaped": lambda v: v.cumsum(0).reshape(-1) * 2 + v.reshape(1, -1).squeeze(0).neg(),
    "padded": lambda v: torch.nn.functional.pad(v.cumsum(1), (1, 0)) + 1,
    "gathered": lambda v: v.cumsum(0).gather(0, v.cummax(0).indices) + 1,
    "broadcast": lambda v: v[:1].expand_as(v).cumsum(0) + v[:, :1].cumsum(0),
    "distribution": lambda v: (distribution(v, 0), distribution(v, 1)),
}
for label, around in AROUND_RUNNING.items():
    for shape in ((7, 13), (70, 34)):
        add(
            "around running",
            around,
            shaped(*shape),
            dtypes=(f32,),
            name=label,
            relative=SUM,
            layouts=DENSE,
        )


# Complex numbers. Eager's vector loops round each product, its scalar loops, which take
# what is strided and the rest of a row, only the sum of two: whole vectors are compared
# exactly, and all else as sums are.
C_REAL = {f32: 1e-6, f64: 2e-15}
C_SUM = {C64: 1e-6, C128: 2e-15}


def vectors(seed: int, specials: bool = True) -> Callable[..., torch.Tensor]:
    return lambda dtype: tensor(dtype, (8, 16), seed=seed, specials=specials)


for op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.addcmul):
    count = 3 if op is aten.addcmul else 2
    add("complex", op, *(vectors(i) for i in range(count)), dtypes=COMPLEX, layouts=DENSE)
    tames = [lambda d, i=i: tensor(d, seed=i, specials=False) for i in range(count)]
    add("complex", op, *tames, dtypes=COMPLEX, relative=C_SUM)
    add("complex", op, vectors(0), *[of(f32, 8, 16)] * (count - 1), dtypes=COMPLEX, layouts=DENSE)
for op in (aten.add, aten.sub, aten.mul, aten.div):
    for number in (3, 1.3001, 1.5 - 0.5j):
        add("complex", n(op, number), vectors(0), dtypes=COMPLEX, layouts=DENSE)
    add("complex", n(op, 1.5 - 0.5j), tame, dtypes=COMPLEX, relative=C_SUM)
for op in (aten.add, aten.sub, aten.rsub):
    for alpha in (2, 1.5 - 0.5j):
        call = n(op, alpha=alpha)
        add("complex", call, vectors(0), vectors(1), dtypes=COMPLEX, layouts=DENSE)
for op in (aten.square, n(aten.pow, 2)):
    add("complex", op, vectors(0), dtypes=COMPLEX, layouts=DENSE)
for op in (aten.neg, aten.reciprocal, aten.conj_physical, aten.clone):
    add("complex", op, x, dtypes=COMPLEX)
add("complex", n(aten.mul, 2j), vectors(0), dtypes=FLOATS[:1], layouts=DENSE)
for op in (aten.abs, aten.sgn):
    add("complex", op, tame, dtypes=COMPLEX, ulp={f32: 2, f64: 2, C64: 2, C128: 3})
add("complex", aten.abs, x, dtypes=COMPLEX, ulp=FUNCTION)
add("complex", aten.angle, x, dtypes=COMPLEX, ulp=FUNCTION, layouts=DENSE)
add("complex", aten.exp, tame, dtypes=COMPLEX, ulp={C64: 2, C128: 4})
add("complex", aten.exp, lambda d: tensor(d, low=-720, high=720), dtypes=COMPLEX[1:], ulp={C128: 6})
add("complex", n(aten.addcdiv, value=2), tame, positive, tame, dtypes=COMPLEX, relative=C_SUM)
for op in (aten.eq.Tensor, aten.ne.Tensor, aten.logical_and, aten.logical_or):
    add("complex", op, x, y, dtypes=COMPLEX)
add("complex", n(aten.eq, 0.5 - 0.5j), x, dtypes=COMPLEX)
for op in (aten.isnan, aten.isinf, aten.logical_not):
    add("complex", op, x, dtypes=COMPLEX)
for op in (aten.sum, n(aten.sum, [0]), n(aten.sum, [1], True), aten.mean, n(aten.mean, [1])):
    add("complex", op, tame, dtypes=COMPLEX, relative={C64: 2e-6, C128: 1e-14})
short = lambda d: tensor(d, low=-1, high=1, specials=False)  # noqa: E731
for op in (aten.prod, n(aten.prod, 0), n(aten.prod, 1), n(aten.cumsum, 0), n(aten.cumprod, 1)):
    add("complex", op, short, dtypes=COMPLEX, relative={C64: 2e-6, C128: 1e-14})
# Eager's own are off by an ulp or two, and those of f64 by more where terms cancel.
for function in "cos cosh log log10 log2 sin sinh sqrt tan tanh".split():
    op = getattr(aten, function)
    for operand, layouts in ((vectors(0), DENSE), (tame, None)):
        ulp = {C64: 4, C128: 4}
        add("static complex", op, operand, dtypes=COMPLEX, ulp=ulp, layouts=layouts)
for op in (aten.expm1, aten.log1p):
    add("complex", op, tame, dtypes=COMPLEX, relative={C64: 1e-6, C128: 2e-15})
for function in "acos acosh asin asinh atan atanh".split():
    op = getattr(aten, function)
    add("static arcs", op, vectors(0), dtypes=COMPLEX[:1], ulp={C64: 8}, layouts=DENSE)
    add("static arcs", op, tame, dtypes=COMPLEX[:1], ulp={C64: 8})
for op in (aten.rsqrt, aten.sigmoid, aten.silu):
    add("complex", op, tame, dtypes=COMPLEX, relative={C64: 2e-6, C128: 1e-14})
C_POWER = {C64: 1e-5, C128: 1e-13}
for number in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 1.5 - 0.5j):
    add("complex", n(aten.pow.Tensor_Scalar, number), tame, dtypes=COMPLEX, relative=C_POWER)
    base = with_numbers(lambda v, number: aten.pow.Scalar(number, v), number)
    label = f"{number} ** z"
    add("complex", base, short, dtypes=COMPLEX, relative=C_POWER, name=label, layouts=DENSE)
add("complex", aten.pow.Tensor_Tensor, tame, short, dtypes=COMPLEX, relative=C_POWER)
add("complex", aten.complex, x, y, dtypes=(f32, f64))
add("complex", aten.polar, tame, positive, dtypes=(f32, f64), ulp={C64: 2, C128: 2})
add("complex", aten.where.self, mask, x, y, dtypes=COMPLEX)
add("complex", n(aten.masked_fill, 2.5), x, mask, dtypes=COMPLEX)
add("complex", n(aten._to_copy, dtype=C128), x, dtypes=COMPLEX[:1])
add("complex", n(aten._to_copy, dtype=C64), x, dtypes=(*COMPLEX[1:], f32, torch.int64))
add("complex", n(aten._to_copy, dtype=torch.bool), x, dtypes=COMPLEX)
add("complex", lambda a, b: aten.cat([a, b], 1), x, y, dtypes=COMPLEX, name="cat", layouts=DENSE)
add("complex", lambda a: aten.constant_pad_nd(a, [1, 2], 0.5), x, dtypes=COMPLEX, name="pad")
add("complex", n(aten.flip, [0]), x, dtypes=COMPLEX)
add("complex", aten.tril, x, dtypes=COMPLEX)
add("complex", n(aten.full_like, 1.5), x, dtypes=COMPLEX)
add("complex", lambda a, i: a[i], x, indices(7, 5), dtypes=COMPLEX, name="index", layouts=DENSE)
# Lazily conjugated and negated views, and parts, are read as they are.
add(
    "complex",
    lambda a, b: a.conj() * b + 1,
    tame,
    positive,
    dtypes=COMPLEX,
    name="conj",
    relative=C_SUM,
)
add("complex", lambda a: a.imag + a.real * 2, x, dtypes=COMPLEX, name="parts")
add("complex", lambda a: a.conj().imag * 3, x, dtypes=COMPLEX, name="negated", layouts=DENSE)
add(
    "complex",
    lambda a, b: (a * b).real + 1,
    tame,
    positive,
    dtypes=COMPLEX,
    name="part",
    relative=C_REAL,
)

# --- The comparison -------------------------------------------------------------------


# A graph's output that is a view needs the operator itself.
VIEW_OPERATORS = {"aten::view", "aten::permute", "aten::expand", "aten::detach"}
VIEW_OPERATORS |= {"aten::view_as_real", "aten::_conj"}


def ordered(v: torch.Tensor) -> torch.Tensor:
    """Floats as integers in their order, neighbours 1 apart."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[v.element_size()]
    bits = v.contiguous().view(integer).to(torch.int64)
    least = torch.iinfo(integer).min
    return torch.where(bits < 0, least - bits, bits)


def difference(case: Case, got: torch.Tensor, want: torch.Tensor) -> str:
    """What is wrong with a result; empty when nothing is."""
    if (got.dtype, got.shape, got.stride()) != (want.dtype, want.shape, want.stride()):
        return (
            f"is {got.dtype} {tuple(got.shape)} {got.stride()}, "
            f"not {want.dtype} {tuple(want.shape)} {want.stride()}"
        )
    if want.dtype.is_complex:
        of_parts = dataclasses.replace(
            case,
            ulp={dtype.to_real(): allowed for dtype, allowed in case.ulp.items()},
            relative={dtype.to_real(): allowed for dtype, allowed in case.relative.items()},
        )
        parts = ((a.resolve_conj().real, a.resolve_conj().imag) for a in (got, want))
        problems = (difference(of_parts, *pair) for pair in zip(*parts, strict=True))
        return next(filter(None, problems), "")
    if want.dtype in STORED:
        wrong = got.contiguous().view(torch.uint8) != want.contiguous().view(torch.uint8)
    elif not want.dtype.is_floating_point:
        wrong = got != want
    else:
        same = (got == want) | (got.isnan() & want.isnan())
        near = torch.zeros_like(same)
        finite = got.isfinite() & want.isfinite()
        if allowed := case.ulp.get(want.dtype):
            near = finite & ((ordered(got) - ordered(want)).abs() <= allowed)
            # Some of eager's functions flush denormal results; ours don't.
            tiny = torch.finfo(want.dtype).tiny
            near |= (want == 0) & (got.abs() < 2 * tiny)
        if (relative := case.relative.get(want.dtype)) and finite.any():
            scale = want[finite].abs().max().to(f64)
            near |= finite & ((got.to(f64) - want.to(f64)).abs() <= relative * scale)
        wrong = ~(same | near)
    if not wrong.any():
        return ""
    if want.dtype in STORED:
        return f"{got} instead of {want}"
    place = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} differ, "
        f"first at {place}: {got[place].item()!r}, not {want[place].item()!r}"
    )


def flatten(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def run_all(cases: list[Case], operands: list[list[tuple[torch.Tensor, ...]]]) -> list[Any]:
    return [
        [case.call(*variant) for variant in variants]
        for case, variants in zip(cases, operands, strict=True)
    ]


def with_symbolic_sizes(operands: list[tuple[torch.Tensor, ...]]) -> list[tuple[torch.Tensor, ...]]:
    """The same operands, all of whose sizes are symbols where the operator lets them."""
    marked = [tuple(v.detach() for v in variant) for variant in operands]
    for v in itertools.chain.from_iterable(marked):
        for dim, size in enumerate(v.shape):
            if size > 1:
                torch._dynamo.maybe_mark_dynamic(v, dim)
    return marked


def compare(cases: list[Case], got: list[Any], want: list[Any], mode: str) -> list[str]:
    problems = []
    for case, ours, theirs in zip(cases, got, want, strict=True):
        for operands, result, expected in zip(case.operands, ours, theirs, strict=True):
            for i, (a, b) in enumerate(zip(flatten(result), flatten(expected), strict=True)):
                if problem := difference(case, a, b):
                    kinds = ", ".join(f"{v.dtype} {tuple(v.stride())}" for v in operands)
                    problems.append(f"{mode}: {case.name}({kinds}) result {i} {problem}")
    return problems


# PyTorch's fake implementations of some operators take no symbolic sizes.
RUNS = [
    pytest.param(group, dynamic, id=f"{group}-{'dynamic' if dynamic else 'static'}")
    for group in GROUPS
    for dynamic in (False, True)
    if not (dynamic and group.startswith("static "))
]


@pytest.mark.parametrize(("group", "dynamic"), RUNS)
def test_lowerings(group: str, dynamic: bool) -> None:
    cases = GROUPS[group]
    if dynamic:
        # Sizes and dtypes have nothing to do with each other: one dtype is enough.
        cases = [
            dataclasses.replace(case, operands=with_symbolic_sizes(case.operands[:2]))
            for case in cases
        ]
    operands = [case.operands for case in cases]
    want = run_all(cases, operands)
    unfused_results: list[torch.Tensor] = []

    def compile_both(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        # Tracing takes far longer than compiling: one graph for both ways.
        fused, unfused = (
            intarsia.backend._compile_graph(
                gm,
                inputs,
                kind="inference",
                stem="lowerings",
                settings=Options(fuse=fuse),
                user_names=(),
            )
            for fuse in (True, False)
        )

        def run(arguments: list[Any]) -> Any:
            unfused_results.extend(unfused(list(arguments)))
            return fused(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    compiled = torch.compile(
        lambda given: run_all(cases, given),
        backend=aot_autograd(
            fw_compiler=compile_both,
            inference_compiler=compile_both,
            decompositions=decompositions.table(),
        ),
        fullgraph=True,
    )
    with intarsia.backend.record_compilations() as compilations:
        got = compiled(operands)
    problems = compare(cases, got, want, "fused")
    _, structure = pytree.tree_flatten(want)
    problems += compare(cases, pytree.tree_unflatten(unfused_results, structure), want, "unfused")
    program = compilations[0].program
    assert program.kernel_count > 0
    # With symbolic sizes, types don't always say that sizes are equal.
    if not dynamic:
        problems += stray_calls(program.plan_text)
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems[:40])


# --- What must not stay a call ----------------------------------------------------------


def stray_calls(plan: str) -> list[str]:
    """What runs through the dispatcher all the same; views may."""
    called = {
        line.split(" call ")[1].split("(")[0] for line in plan.splitlines() if " call " in line
    }
    return [f"{name} is still called" for name in sorted(called - VIEW_OPERATORS)]


def test_functions_of_gamma_within_two_ulp() -> None:
    """Over all exponents, and densely where the functions have zeros and poles."""
    bits = torch.arange(-(2**31), 2**31, 40_009, dtype=torch.int64).to(torch.int32)
    near = torch.cat([torch.linspace(-12, 12, 400_001), torch.linspace(0.9, 2.6, 400_001)])
    values = torch.cat([bits.view(f32), near])
    functions = (torch.lgamma, torch.digamma)
    compiled = torch.compile(lambda v: [f(v) for f in functions], backend="intarsia")
    for function, got in zip(functions, compiled(values), strict=True):
        exact = function(values.double())
        same = (got == exact.float()) | (got.isnan() & exact.isnan())
        unit = torch.ldexp(torch.ones_like(exact), exact.frexp().exponent.clamp(min=-125) - 24)
        error = ((got.double() - exact).abs() / unit)[~same]
        assert not error.numel() or error.max() <= 2, (function, error.max())


def test_nothing_is_rolled(tmp_path: Path) -> None:
    class Roll(torch.nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.roll(3, 0) + 1

    sizes = ({0: torch.export.Dim("rows", min=0, max=100)},)
    program = torch.export.export(Roll(), (torch.ones(5, 2),), dynamic_shapes=sizes)
    compiled = intarsia.load(intarsia.aot_compile(program, tmp_path / "roll.pt2"))
    for rows in (0, 1, 3, 40):
        v = torch.arange(2.0 * rows).view(rows, 2)
        assert torch.equal(compiled(v), Roll()(v))


def test_loss_of_rows_that_are_other_products() -> None:
    """The types do not say that two products of sizes are equal; guards do."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def run(function: Callable[..., Any], a: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(a, b, 11, generator=generator, requires_grad=True)
        labels = torch.randint(0, 11, (b, a), generator=generator)
        labels[0, 0] = -100
        result = function(logits, labels)
        result.backward()
        return result.detach(), logits.grad

    compiled = torch.compile(loss, backend="intarsia", dynamic=True, fullgraph=True)
    with intarsia.backend.record_compilations() as compilations:
        for sizes in ((3, 5), (7, 2)):
            torch.testing.assert_close(run(compiled, *sizes), run(loss, *sizes))
    assert len(compilations) == 2
    for compilation in compilations:
        assert not stray_calls(compilation.program.plan_text)


class Tied(torch.nn.Module):
    """Words in and out by one table; the rest of it multiplies by powers of two."""

    def __init__(self, padding: int | None, words: int = 1024) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, 256, padding_idx=padding)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.words(tokens) * 2, self.words.weight) * 0.5


@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize(
    ("words", "shape", "is_folded"),
    [(1024, (2, 50), True), (1024, (7,), True), (1024, (2, 200), False), (512, (8,), False)],
)
def test_gradients_of_tied_embeddings(compile_with, fuse, padding, words, shape, is_folded):
    torch.manual_seed(0)
    model = Tied(padding, words)
    # Many positions of a few words: their rows are added up as eager does.
    tokens = torch.randint(0, 6, (*shape[:-1], shape[-1] + 1))
    tokens[..., :3] = torch.tensor([words - 1, 3, words - 1])
    tokens = tokens[..., :-1]
    weights = torch.randn(*shape, words)

    def gradient(run: Any) -> torch.Tensor:
        model.words.weight.grad = None
        (run(tokens) * weights).sum().backward()
        assert model.words.weight.grad is not None
        return model.words.weight.grad

    want = gradient(model)
    with intarsia.record_compilations() as compilations:
        got = gradient(compile_with(model, options={"products": "eager"}))  # equal bits
    assert torch.equal(got, want)
    plans = "".join(c.program.plan_text for c in compilations)
    assert ("embedding_dense_backward" not in plans) == (fuse and is_folded)


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "calls"])
def test_strides_of_gradients_of_dropout(fuse):
    """PyTorch's fake of its gradient says contiguous; the kernel keeps the strides."""

    def f(x):
        return x.sin() * torch.nn.functional.dropout(x.t(), 0.3).t()

    x = torch.randn(4, 6, requires_grad=True)
    gradients = []
    for run in (f, torch.compile(f, backend="intarsia", options={"fuse": fuse})):
        torch.manual_seed(0)
        gradients += torch.autograd.grad(run(x).sum(), x)
    torch.testing.assert_close(gradients[1], gradients[0], check_stride=True)


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "calls"])
def test_gradients_of_products_with_numbers(fuse):
    """Autograd takes the conjugate of the number, a call without a tensor."""

    def f(x):
        return torch.view_as_real(torch.fft.rfft(x) * 2j)

    x = torch.randn(4, 6, requires_grad=True)
    compiled = torch.compile(f, backend="intarsia", options={"fuse": fuse})
    weights = torch.randn(4, 4, 2)
    got, want = (torch.autograd.grad((run(x) * weights).sum(), x) for run in (compiled, f))
    torch.testing.assert_close(got, want)
