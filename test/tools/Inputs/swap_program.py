"""FOLDER/swapped.pt2: the compiled code of one program beside another program.

FOLDER/raising.pt2: beside one that raises. FOLDER/small.pt2: code only.
FOLDER/sparse.pt2: takes a sparse tensor.
"""

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


class Raises(torch.nn.Module):
    def forward(self, x):
        torch._check(x.sum().long().item() > 1_000_000)
        return x * 2


for name, model in (("two", Model(2.0)), ("three", Model(3.0)), ("raises", Raises())):
    torch.export.save(torch.export.export(model, (torch.ones(6),)), folder / f"{name}.pt2")
two = intarsia.aot_compile(folder / "two.pt2", folder / "compiled_two.pt2")
intarsia.aot_compile(folder / "two.pt2", folder / "small.pt2", code_only=True)


class Sparse(torch.nn.Module):
    def forward(self, x):
        return torch.sparse.mm(x, torch.ones(3, 2))


rows = torch.tensor([[1.0, 0.0, 2.0]]).to_sparse()
torch.export.save(torch.export.export(Sparse(), (rows,)), folder / "rows.pt2")
sparse = intarsia.load(intarsia.aot_compile(folder / "rows.pt2", folder / "sparse.pt2"))
assert torch.equal(sparse(rows), torch.tensor([[3.0, 3.0]]))
for target, other in (("swapped", "three"), ("raising", "raises")):
    program = intarsia.aot_compile(folder / f"{other}.pt2", folder / f"compiled_{other}.pt2")
    with (
        zipfile.ZipFile(two) as code,
        zipfile.ZipFile(program) as beside,
        zipfile.ZipFile(folder / f"{target}.pt2", "w") as out,
    ):
        for name in code.namelist():
            out.writestr(name, (code if "/intarsia/" in name else beside).read(name))
