"""Runs the artifacts that intarsia-compile.test made: check_artifact.py OPERATORS FOLDER.

Their results are compared with PyTorch's.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

operators, folder = sys.argv[1], Path(sys.argv[2])
torch.ops.load_library(operators)

# The exporter's records are there as they were, beside ours.
before, after = (zipfile.ZipFile(folder / name) for name in ("model.pt2", "fused.pt2"))
for name in before.namelist():
    assert after.read(name) == before.read(name), name
ours = sorted(Path(name).name for name in after.namelist() if "/data/intarsia/" in name)
assert ours == ["kernels.so", "metadata.json", "plan.json"], ours
for info in after.infolist():
    assert info.compress_type == zipfile.ZIP_STORED, info.filename

program = torch.export.load(folder / "fused.pt2")  # still an exported program
x, rows = torch.randn(5, 4), torch.tensor([1, 3, 5, 7, 0])
expected = program.module()(x, rows)
np.save(folder / "x.npy", x.numpy())
np.save(folder / "rows.npy", rows.numpy())
inputs = ["--input", folder / "x.npy", folder / "rows.npy"]
for name in ("fused", "calls"):
    command = ["intarsia-run", folder / f"{name}.pt2", "--op-library", operators]
    subprocess.run([*command, *inputs, "--output-dir", folder / name], check=True)
    got = torch.from_numpy(np.load(folder / name / "output_0.npy"))
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
