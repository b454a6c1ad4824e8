# ===- suite.py - Whole programs beside eager and Inductor --------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Times the programs of `programs.py`, and what of their time nobody can save.

The floor of a program is what its library calls and registered operators take by
themselves: the times of the calls in Intarsia's plans, by its own profiler. Inductor calls
eager's library for products, which may be another one than Intarsia's: its floor is that of
the plans with ``products="eager"``. That of a kernel is what copying its bytes takes, which
it reads or writes once. Time above the floor is what a compiler is to blame for, except
what passes outside of the compiled programs, in Dynamo's guards, AOTAutograd and autograd:
Inductor's time over both is the most that its time can be a multiple of a compiler's, and
what is above both is the compilers' own. Of training steps the peak memory is told, too,
and the least that the plans' lifetimes allow.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from lifetimes import lower_bound
from micro import MICRO
from peers import FILES, PEERS
from programs import PROGRAMS, Program, load_operators
from rich.console import Console
from rich.table import Table
from torch._C._profiler import _EventType
from torch._dynamo.backends.registry import lookup_backend
from torch._functorch import config as functorch_config

import intarsia

console = Console(width=None if sys.stdout.isatty() else 160)
Step = Callable[[], list[torch.Tensor]]


@dataclasses.dataclass
class Spent:
    """Seconds in the compiled programs of a step."""

    profiling: bool = True
    calls: float = 0.0  # of library and custom operators, while profiling
    inside: float = 0.0  # all, while not


class Observed:
    """A compiled program that adds up what it takes."""

    def __init__(self, program: Any, spent: Spent) -> None:
        self.program, self.spent = program, spent
        self._boxed_call = True  # on the object itself, from where Dynamo copies it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def __call__(self, arguments: list[Any]) -> Any:
        if not self.spent.profiling:
            start = time.perf_counter()
            results = self.program(arguments)
            self.spent.inside += time.perf_counter() - start
            return results
        results, steps = self.program.profile(list(arguments))
        arguments.clear()
        self.spent.calls += sum(step[-1] for step in steps if "::" in step[2])
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
    own = program.clone()
    run = torch.compile(own.module, dynamic=own.dynamic, fullgraph=own.fullgraph, **how)
    step = stepper(own, run)
    step()
    return step


class Floor:
    """Seconds of a step that no backend changes, measured while it is stepped: in the calls
    of Intarsia's plans, and outside of its programs, where Dynamo, AOTAutograd and autograd
    work."""

    def __init__(self, program: Program, products: str) -> None:
        from intarsia import backend

        original = backend._compile_graph
        self.spent = Spent()
        self.calls: list[float] = []
        self.outside: list[float] = []

        def observed(*arguments: Any, **keywords: Any) -> Any:
            return Observed(original(*arguments, **keywords), self.spent)

        def another(*arguments: Any, **keywords: Any) -> Any:
            options = {"products": products}
            return lookup_backend("intarsia")(*arguments, options=options, **keywords)

        uncached = functorch_config.patch(enable_autograd_cache=False)
        with mock.patch.object(backend, "_compile_graph", observed), uncached:
            # What another backend has compiled is compiled again.
            self.step = compiled(program, backend=another)
            self.step()

    def step_calls(self) -> None:
        self.spent.profiling, self.spent.calls = True, 0.0
        self.step()
        self.calls.append(self.spent.calls)

    def step_outside(self) -> None:
        self.spent.profiling, self.spent.inside = False, 0.0
        start = time.perf_counter()
        self.step()
        self.outside.append(time.perf_counter() - start - self.spent.inside)


def peak_bytes(step: Step) -> int:
    """The most bytes of tensors that a training step holds at once, its gradients among
    them, beyond parameters and inputs."""
    kept = step()  # or the step would begin by freeing the gradients of the one before
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        step()
    events, changes = list(profile.kineto_results.experimental_event_tree()), []
    while events:
        event = events.pop()
        events += event.children
        if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    del kept
    return max(itertools.accumulate(size for _, size in sorted(changes)), default=0)


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


def peer_step(make: Callable[[Program], Callable[..., Any]], program: Program) -> Step:
    return stepper(program, make(program))


def candidates(program: Program, arguments: argparse.Namespace) -> dict[str, Callable[[], Step]]:
    """How to make the step of each candidate that is asked for."""
    own = program.clone()
    makers: dict[str, Callable[[], Step]] = {
        "eager": lambda: stepper(own, own.module),
        "intarsia": lambda: compiled(program, backend="intarsia"),
    }
    if not arguments.no_inductor:
        makers["inductor"] = lambda: compiled(program)
    if arguments.max_autotune:
        for backend in ("intarsia", "inductor"):
            makers[f"{backend}, max-autotune"] = functools.partial(
                compiled, program, backend=backend, mode="max-autotune-no-cudagraphs"
            )
    if arguments.with_peers:
        for name, make in PEERS.items():
            if name not in arguments.without:
                makers[name] = functools.partial(peer_step, make, program.clone())
    return makers


def copier(program: Program, results: list[torch.Tensor]) -> Step:
    """Reads and writes as many bytes as the program has inputs and results."""
    tensors = [x for inputs in program.inputs for x in tensors_of(inputs)] + results
    source = torch.zeros(sum(x.nbytes for x in tensors) // 2, dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: [target.copy_(source)]


def measure(
    name: str,
    make: Callable[[], Program],
    arguments: argparse.Namespace,
    interleaved: Callable[..., dict],
    is_kernel: bool,
) -> dict:
    """The row of one program."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    program = make()
    if arguments.dynamic:
        program.dynamic = True
    steps: dict[str, Step] = {}
    without: dict[str, str] = {}
    expected: list[torch.Tensor] = []
    bound = 0
    for candidate, make_step in candidates(program, arguments).items():
        try:
            with intarsia.record_compilations() as compilations:
                step = make_step()
            if candidate == "intarsia" and program.training and not program.dynamic:
                bound = lower_bound(compilations)
            step()
            got = step()
        except Exception as error:
            if candidate in ("eager", "intarsia", "inductor"):
                raise
            without[candidate] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        if candidate == "eager":
            expected = got
        elif problem := differs(got, expected):
            if candidate == "intarsia":
                raise SystemExit(f"{name}: {problem}")
            without[candidate] = f"wrong: {problem}"
            continue
        steps[candidate] = step
    count = len(program.inputs)
    floors = {products: Floor(program, products) for products in ("auto", "eager")}
    turns: dict[str, Callable[[], Any]] = dict(steps)
    turns |= {f"calls, {products}": floor.step_calls for products, floor in floors.items()}
    turns["outside"] = floors["auto"].step_outside
    if is_kernel:
        turns["copy"] = copier(program, expected)
    seconds = interleaved(turns, (), arguments.rounds, grad=program.training)
    least = seconds.pop("copy", 0.0)
    auto, eager = (max(least, statistics.median(f.calls)) / count for f in floors.values())
    peaks = {name: peak_bytes(step) for name, step in steps.items() if program.training}
    return {
        "group": "suite",
        "case": name,
        "seconds": {candidate: seconds[candidate] / count for candidate in steps},
        "floor": auto,
        "floor of eager's library": eager,
        "outside": statistics.median(floors["auto"].outside) / count,
        "peak": peaks,
        "lifetimes": bound,
        "without": without,
    }


def bench_suite(arguments: argparse.Namespace, interleaved: Callable[..., dict]) -> list[dict]:
    load_operators()
    return bench(PROGRAMS, arguments, interleaved, are_kernels=False)


def bench_micro(arguments: argparse.Namespace, interleaved: Callable[..., dict]) -> list[dict]:
    return bench(MICRO, arguments, interleaved, are_kernels=True)


def bench(
    programs: dict[str, Callable[[], Program]],
    arguments: argparse.Namespace,
    interleaved: Callable[..., dict],
    are_kernels: bool,
) -> list[dict]:
    warnings.simplefilter("ignore")
    rows = []
    for name, make in programs.items():
        if not arguments.only or arguments.only in name:
            try:
                rows.append(measure(name, make, arguments, interleaved, are_kernels))
            except ModuleNotFoundError as error:
                console.print(f"{name}: {error}; `./dev conformance programs` installs it")
                continue
            console.print(describe(rows[-1]), soft_wrap=True)
    if rows:
        console.print(table(rows))
    return rows


def describe(row: dict) -> str:
    times = [f"{name} {value * 1e3:.3f}" for name, value in row["seconds"].items()]
    floor = ", ".join(
        f"{what} {row[what] * 1e3:.3f}" for what in ("floor", "floor of eager's library", "outside")
    )
    lines = [f"{row['case']}: {', '.join(times)}, {floor} ms"]
    if row["peak"]:
        peaks = [f"{name} {value / 2**20:.1f}" for name, value in row["peak"].items()]
        bound = f"; by lifetimes {row['lifetimes'] / 2**20:.1f}" if row["lifetimes"] else ""
        lines.append(f"  peak memory: {', '.join(peaks)} MiB{bound}")
    return "\n".join(lines + [f"  no {name}: {why}" for name, why in row["without"].items()])


def table(rows: list[dict]) -> Table:
    """Ratios of the times, those of files to Intarsia's file, and of the times above the
    floor."""
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    peers = [name for name in names if name != "intarsia"]
    result = Table(title="Time per step, of Intarsia's")
    for heading in ("program", "intarsia (ms)", "floor (ms)", "outside (ms)", *peers):
        result.add_column(heading, justify="left" if heading == "program" else "right")
    for heading in ("above floor", "above floor and outside", "at most"):
        result.add_column(f"inductor, {heading}", justify="right")
    ratios: dict[str, list[float]] = {name: [] for name in peers}
    bounds: list[float] = []
    for row in rows:
        seconds, least = row["seconds"], row["floor"]
        cells = [row["case"]]
        cells += [f"{s * 1e3:.3f}" for s in (seconds["intarsia"], least, row["outside"])]
        for name in peers:
            is_file = name in FILES and name != "intarsia-file"
            own = seconds.get("intarsia-file" if is_file else "intarsia")
            if known := own is not None and name in seconds:
                ratios[name].append(seconds[name] / own)
            cells.append(f"{ratios[name][-1]:.2f}" if known else "-")
        if "inductor" in seconds:
            theirs = row["floor of eager's library"]
            for more in (0.0, row["outside"]):
                above = seconds["intarsia"] - least - more
                ratio = (seconds["inductor"] - theirs - more) / above if above > 0 else 0.0
                cells.append(f"{ratio:.2f}" if ratio > 0 else "-")
            bounds.append(seconds["inductor"] / (least + row["outside"]))
            cells.append(f"{bounds[-1]:.2f}")
        result.add_row(*cells)
    means = [
        f"{statistics.geometric_mean(ratios[name]):.2f}" if ratios[name] else "-" for name in peers
    ]
    bound = f"{statistics.geometric_mean(bounds):.2f}" if bounds else ""
    result.add_row("geometric mean", "", "", "", *means, "", "", bound)
    return result
