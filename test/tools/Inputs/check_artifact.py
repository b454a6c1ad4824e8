"""Runs the artifacts that intarsia-compile.test made; compares with PyTorch: check_artifact.py LIBRARY FOLDER."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

library, folder = sys.argv[1], Path(sys.argv[2])
torch.ops.load_library(library)

# The exporter's records are there as they were, beside ours.
with zipfile.ZipFile(folder / "model.pt2") as before, zipfile.ZipFile(folder / "fused.pt2") as after:
    for name in before.namelist():
        assert after.read(name.replace("model/", "fused/", 1)) == before.read(name), name
    ours = [name for name in after.namelist() if "/data/intarsia/" in name]
    assert sorted(Path(name).name for name in ours) == ["kernels.so", "metadata.json", "plan.json"], ours
    for info in after.infolist():
        assert info.compress_type == zipfile.ZIP_STORED, info.filename

program = torch.export.load(folder / "fused.pt2")  # still an exported program
x, rows = torch.randn(5, 4), torch.tensor([1, 3, 5, 7, 0])
expected = program.module()(x, rows)
np.save(folder / "x.npy", x.numpy())
np.save(folder / "rows.npy", rows.numpy())
for name in ("fused", "calls"):
    subprocess.run(
        ["intarsia-run", folder / f"{name}.pt2", "--op-library", library]
        + ["--input", folder / "x.npy", folder / "rows.npy", "--output-dir", folder / name],
        check=True,
    )
    got = torch.from_numpy(np.load(folder / name / "output_0.npy"))
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
