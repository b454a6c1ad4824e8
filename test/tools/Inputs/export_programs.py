"""Exports the programs that the tests of the tools compile: export_programs.py LIBRARY FOLDER."""

import sys
from pathlib import Path

import torch

library, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
torch.ops.load_library(library)


@torch.library.register_fake("rt::scaled")
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


class WithBuffer(torch.nn.Module):
    """A custom operator between pointwise ones, and a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        y = torch.ops.rt.scaled(torch.exp(x) + 1, 2.0)
        self.cache.index_put_((rows,), y)
        return torch.tanh(self.cache) * 2


batch = torch.export.Dim("batch", min=1, max=8)
example = (torch.randn(3, 4), torch.tensor([0, 1, 2]))
program = torch.export.export(
    WithBuffer(), example, dynamic_shapes=({0: batch}, {0: batch})
).run_decompositions({})
torch.export.save(program, folder / "model.pt2")


class Number(torch.nn.Module):
    """An operator that returns a number alone: what its fake says stands in the program."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.ops.rt.limit(x.t())


program = torch.export.export(Number(), example[:1], dynamic_shapes=({0: batch},))
torch.export.save(program, folder / "number.pt2")
