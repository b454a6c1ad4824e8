# ===- test_memory.py - What kernels touch, and what outlives a run ---------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Faults that would kill the process, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

GUARDED = """
import ctypes, mmap
import torch

def guarded(count, at_end):
    # `count` floats that end (or begin) where memory that cannot be read begins.
    page = mmap.PAGESIZE
    pages = -(-count * 4 // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for fence in (address, address + (pages + 1) * page):
        assert libc.mprotect(ctypes.c_void_p(fence), page, 0) == 0
    start = page + (pages * page - count * 4 if at_end else 0)
    flat = torch.frombuffer(memory, dtype=torch.float32, count=count, offset=start)
    return flat.normal_(), memory

def cat(x):
    return torch.cat([x, x * 2], 1)

def pad(x):
    return torch.nn.functional.pad(x, (2, 3, 1, 1)) + 1

for f in (cat, pad):
    compiled = torch.compile(f, backend="intarsia", dynamic=True)
    for at_end in (False, True):
        dense, memory = guarded(33 * 70, at_end)
        sparse, more = guarded(32 * 280 + 69 * 2 + 1, at_end)
        for x in (
            dense.view(33, 70),
            dense.view(70, 33).t(),
            torch.as_strided(sparse, (33, 70), (280, 2)),
        ):
            torch.testing.assert_close(compiled(x), f(x))
"""

RAISES = """
import torch

@torch.library.custom_op("memory::raises", mutates_args=())
def raises(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("mine")

raises.register_fake(torch.empty_like)
try:
    torch.compile(lambda x: raises(x) + 1, backend="intarsia")(torch.ones(3))
except KeyError:
    print("raised")
"""


@pytest.mark.parametrize("program", [GUARDED, RAISES], ids=["reads-inside", "ends-cleanly"])
def test_the_process_lives(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
