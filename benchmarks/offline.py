# ===- offline.py - Compiled files beside AOTInductor's ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Public models through the file door: results, time to compile, time to load.

Each model of `models.py` is exported, compiled to a file with empty caches, loaded in
a process of its own (cold: its first load there, with an empty cache; warm: the next
ones) and run; what it returns is compared with eager. AOTInductor does the same with
the models named in `PEERS`, because it takes long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import models
import torch
from chart import console
from rich.table import Table
from torch.utils import _pytree as pytree

import intarsia

HERE = Path(__file__).resolve().parent
PEERS = ("bert", "llama", "resnet", "graph network", "recommender")

LOAD = """
import json, statistics, sys, time
import torch, intarsia
kind, path, model = sys.argv[1:]
import models
models.MODELS[model]()  # registers the structures that the model returns
# What is imported is counted for neither.
import torch._inductor.package
from intarsia._extension import extension
extension()
load = intarsia.load if kind == "intarsia" else torch._inductor.aoti_load_package
torch.zeros(1) + 1
times = []
for _ in range(12):
    start = time.perf_counter()
    program = load(path)
    times.append(time.perf_counter() - start)
print(json.dumps([times[0], statistics.median(times[1:])]))
"""


def loading(kind: str, path: Path, model: str, cache: Path) -> tuple[float, float]:
    """Seconds of the first load of a process with an empty cache, and of later ones."""
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(cache / "load"), "TMPDIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, kind, str(path), model],
        check=True, capture_output=True, text=True, env=environment, cwd=HERE,
    )  # fmt: skip
    cold, warm = json.loads(done.stdout.splitlines()[-1])
    return cold, warm


def difference(got: Any, want: Any) -> float:
    """The largest difference, relative to the largest value of each tensor."""
    worst = 0.0
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(got) != len(want):
        return float("inf")
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor) and b.numel():
            if a.shape != b.shape or a.dtype != b.dtype:
                return float("inf")
            scale = max(b.double().abs().max().item(), 1.0)
            worst = max(worst, (a.double() - b.double()).abs().max().item() / scale)
    return worst


def measure(name: str, with_peer: bool, folder: Path) -> dict:
    module, arguments = models.MODELS[name]()
    module = module.eval()
    if hasattr(module, "config"):
        module.config.use_cache = False  # export knows no class for all caches
    with torch.no_grad():
        torch.manual_seed(0)
        want = module(**arguments)
        torch.manual_seed(0)
        program = torch.export.export(module, (), arguments, strict=False)
    source, target = folder / "model.pt2", folder / "compiled.pt2"
    torch.export.save(program, source)
    seconds: dict[str, dict[str, float]] = {}

    start = time.perf_counter()
    intarsia.aot_compile(source, target)
    mine = {"compile": time.perf_counter() - start}
    torch.manual_seed(0)
    with torch.no_grad():
        worst = difference(intarsia.load(target)(**arguments), want)
    mine["cold load"], mine["load"] = loading("intarsia", target, name, folder)
    seconds["intarsia"] = mine
    if with_peer:
        package = folder / "aoti.pt2"
        start = time.perf_counter()
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))
        peer = {"compile": time.perf_counter() - start}
        peer["cold load"], peer["load"] = loading("aotinductor", package, name, folder)
        seconds["aotinductor"] = peer
    return {"case": name, "difference": worst, "seconds": seconds}


def bench_offline(arguments: argparse.Namespace) -> list[dict]:
    warnings.simplefilter("ignore")
    rows = []
    table = Table(title="Compiled files: times in ms, and AOTInductor's divided by ours")
    table.add_column("model")
    table.add_column("difference to eager", justify="right")
    for name in ("compile", "cold load", "load"):
        table.add_column(name, justify="right")
        table.add_column("AOTInductor / ours", justify="right")
    for name in models.MODELS:
        if arguments.only and arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["INTARSIA_CACHE_DIR"] = os.path.join(folder, "cache")
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
            try:
                with_peer = name in PEERS and not arguments.no_inductor
                row = measure(name, with_peer, Path(folder))
            except Exception as error:
                reason = str(error).splitlines()[0][:90]
                row = {"case": name, "problem": f"{type(error).__name__}: {reason}"}
                console.print(f"{name}: {row['problem']}", soft_wrap=True)
                rows.append({"group": "offline", **row})
                continue
        rows.append({"group": "offline", **row})
        cells = [name, f"{row['difference']:.1e}"]
        mine, peer = row["seconds"]["intarsia"], row["seconds"].get("aotinductor")
        for step, value in mine.items():
            cells.append(f"{value * 1e3:.2f}")
            cells.append(f"{peer[step] / value:.1f}" if peer else "")
        table.add_row(*cells)
    console.print(table)
    return rows
