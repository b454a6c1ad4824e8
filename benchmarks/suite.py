# ===- suite.py - Whole programs beside eager and Inductor --------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Times the programs of `programs.py`, and what of their time nobody can save.

The floor of a program is what its library calls and registered operators take by
themselves: the times of the calls in Intarsia's plans, by its own profiler. Time above
the floor is what a compiler is to blame for.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from programs import PROGRAMS, Program, load_operators
from rich.console import Console
from rich.table import Table
from torch._functorch import config as functorch_config

console = Console()
Step = Callable[[], list[torch.Tensor]]


class Profiled:
    """A compiled program that adds up what its calls take."""

    def __init__(self, program: Any, spent: list[float]) -> None:
        self.program, self.spent = program, spent
        self._boxed_call = True  # on the object itself, from where Dynamo copies it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def __call__(self, arguments: list[Any]) -> Any:
        results, steps = self.program.profile(list(arguments))
        arguments.clear()
        self.spent[-1] += sum(step[-1] for step in steps if "::" in step[2])
        return results


def tensors_of(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def stepper(program: Program, run: Callable[..., Any]) -> Step:
    """One step over all inputs; its results and gradients."""
    parameters = list(program.module.parameters())

    def training() -> list[torch.Tensor]:
        for parameter in parameters:
            parameter.grad = None
        losses = []
        for inputs in program.inputs:
            loss = run(*inputs)
            loss.backward()
            losses.append(loss.detach())
        return losses + [p.grad for p in parameters if p.grad is not None]

    @torch.no_grad()
    def inference() -> list[torch.Tensor]:
        return [x for inputs in program.inputs for x in tensors_of(run(*inputs))]

    return training if program.training else inference


def compiled(program: Program, **how: Any) -> Step:
    torch._dynamo.reset()
    own = program.clone()
    run = torch.compile(own.module, dynamic=own.dynamic, fullgraph=own.fullgraph, **how)
    step = stepper(own, run)
    step()
    return step


def floor(program: Program, rounds: int) -> float:
    """Seconds that the calls of a step take, and what else the plan has."""
    from intarsia import backend

    original, spent = backend._compile_graph, [0.0]

    def profiled(*arguments: Any, **keywords: Any) -> Any:
        return Profiled(original(*arguments, **keywords), spent)

    uncached = functorch_config.patch(enable_autograd_cache=False)
    with mock.patch.object(backend, "_compile_graph", profiled), uncached:
        step = compiled(program, backend="intarsia")
        step()
        for _ in range(rounds):
            spent.append(0.0)
            step()
    return statistics.median(spent[1:])


def differs(got: list[torch.Tensor], want: list[torch.Tensor]) -> str:
    """What is wrong with the results of a candidate, or nothing."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for x, y in zip(got, want, strict=True):
        # Sums of thousands of products in another order.
        scale = y.abs().max().item() if y.is_floating_point() and y.numel() else 1.0
        if not torch.allclose(x, y, rtol=1e-3, atol=1e-3 * max(scale, 1e-6)):
            return f"differs by {(x - y).abs().max().item():.2g} of {scale:.2g}"
    return ""


def bench_suite(arguments: argparse.Namespace, interleaved: Callable[..., dict]) -> list[dict]:
    load_operators()
    warnings.simplefilter("ignore")
    rows = []
    for name, make in PROGRAMS.items():
        if arguments.only and arguments.only not in name:
            continue
        torch.manual_seed(0)
        program = make()
        eager = program.clone()
        steps: dict[str, Step] = {"eager": stepper(eager, eager.module)}
        steps["intarsia"] = compiled(program, backend="intarsia")
        if not arguments.no_inductor:
            steps["inductor"] = compiled(program)
        if arguments.max_autotune:
            steps["max-autotune"] = compiled(program, mode="max-autotune-no-cudagraphs")
        # Buffers that steps write have then taken as many steps.
        expected = steps["eager"]() and steps["eager"]()
        for candidate, step in steps.items():
            if candidate != "eager" and (problem := differs(step(), expected)):
                raise SystemExit(f"{name}, {candidate}: {problem}")
        count = len(program.inputs)
        seconds = {
            candidate: spent / count
            for candidate, spent in interleaved(
                steps, (), arguments.rounds, grad=program.training
            ).items()
        }
        rows.append(
            {
                "group": "suite",
                "case": name,
                "seconds": seconds,
                "floor": floor(program, arguments.rounds) / count,
            }
        )
        console.print(describe(rows[-1]))
    console.print(table(rows))
    return rows


def describe(row: dict) -> str:
    seconds = ", ".join(f"{name} {value * 1e3:.3f}" for name, value in row["seconds"].items())
    return f"{row['case']}: {seconds}, floor {row['floor'] * 1e3:.3f} ms"


def table(rows: list[dict]) -> Table:
    """Times in ms, their ratios, and the times above the floor."""
    names = list(rows[0]["seconds"])
    result = Table(title="Programs, time per step")
    result.add_column("program")
    for name in [*names, "floor"]:
        result.add_column(f"{name} (ms)", justify="right")
    peers = [name for name in names if name != "intarsia"]
    for name in peers:
        result.add_column(f"{name} / intarsia", justify="right")
    for name in peers:
        result.add_column(f"{name} / intarsia, above floor", justify="right")
    logs: dict[str, list[float]] = {name: [] for name in peers}
    for row in rows:
        seconds, least = row["seconds"], row["floor"]
        cells = [row["case"], *(f"{seconds[name] * 1e3:.3f}" for name in names)]
        cells.append(f"{least * 1e3:.3f}")
        for name in peers:
            logs[name].append(seconds[name] / seconds["intarsia"])
            cells.append(f"{logs[name][-1]:.2f}")
        above = seconds["intarsia"] - least
        cells += [f"{(seconds[name] - least) / above:.2f}" if above > 0 else "-" for name in peers]
        result.add_row(*cells)
    means = [f"{statistics.geometric_mean(logs[name]):.2f}" for name in peers]
    result.add_row("geometric mean", *[""] * (len(names) + 1), *means, *[""] * len(peers))
    return result
