# ===- share.py - How much of a graph ends up in kernels ---------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The share of a graph's nodes that become part of kernels.

Counted are the nodes of AOTAutograd's graphs, forward and backward, that are neither
custom operators nor what `docs/operators.md` lists as views or as calls on purpose:
each of them either is in a kernel or was left as a call.
"""

from __future__ import annotations

import re
import subprocess
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import models
import torch
from chart import console
from torch._functorch import config as functorch_config

#: Models of which only the first dimension of every input is unknown where sizes are:
#: PyTorch takes minutes to trace them where all are.
ONLY_BATCH = {"swin"}


def deliberate_calls() -> set[str]:
    """What the lowering table lists beside kernels: views and library calls."""
    text = subprocess.run(
        ["intarsia-opt", "--list-lowerings"], check=True, capture_output=True, text=True
    ).stdout
    names, counts = set(), False
    for line in text.splitlines():
        if line.startswith("## "):
            counts = line.startswith("## Views")
        elif line.startswith("Calls on purpose"):
            counts = True
        elif counts and (match := re.match(r"- `([^`]+)`", line)):
            names.add(match[1])
    return names


@dataclass
class Share:
    nodes: int = 0
    left: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problem: str = ""

    @property
    def kernels(self) -> float:
        return 1 - self.left.total() / self.nodes if self.nodes else 1.0


def measure(make: Any, dynamic: bool, deliberate: set[str], only_batch: bool = False) -> Share:
    import intarsia
    from intarsia import backend

    share = Share()
    original = backend._compile_graph

    def counted(gm: torch.fx.GraphModule, *arguments: Any, **keywords: Any) -> Any:
        for node in gm.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                share.nodes += is_compilable(name_of(node.target), deliberate)
        return original(gm, *arguments, **keywords)

    torch.manual_seed(0)
    torch._dynamo.reset()
    module, inputs = make()
    if only_batch:
        for x in inputs.values():
            torch._dynamo.mark_dynamic(x, 0)
    start = time.perf_counter()
    with (
        # What PyTorch's cache has would not be compiled.
        functorch_config.patch(enable_autograd_cache=False),
        mock.patch.object(backend, "_compile_graph", counted),
        intarsia.record_compilations() as compilations,
    ):
        try:
            unknown = None if only_batch else dynamic
            compiled = torch.compile(module, backend="intarsia", dynamic=unknown)
            loss = models.loss_of(compiled(**inputs))
            if loss.requires_grad:
                loss.backward()
        except Exception as error:
            share.problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    share.seconds = time.perf_counter() - start
    for compilation in compilations:
        for name in re.findall(r"\bcall ([\w:.]+)\(", compilation.program.plan_text):
            kind = share.left if is_compilable(name, deliberate) else share.calls
            kind[name] += 1
    return share


def name_of(op: torch._ops.OpOverload) -> str:
    overload = op._overloadname
    name = op._schema.name
    return name if overload == "default" else f"{name}.{overload}"


def is_compilable(name: str, deliberate: set[str]) -> bool:
    """Whether an operator ought to be in a kernel."""
    # What a plan updates in place is called by the twin's name.
    functional = re.sub(r"_(?=\.|$)", "", name)
    return name.startswith(("aten::", "prims::")) and not {name, functional} & deliberate


def bench_share(arguments: Any) -> list[dict]:
    deliberate = deliberate_calls()
    total = Share()
    rows = []
    warnings.simplefilter("ignore")
    for name, make in models.MODELS.items():
        for dynamic in (False, True):
            only_batch = dynamic and name in ONLY_BATCH
            share = measure(make, dynamic, deliberate, only_batch)
            total.nodes += share.nodes
            total.left += share.left
            total.calls += share.calls
            left = ", ".join(f"{op} x{count}" for op, count in share.left.most_common())
            sizes = "dynamic batch" if only_batch else "dynamic" if dynamic else "static"
            console.print(
                f"{name}, {sizes}: {share.kernels:.1%} of {share.nodes} nodes",
                share.problem or (left and f"(left: {left})"),
                soft_wrap=True,
            )
            rows.append(
                {
                    "group": "share",
                    "case": f"{name}, {sizes}",
                    "nodes": share.nodes,
                    "left": dict(share.left),
                    "calls": dict(share.calls),
                    "problem": share.problem,
                    "seconds": share.seconds,
                }
            )
    console.print(f"{total.kernels:.2%} of {total.nodes} nodes are in kernels")
    for op, count in total.left.most_common():
        console.print(f"  {count:5} {op}")
    return rows
