# ===- decompositions.py - What AOTAutograd takes apart for us --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Operators that are taken apart before the compiler sees them.

Where PyTorch's fake implementation says something else than the CPU kernel does, so
that the traced graph itself would be wrong, and where one operator does both what must
be a call and what belongs in a kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _is_mixed(x: Tensor, *parameters: Tensor | None) -> bool:
    """A low-precision input on the CPU with float32 parameters."""
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.bfloat16, torch.float16)
        and any(p is not None and p.dtype == torch.float32 for p in parameters)
    )


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    # The kernel returns float32 statistics, the fake promises x's dtype.
    if not _is_mixed(x, weight, bias):
        return NotImplemented
    y, mean, rstd = aten.native_layer_norm(x.float(), shape, weight, bias, eps)
    return y.to(x.dtype), mean, rstd


def _native_layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> Any:
    if not _is_mixed(x, weight, bias):
        return NotImplemented
    grad_x, grad_weight, grad_bias = aten.native_layer_norm_backward(
        grad.float(), x.float(), shape, mean, rstd, weight, bias, output_mask
    )
    return None if grad_x is None else grad_x.to(x.dtype), grad_weight, grad_bias


def _native_group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n: Any,
    channels: Any,
    inner: Any,
    groups: int,
    output_mask: list[bool],
) -> Any:
    # One kernel would sum over the elements of a channel for each of the results, and
    # again for the group; taken apart, what PyTorch's own kernel sums once is a tensor.
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    if (
        x.device.type != "cpu"
        or not x.is_contiguous()
        or grad.dtype != x.dtype
        or channels % groups != 0
        or any(guard_or_false(size == 0) for size in (n, channels, inner))
    ):
        return NotImplemented
    dtype = torch.promote_types(x.dtype, torch.float32)
    each = channels // groups
    dy = grad.reshape(n, channels, inner).to(dtype)
    wide = x.view(n, channels, inner).to(dtype)
    # (channel sums) as n x groups x channels of a group
    products, sums = (t.sum(2).view(n, groups, each) for t in (dy * wide, dy))
    center, scale = (t.to(dtype).view(n, groups, 1) for t in (mean, rstd))
    gamma = None if weight is None else weight.to(dtype).view(1, groups, each)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = [t if gamma is None else t * gamma for t in (products, sums)]
        product, total = (t.sum(2, keepdim=True) for t in scaled)
        part = 1.0 / (each * inner)
        b = (total * center - product) * scale * scale * scale * part
        c = -b * center - total * scale * part
        a = scale if gamma is None else scale * gamma
        a, b, c = (t.expand(n, groups, each).reshape(n, channels, 1) for t in (a, b, c))
        grad_x = (a * dy + b * wide + c).to(x.dtype).view(x.shape)
    if output_mask[1]:
        grad_weight = ((products - sums * center) * scale).sum(0).view(channels)
    if output_mask[2]:
        grad_bias = sums.sum(0).view(channels)
    kind = x.dtype if weight is None else weight.dtype
    return grad_x, *(None if t is None else t.to(kind) for t in (grad_weight, grad_bias))


def _constant_pad_nd(x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    # Where nothing is added, the kernel copies a slice, which keeps the order of its
    # strides. With symbolic numbers the fake promises a contiguous result.
    if not any(isinstance(p, torch.SymInt) for p in pad):
        return NotImplemented
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    if not all(guard_or_false(p <= 0) for p in pad):
        return NotImplemented
    for i, dim in enumerate(range(x.dim() - 1, x.dim() - 1 - len(pad) // 2, -1)):
        low, high = pad[2 * i], pad[2 * i + 1]
        x = x.narrow(dim, -low, x.shape[dim] + low + high)
    return x.clone()


def _batch_norm(x: Tensor, *arguments: Any) -> Any:
    # As with layer norm: the statistics are float32.
    if not _is_mixed(x, *(p for p in arguments if isinstance(p, Tensor))):
        return NotImplemented
    op = aten._native_batch_norm_legit_functional.default
    y, *statistics = op(x.float(), *arguments)
    return y.to(x.dtype), *statistics


def _native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    # As the CPU kernel: the mask is drawn, everything else is arithmetic. It draws in
    # the order of x's memory, `bernoulli` in that of a contiguous tensor.
    draws = train is not False and x.device.type == "cpu" and x.is_floating_point()
    if not draws or not x.is_contiguous():
        return NotImplemented
    keep = 1.0 - p
    # Not `empty_like`, which would be a reader of x.
    mask = aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool, device=x.device), keep)
    return x * mask * (0.0 if keep == 0 else 1.0 / keep), mask


def _native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Any:
    # The CPU's kernel; the fake promises contiguous results whatever the strides.
    return grad * mask * scale if grad.device.type == "cpu" else NotImplemented


_inside_embedding_bag = threading.local()


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    # Sums of bfloat16 leave the second result empty, as those of float32 do; the fake
    # promises the bag of each index. The gradient computes what is empty.
    if (
        getattr(_inside_embedding_bag, "active", False)
        or weight.device.type != "cpu"
        or weight.dtype is not torch.bfloat16
        or mode != 0
        or padding_idx >= 0
        or weight.stride(1) != 1
        or (per_sample_weights is not None and per_sample_weights.stride(0) != 1)
    ):
        return NotImplemented
    _inside_embedding_bag.active = True
    try:
        result, _, sizes, maxima = aten._embedding_bag(
            weight,
            indices,
            offsets,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
    finally:
        _inside_embedding_bag.active = False
    return result, offsets.new_empty(0), sizes, maxima


def _fma(a: Tensor, b: Tensor | float, c: Tensor) -> Tensor:
    # What the operator's own kernel computes; Dynamo writes it for `addcmul_`, with
    # a number in the place of a tensor, which the dispatcher does not take.
    return a * b + c


#: Of `_foreach_NAME`, those that the CPU computes tensor by tensor: the operator it calls.
_FOREACH = {
    **{
        name: name
        for name in """
        abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min copy cos cosh div erf erfc
        exp expm1 floor frac lerp lgamma log log10 log1p log2 mul neg pow reciprocal round
        rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
        """.split()
    },
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "norm": "linalg_vector_norm",
    "zero": "zeros_like",
}


def _of_each(op: Any) -> Callable[..., Any]:
    def decomposed(*arguments: Any, **keywords: Any) -> Any:
        lists = [a for a in arguments if isinstance(a, (list, tuple))]
        if any(t.device.type != "cpu" for each in lists for t in each if isinstance(t, Tensor)):
            return NotImplemented
        count = len(lists[0])
        spread = [a if isinstance(a, (list, tuple)) else [a] * count for a in arguments]
        return [op(*each, **keywords) for each in zip(*spread, strict=True)]

    return decomposed


def _weighted(op: Any) -> Callable[..., Any]:
    """addcmul, addcdiv: their last argument has no position."""
    return lambda x, a, b, value=1: op(x, a, b, value=value)


def _norm(op: Any) -> Callable[..., Any]:
    return lambda x, order=2, dtype=None: op(x, order, None, False, dtype=dtype)


def _foreach() -> dict[Any, Callable[..., Any]]:
    result = {}
    for name, each in _FOREACH.items():
        op = getattr(aten, each)
        if name.startswith("addc"):
            op = _weighted(op)
        elif name == "norm":
            op = _norm(op)
        packet = getattr(aten, f"_foreach_{name}")
        for overload in packet.overloads():
            schema = getattr(packet, overload)._schema
            # The number of a tensor is read first, which a graph can't.
            reads = any(a.name == "scalars" and str(a.type) == "Tensor" for a in schema.arguments)
            if not overload.endswith("out") and not reads:
                result[getattr(packet, overload)] = _of_each(op)
    return result


def table() -> dict[Any, Callable[..., Any]]:
    """The decompositions, by operator."""
    result: dict[Any, Callable[..., Any]] = {
        aten._embedding_bag.default: _embedding_bag,
        aten.constant_pad_nd.default: _constant_pad_nd,
        aten._native_batch_norm_legit_functional.default: _batch_norm,
        aten.native_dropout.default: _native_dropout,
        aten.native_dropout_backward.default: _native_dropout_backward,
        aten.native_group_norm_backward.default: _native_group_norm_backward,
        aten.native_layer_norm.default: _native_layer_norm,
        aten.native_layer_norm_backward.default: _native_layer_norm_backward,
        **_foreach(),
    }
    # Registered when Dynamo first needs it.
    if hasattr(torch.ops.prims, "fma"):
        result[torch.ops.prims.fma.default] = _fma
    return result
