# ===- calls.py - What one opaque call costs ----------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The cost of one opaque call inside a compiled graph, and of entering the runtime.

An operator that returns ``empty_like(x)`` is called once and 17 times in a row; the
difference, a sixteenth of it, is one call. The operator is written in C++, as a Python
function that the dispatcher calls (``Library.impl``), and as a ``custom_op`` of the same
function. Around each call of a ``custom_op``'s kernel, PyTorch runs Python code of its own,
in eager too: what is returned is looked at for aliases, Dynamo is kept off. A caller that
went past it would not be told when somebody registers another kernel. "Boxed redispatch"
is therefore the least that a call takes. Figures are this thread's CPU time, the
smallest of the rounds, in which all candidates take turns: a call is so short that any
disturbance is larger than it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from build_operators import operator_library
from chart import console
from rich.table import Table

LONG = 17
CALLS = 300  # calls of one graph that are timed together

Runner = Callable[[torch.Tensor], object]


@torch.library.custom_op("intarsia_bench::python", mutates_args=())
def _python(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


_python.register_fake(lambda x: torch.empty_like(x))


_library = torch.library.Library("intarsia_bench", "FRAGMENT")
_library.define("function(Tensor x) -> Tensor")
_library.impl("function", lambda x: torch.empty_like(x), "CPU")
torch.library.register_fake("intarsia_bench::function", lambda x: torch.empty_like(x), lib=_library)


class Chain(torch.nn.Module):
    def __init__(self, op: Callable[[torch.Tensor], torch.Tensor], count: int) -> None:
        super().__init__()
        self.op, self.count = op, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = self.op(x)
        return x


def _program_of(chain: Chain, x: torch.Tensor) -> tuple[Runner, Runner]:
    """The compiled function, and the program in it without Dynamo around it."""
    import intarsia

    with intarsia.record_compilations() as compilations:
        compiled = torch.compile(chain, backend="intarsia", fullgraph=True)
        compiled(x)
    program = compilations[0].program
    return compiled, lambda x: program([x])


def candidates(op: Callable, x: torch.Tensor, folder: Path, peers: bool) -> dict[str, list[Runner]]:
    """Name -> the 1-call and the long graph."""
    import intarsia

    chains = [Chain(op, 1), Chain(op, LONG)]
    result: dict[str, list[Runner]] = {"eager": list(chains)}
    doors = [_program_of(chain, x) for chain in chains]
    result["torch.compile, intarsia"] = [compiled for compiled, _ in doors]
    result["the program alone"] = [program for _, program in doors]
    exported = [torch.export.export(chain, (x,)) for chain in chains]
    result["artifact, intarsia"] = [
        intarsia.load(intarsia.aot_compile(program, folder / f"{i}.pt2"))
        for i, program in enumerate(exported)
    ]
    if peers:
        torch._dynamo.reset()
        result["inductor"] = [torch.compile(chain, fullgraph=True) for chain in chains]
        options = {"cpp_wrapper": True}
        result["inductor, cpp_wrapper"] = [
            torch.compile(Chain(op, chain.count), fullgraph=True, options=options)
            for chain in chains
        ]
        result["AOTInductor"] = [
            torch._inductor.aoti_load_package(
                torch._inductor.aoti_compile_and_package(
                    program, package_path=str(folder / f"aoti{i}.pt2")
                )
            )
            for i, program in enumerate(exported)
        ]
        for pair in (result["inductor"], result["inductor, cpp_wrapper"]):
            for run in pair:
                run(x)
    return result


def _seconds(run: Runner, x: torch.Tensor) -> float:
    start = time.thread_time()
    for _ in range(CALLS):
        run(x)
    return (time.thread_time() - start) / CALLS


def measure(op: Callable, name: str, rounds: int, peers: bool) -> list[dict]:
    x = torch.randn(8)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        runs = candidates(op, x, Path(folder), peers)
        best = {key: [float("inf")] * 2 for key in runs}
        bench, called = torch.ops.intarsia_bench, f"intarsia_bench::{name}"
        # What PyTorch's dispatcher and the kernel take: no call can cost less.
        raw: dict[str, Callable[[], float]] = {
            "boxed call from C++": lambda: bench.boxed_seconds(x, called, False, CALLS),
            "boxed redispatch from C++": lambda: bench.boxed_seconds(x, called, True, CALLS),
            "typed redispatch from C++": lambda: bench.typed_seconds(x, called, CALLS),
        }
        reference = dict.fromkeys(raw, float("inf"))
        for number in range(rounds + 2):
            for key, run_raw in raw.items():
                reference[key] = min(reference[key], run_raw())
            for key, pair in runs.items():
                for i, run in enumerate(pair):
                    seconds = _seconds(run, x)
                    if number >= 2:
                        best[key][i] = min(best[key][i], seconds)
    rows = [{"candidate": k, "call": v, "graph": None} for k, v in reference.items()]
    for key, (one, many) in best.items():
        slope = (many - one) / (LONG - 1)
        rows.append({"candidate": key, "call": slope, "graph": one, "entry": one - slope})
    return [{"operator": name, **row} for row in rows]


def bench_call(arguments: argparse.Namespace) -> list[dict]:
    torch.ops.load_library(operator_library("calls"))
    rows = []
    for name, title in (
        ("cpp", "a C++ operator"),
        ("function", "a Python function"),
        ("python", "a Python custom_op"),
    ):
        op = getattr(torch.ops.intarsia_bench, name).default
        measured = measure(op, name, arguments.rounds, not arguments.no_inductor)
        raw = measured[1]["call"]
        table = Table(title=f"One call of {title}")
        for column in ("candidate", "call (µs)", "/ boxed redispatch", "entry (µs)"):
            table.add_column(column, justify="left" if column == "candidate" else "right")
        for row in measured:
            entry = f"{row['entry'] * 1e6:.2f}" if row["graph"] is not None else ""
            table.add_row(
                row["candidate"], f"{row['call'] * 1e6:.3f}", f"{row['call'] / raw:.2f}", entry
            )
        console.print(table)
        rows += measured
    return [{"group": "call", **row} for row in rows]
