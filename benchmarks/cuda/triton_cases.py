# ===- triton_cases.py - Programs that launch kernels of Triton ------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""User kernels: compiled where the programs are prepared, launched by the plan.

Where they are measured Triton need not be: each has a reference in PyTorch's operators.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _scaled_sum(x, y, out, count, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside) + factor * tl.load(y + places, mask=inside)
    tl.store(out + places, value, mask=inside)


@triton.jit
def _row_norm(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < columns
    value = tl.load(x + row * columns + place, mask=inside, other=0.0)
    total = tl.sum(value * value, 0)
    tl.store(out + row * columns + place, value / tl.sqrt(total + 1.0), mask=inside)


@torch.library.triton_op("intarsia_bench::scaled_sum", mutates_args=())
def scaled_sum(x: Tensor, y: Tensor, factor: float) -> Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(_scaled_sum)[(triton.cdiv(x.numel(), 1024),)](
        x, y, out, x.numel(), factor, BLOCK=1024
    )
    return out


@torch.library.triton_op("intarsia_bench::row_norm", mutates_args=())
def row_norm(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(_row_norm)[(x.shape[0],)](
        x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1])
    )
    return out


def _sum(x: Tensor, y: Tensor) -> Tensor:
    return scaled_sum(x.exp(), y, 0.5) * 2


def _norm(x: Tensor) -> Tensor:
    return row_norm(x * 2) + 1


#: By the names of `kernels.TRITON`.
PROGRAMS = {"triton pointwise": _sum, "triton rows": _norm}
