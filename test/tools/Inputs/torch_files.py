"""Files of torch.save for intarsia-run.test: torch_files.py FOLDER, or --check FOLDER."""

import sys
from pathlib import Path

import torch

folder = Path(sys.argv[-1])
x, rows = torch.arange(20.0).reshape(5, 4), torch.tensor([1, 3, 5, 7, 0])
if sys.argv[1] == "--check":
    results = [torch.load(folder / f"{name}-out.pt") for name in ("list", "dict", "single")]
    assert all(isinstance(r, tuple) and len(r) == 1 for r in results), results
    assert all(torch.equal(r[0], results[0][0]) for r in results)
    assert results[0][0].shape == (8, 4) and results[0][0].dtype == torch.float32
else:
    wide = torch.zeros(5, 8)
    wide[:, ::2] = x
    torch.save([wide[:, ::2], rows], folder / "list.pt")  # of any strides
    torch.save({"rows": rows, "x": torch.nn.Parameter(x).detach()}, folder / "dict.pt")
    torch.save(x, folder / "x.pt")
    torch.save(rows, folder / "rows.pth")
    torch.save({"x": [x]}, folder / "nested.pt")
    (folder / "damaged.pt").write_bytes((folder / "x.pt").read_bytes()[:200])
