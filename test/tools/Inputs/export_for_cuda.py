"""Writes model.pt2, a program on the CPU, and its inputs: a folder is the argument."""

import sys
from pathlib import Path

import numpy as np
import torch

folder = Path(sys.argv[-1])


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3))

    def forward(self, x, indices):
        steps = torch.arange(3)  # on the CPU unless it is moved
        rows = torch.nn.functional.embedding(indices, self.table)
        return torch.tanh(x * rows + steps) + torch.ones(3, device="cpu"), x.sum(1)


x = torch.ones(5, 3)
indices = torch.tensor([0, 3, 1, 1, 2])
rows = torch.export.Dim("rows", min=2)
program = torch.export.export(Model(), (x, indices), dynamic_shapes=({0: rows}, {0: rows}))
torch.export.save(program, folder / "model.pt2")
np.save(folder / "x.npy", x.numpy())
np.save(folder / "indices.npy", indices.numpy())
