"""Triton kernels. Triton reads their source, so they stand in a file of their own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside)
    tl.store(out + places, value, mask=inside)


@triton.jit
def scale_rows(x, stride, rows, columns, factor, one, flag, BLOCK: tl.constexpr):
    """In place: what shared memory, a sum over a row, a function that comes with data and
    each kind of number are for."""
    row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if row >= rows:
        return
    place = tl.arange(0, BLOCK)
    inside = place < columns
    value = tl.load(x + row * stride + place, mask=inside, other=0.0)
    total = tl.sqrt(tl.sum(value, 0))
    if flag:
        value = value * factor
    tl.store(x + row * stride + place, value + total * one, mask=inside)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 256})],
    key=["count"],
)
@triton.jit
def double(x, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, 2 * tl.load(x + places, mask=inside), mask=inside)


@torch.library.triton_op("triton_kernels::add", mutates_args=())
def add_op(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, y, out, x.numel(), BLOCK=64, num_warps=2
    )
    return out


@torch.library.triton_op("triton_kernels::scale_rows_", mutates_args=("x",))
def scale_rows_op(x: Tensor, factor: float) -> None:
    rows, columns = x.shape
    torch.library.wrap_triton(scale_rows)[(triton.cdiv(rows, 4), 4)](
        x, x.stride(0), rows, columns, factor, 1, True, BLOCK=triton.next_power_of_2(columns)
    )


@torch.library.triton_op("triton_kernels::double", mutates_args=())
def double_op(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(double)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, out, x.numel()
    )
    return out


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_ctas=2)], key=[])
@triton.jit
def clustered(x, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < count), mask=places < count)


@torch.library.triton_op("triton_kernels::clustered", mutates_args=())
def clustered_op(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(clustered)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel())
    return out
