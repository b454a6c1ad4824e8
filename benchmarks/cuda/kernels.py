# ===- kernels.py - A program for each kind of kernel ---------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What a GPU has to show for itself: one function for each way to compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = tuple[Callable[..., Any], tuple[Tensor, ...]]


class Function(nn.Module):
    """A function as a module, which export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(*arguments)


def wave(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values in (-2, 2) that depend on the place alone."""
    count = 1
    for extent in size:
        count *= extent
    return (
        (torch.arange(count, dtype=torch.float64) * 0.7548776662)
        .frac()
        .mul(4)
        .sub(2)
        .reshape(size)
        .to(dtype)
    )


def places(count: int, limit: int) -> Tensor:
    return (torch.arange(count) * 2654435761) % limit


def _chain(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x * y + 1) - torch.exp(-(x**2))


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(x), -1)


def _norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x * 2, x.shape[-1:], w, w)


def _scatter(x: Tensor, i: Tensor) -> Tensor:
    return torch.zeros(97, x.shape[1], device=x.device).index_add(0, i, x.sin())


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        name = str(dtype).removeprefix("torch.")
        x, y = wave(1023, 1025, dtype=dtype), wave(1025, dtype=dtype)
        cases[f"pointwise {name}"] = (_chain, (x, x.flip(0)))
        cases[f"broadcast {name}"] = (_chain, (x, y))
        cases[f"layer norm {name}"] = (_norm, (x, y))
    for columns in (3, 33, 1000, 4096, 50257):
        rows = max(1, 1_000_000 // columns)
        cases[f"softmax of {columns}"] = (_softmax, (wave(rows, columns),))
    x = wave(1024, 768)
    one: dict[str, Callable[[Tensor], Any]] = {
        "row sums": lambda x: (x * x).sum(-1),
        "column sums": lambda x: (x * x).sum(0),
        "whole sum": lambda x: (x * x).sum(),
        "few long rows": lambda x: x.reshape(4, -1).exp().sum(-1),
        "row extrema": lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1)),
        "variance": lambda x: torch.var_mean(x, -1),
        "log softmax": lambda x: torch.log_softmax(x, -1),
        "rms norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        "any, all": lambda x: ((x > 1.9).any(-1), (x < 1.9).all(-1)),
        "cumsum": lambda x: x.cumsum(-1),
        "cumsum of columns": lambda x: x.cumsum(0),
        "running maximum": lambda x: x.cummax(-1),
        "transposed copy": lambda x: (x.t() * 2).contiguous(),
        "transposed sum": lambda x: x.t() + x.reshape(x.shape[1], -1) * 2,
        "transposed twice": lambda x: (y := x.t() * 2, y.contiguous()),
        "channels last": lambda x: x.reshape(4, 64, 48, -1).permute(0, 2, 3, 1).relu().contiguous(),
        "concatenation": lambda x: torch.cat([x.sin(), x.cos()], -1),
        "padding": lambda x: F.pad(x.exp(), (1, 2, 3, 4)),
        "integers": lambda x: ((x * 100).long() % 7, (x * 9).int() // 4),
        "bool": lambda x: torch.where((x > 0) & (x < 1), x, -x),
        "functions": lambda x: (x.erf(), x.sigmoid(), x.abs().log1p(), x.sin(), x.atan()),
        "factories": lambda x: (
            x + torch.arange(x.shape[1], device=x.device) + torch.ones(()).item()
        ),
        "fp8": lambda x: x.to(torch.float8_e4m3fn).float() * 2,
        "fp8 e5m2": lambda x: (x * 1000).to(torch.float8_e5m2).half() + 1,
        "group norm": lambda x: F.group_norm(x.reshape(8, 64, -1), 8),
        "batch statistics": lambda x: x.reshape(8, 64, -1).mean((0, 2)),
    }
    for name, function in one.items():
        cases[name] = (function, (x,))
    for dtype in (torch.bfloat16, torch.float16, torch.int8):
        name = f"transposed {str(dtype).removeprefix('torch.')}"
        cases[name] = (lambda x: (x.mT + 1).contiguous(), (wave(8, 513, 500, dtype=dtype),))
    long = wave(1_000_003)
    cases["mean of a prime number"] = (lambda x: x.mean(), (long,))
    cases["extrema of all"] = (lambda x: (x.amax(), x.amin()), (long,))
    cases["sums of long columns"] = (
        lambda x: (x.float() * 2).sum(0),
        (wave(40_000, 96, dtype=torch.bfloat16),),
    )
    cases["embedding"] = (F.embedding, (places(5000, 1024), x))
    cases["gather"] = (
        lambda x, i: x.gather(0, i.expand(-1, x.shape[1])),
        (x, places(512, 1024)[:, None]),
    )
    cases["index select"] = (lambda x, i: x[i] * 2, (x, places(999, 1024)))
    cases["scatter add"] = (_scatter, (x, places(1024, 97)))
    cases["cross entropy"] = (F.cross_entropy, (x, places(1024, 768)))
    cases["linear and gelu"] = (lambda x, w: F.gelu(F.linear(x, w)), (x, wave(512, 768)))
    return cases


CASES = _cases()


def _scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    return (x.exp() + 0.5 * y) * 2


def _row_norm(x: Tensor) -> Tensor:
    y = x * 2
    return y / torch.sqrt((y * y).sum(-1, keepdim=True) + 1) + 1


#: What the programs of triton_cases.py compute, in PyTorch's operators.
TRITON: dict[str, Case] = {
    "triton pointwise": (_scaled_sum, (wave(1023, 1025), wave(1023, 1025).flip(0))),
    "triton rows": (_row_norm, (wave(1000, 3000),)),
}
