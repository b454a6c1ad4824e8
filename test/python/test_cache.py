# ===- test_cache.py - Where compiled kernels are kept ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The cache of kernels: shared between processes, and done without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch, warnings
warnings.simplefilter("ignore")
import intarsia
f = lambda x: torch.tanh(x) * 2
x = torch.randn(5, 7)
with torch.no_grad(), intarsia.record_compilations() as compilations:
    y = torch.compile(f, backend="intarsia")(x)
torch.testing.assert_close(y, f(x))
print(compilations[0].program.kernel_count)
"""


def run(cache: Path) -> str:
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(cache)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_second_process_finds_the_kernels(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    (library,) = (tmp_path / "kernels").iterdir()
    before = library.stat().st_mtime_ns
    assert run(tmp_path) == "1"
    assert library.stat().st_mtime_ns == before


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    run(tmp_path)
    (library,) = (tmp_path / "kernels").iterdir()
    whole = library.read_bytes()
    library.write_bytes(whole[:100])
    assert run(tmp_path) == "1"
    assert library.read_bytes() == whole


def test_kernels_run_from_memory_where_no_cache_can_be_written(tmp_path: Path) -> None:
    # A file where the folder should be: nobody, root included, can write below it.
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(blocked / "cache") == "1"
