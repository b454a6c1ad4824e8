"""Builds and loads the demo's C++ operator; registers its fake and its gradient."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("INTARSIA_BUILD_DIR", HERE.parents[1] / "build")) / "demo"


def build() -> Path:
    """The path of the operator library, built when something changed."""
    if not (BUILD / "build.ninja").exists():
        _run(
            *("cmake", "-S", HERE, "-B", BUILD, "-G", "Ninja"),
            f"-DPython_EXECUTABLE={sys.executable}",
        )
    _run("cmake", "--build", BUILD)
    return BUILD / "libdemo_operators.so"


def _run(*command: object) -> None:
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(result.stdout + result.stderr)


def load() -> Path:
    """Makes ``torch.ops.demo.mean_pool_normalize`` usable, compiled and trained."""
    library = build()
    torch.ops.load_library(library)
    torch.library.register_fake("demo::mean_pool_normalize", _fake)
    torch.library.register_autograd(
        "demo::mean_pool_normalize", _backward, setup_context=_setup_context
    )
    return library


def _fake(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden.new_empty(hidden.shape[0], hidden.shape[2])


def _setup_context(ctx, inputs, output) -> None:
    hidden, mask = inputs
    ctx.save_for_backward(hidden, mask, output)


def _backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    hidden, mask, output = ctx.saved_tensors
    weight = mask.to(hidden.dtype)[:, :, None]
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
    mean = (hidden * weight).sum(dim=1)
    norm = mean.norm(dim=1, keepdim=True).clamp(min=1e-12)
    grad_mean = (grad - output * (grad * output).sum(dim=1, keepdim=True)) / norm
    return grad_mean[:, None, :] * weight, None
