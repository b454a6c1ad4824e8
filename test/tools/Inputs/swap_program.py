"""FOLDER/swapped.pt2: the compiled code of one program beside another program."""

import sys
import zipfile
from pathlib import Path

import torch

import intarsia

folder = Path(sys.argv[1])


class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


for name, factor in (("two", 2.0), ("three", 3.0)):
    program = torch.export.export(Model(factor), (torch.ones(6),))
    intarsia.aot_compile(program, folder / f"{name}.pt2")
two, three = (zipfile.ZipFile(folder / f"{name}.pt2") for name in ("two", "three"))
with zipfile.ZipFile(folder / "swapped.pt2", "w") as out:
    for name in two.namelist():
        source = two if "/intarsia/" in name else three
        data = source.read(name if source is two else name.replace("two/", "three/", 1))
        out.writestr(name.replace("two/", "swapped/", 1), data)
