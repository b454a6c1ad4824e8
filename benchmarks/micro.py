# ===- micro.py - Kernels at several sizes and layouts ------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Pointwise operations and reductions: contiguous, transposed and broadcast."""

from __future__ import annotations

from collections.abc import Callable

import torch
from programs import Program
from torch import Tensor, nn
from torch.nn import functional as F


class Function(nn.Module):
    """A function as a module, which every exporter takes."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gelu(x*y+1)": lambda x, y: F.gelu(x * y + 1),
    "softmax(tanh(x+y))": lambda x, y: torch.softmax(torch.tanh(x + y), -1),
    "layer norm of x*y": lambda x, y: F.layer_norm(x * y, x.shape[-1:]),
    "column sums of exp(-(x-y)^2)": lambda x, y: torch.exp(-((x - y) ** 2)).sum(0),
}

LAYOUTS: dict[str, Callable[[int, int], tuple[Tensor, Tensor]]] = {
    "contiguous": lambda r, c: (torch.randn(r, c), torch.randn(r, c)),
    "transposed": lambda r, c: (torch.randn(c, r).t(), torch.randn(r, c)),
    "broadcast": lambda r, c: (torch.randn(r, c), torch.randn(c)),
}

SIZES = ((16, 64), (128, 256), (1024, 512), (4096, 1024))

MICRO: dict[str, Callable[[], Program]] = {
    f"{name}, {layout}, {rows}x{columns}": (
        lambda f=function, make=make, size=(rows, columns): Program(Function(f), [make(*size)])
    )
    for name, function in FUNCTIONS.items()
    for layout, make in LAYOUTS.items()
    for rows, columns in SIZES
}
