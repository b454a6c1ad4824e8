# ===- measure.py - On the machine with the GPU ----------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Runs what prepare.py compiled, and the same programs eagerly and by Inductor.

Needs PyTorch alone. Results are held against eager's on this GPU and against those of
the CPU; times are medians of runs that are waited for, one by one.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kernels import CASES, TRITON
from torch.utils import _pytree as pytree

KERNELS = CASES | TRITON
ROUNDS = 50
START = time.monotonic()
LIMIT = float(os.environ.get("SECONDS_LEFT", "200"))


def difference(got: Any, want: Any) -> float:
    """The largest difference, relative to the largest value of each tensor."""
    got, want = (
        [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]
        for values in (got, want)
    )
    if [(x.shape, x.dtype) for x in got] != [(x.shape, x.dtype) for x in want]:
        return float("inf")
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        if b.numel():
            a, b = a.cpu().double(), b.cpu().double()
            scale = max(b.abs().nan_to_num(posinf=1.0).max().item(), 1.0)
            same = (a == b) | (a.isnan() & b.isnan())
            worst = max(worst, ((a - b).abs() / scale).where(~same, 0.0).max().item())
    return worst


def timed(function: Callable[[], Any]) -> float:
    times = []
    for index in range(10 + ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        if index >= 10:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def write_inputs(row: dict[str, Any], folder: Path) -> None:
    """Of a kernel, and what the CPU makes of them: small to compute, large to carry."""
    function, inputs = KERNELS[row["title"]]
    torch.save(inputs, folder / f"{row['name']}.inputs.pt")
    expected = function(*inputs)
    torch.save(tuple(pytree.tree_leaves(expected)), folder / f"{row['name']}.expected.pt")


def on_gpu(row: dict[str, Any], folder: Path) -> tuple[Callable[..., Any], Any, Any]:
    """The function that the file holds, and its arguments."""
    stem = folder / row["name"]
    inputs = [x.cuda() for x in torch.load(f"{stem}.inputs.pt")]
    if row["kind"] != "model":
        return KERNELS[row["title"]][0], inputs, {}
    from torch.export.passes import move_to_device_pass

    program = move_to_device_pass(torch.export.load(f"{stem}.pt2"), "cuda:0")
    flat = iter(inputs)
    args, kwargs = pytree.tree_map(
        lambda x: next(flat) if isinstance(x, torch.Tensor) else x, program.example_inputs
    )
    return program.module(), args, kwargs


def beside(row: dict[str, Any], folder: Path) -> None:
    """Eager and Inductor."""
    module, args, kwargs = on_gpu(row, folder)
    with torch.no_grad():
        want = module(*args, **kwargs)
        if "run" in row:
            got = torch.load(folder / f"{row['name']}.outputs.pt")
            row["difference to eager"] = difference(got, want)
        row["eager"] = timed(lambda: module(*args, **kwargs))
        if time.monotonic() - START > LIMIT:
            row["inductor"] = None
            row["no inductor"] = "out of time"
            return
        start = time.perf_counter()
        compiled = torch.compile(module)
        compiled(*args, **kwargs)
        torch.cuda.synchronize()
        row["inductor compiles"] = time.perf_counter() - start
        row["inductor"] = timed(lambda: compiled(*args, **kwargs))


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    programs = folder / "programs"
    rows = json.loads((programs / "list.json").read_text())
    result: dict[str, Any] = {"torch": torch.__version__, "gpu": None, "programs": rows}
    if torch.cuda.is_available():
        result["gpu"] = torch.cuda.get_device_name()
    names = [row["name"] for row in rows if "name" in row]
    for row in rows:
        if "name" in row and row["kind"] != "model":
            write_inputs(row, programs)
    command = [folder / "bin" / "measure", programs, str(ROUNDS), *names]
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280,
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
    )  # fmt: skip
    measured = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    if done.returncode:
        result["problem"] = f"measure ended with {done.returncode}: {done.stderr[-2000:]}"
    for row in rows:
        row.update(measured.get(row.get("name"), {}))
        if "run" in row:
            outputs = torch.load(programs / f"{row['name']}.outputs.pt")
            expected = torch.load(programs / f"{row['name']}.expected.pt")
            row["difference to the CPU"] = difference(outputs, expected)
            if "graph" in row:
                replayed = torch.load(programs / f"{row['name']}.graph.pt")
                row["difference of the graph"] = difference(replayed, outputs)
        if "name" in row and result["gpu"]:
            try:
                beside(row, programs)
            except Exception as error:
                row["no eager"] = f"{type(error).__name__}: {error}"[:500]
    result["seconds"] = time.monotonic() - START
    out.write_text(json.dumps(result, indent=1))
    problems = [row for row in rows if "problem" in row]
    print(f"{len(rows) - len(problems)} of {len(rows)} programs ran; see {out}")
    for text in sorted({re.sub("^'.*?' ", "", row["problem"]) for row in problems}):
        print("  " + text.splitlines()[0][:300])
    if not result["gpu"]:
        print("there is no GPU: nothing was launched")
        sys.exit(1)


if __name__ == "__main__":
    main()
