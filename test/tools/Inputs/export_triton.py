"""Writes programs with kernels of Triton, and their inputs: a folder is the argument."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch._subclasses import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
import triton_kernels


class Model(torch.nn.Module):
    def forward(self, x, y):
        h = triton_kernels.add_op(x * 2, y) + 1
        z = y * 1
        w = z.clone()
        triton_kernels.scale_rows_op(w, 0.5)
        return h, w, triton_kernels.double_op(z)


class Clustered(torch.nn.Module):
    def forward(self, x, y):
        return triton_kernels.clustered_op(x) + y


def export(model, device, path):
    with FakeTensorMode():
        x, y = (torch.empty(100, 48, device=device) for _ in range(2))
        rows = torch.export.Dim("rows")
        shapes = {"x": {0: rows}, "y": {0: rows}}
        program = torch.export.export(model, (x, y), dynamic_shapes=shapes)
    program._example_inputs = None  # fake ones cannot be saved
    torch.export.save(program, path)


if __name__ == "__main__":
    folder = Path(sys.argv[-1])
    export(Model(), "cuda:0", folder / "model.pt2")
    export(Model(), "cpu", folder / "cpu.pt2")
    export(Clustered(), "cuda:0", folder / "clustered.pt2")
    for name in "xy":
        np.save(folder / f"{name}.npy", np.ones((100, 48), np.float32))
