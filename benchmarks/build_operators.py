# ===- build_operators.py - Builds operator libraries for the benchmarks ------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Builds the C++ operators that the benchmarks call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = Path(os.environ.get("INTARSIA_BUILD_DIR", ROOT / "build")) / "bench"


def operator_library(stem: str) -> Path:
    """The library of `stem`.cpp, built when its source is newer."""
    source, target = HERE / f"{stem}.cpp", BUILD / f"{stem}-{torch.__version__}.so"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        root = Path(torch.__file__).parent
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *("c++", "-O2", "-std=c++20", "-shared", "-fPIC", str(source), "-o", str(target)),
                *(f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"),
                *(f"-L{root}/lib", "-ltorch_cpu", "-lc10"),
            ],
            check=True,
        )
    return target
