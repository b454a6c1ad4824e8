"""A program that computes with its weights: export_weights.py FOLDER, or --check FOLDER."""

import sys
from pathlib import Path

import torch

folder = Path(sys.argv[-1])


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 400_000).reshape(4, -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight / self.weight.norm(dim=1, keepdim=True)
        return torch.nn.functional.linear(x, weight).exp()


if sys.argv[1] == "--check":
    (frozen,), (plain,), (low,) = (
        torch.load(folder / f"{name}-out.pt") for name in ("frozen", "plain", "bf16")
    )
    torch.testing.assert_close(frozen, plain, rtol=1e-4, atol=1e-5)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), plain, rtol=0.05, atol=0.05)
else:
    with torch.no_grad():
        torch.export.save(
            torch.export.export(Model(), (torch.ones(3, 100_000),)), folder / "weights.pt2"
        )
