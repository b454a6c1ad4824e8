# ===- suite.py - Whole programs beside eager and Inductor --------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Times the programs of `programs.py`, and what of their time nobody can save.

A profiler, less its own time, divides the steps of Intarsia and Inductor: calls of libraries
and registered operators; kernels that were compiled; the rest of the compiled programs, which
allocate and call; and what passes outside of them, in Dynamo's guards, AOTAutograd, autograd
and Python. Kernels and the rest are above the floor: what a compiler is to blame for. The
floor is Intarsia's calls, or what copying the bytes takes that a kernel reads or writes once;
Inductor's time over it and what is outside is the most that its time can be a multiple of a
compiler's. Of training steps the peak memory is told, too, and the least that the plans'
lifetimes allow.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from build_operators import operator_library
from chart import console
from lifetimes import lower_bound
from micro import MICRO
from peers import FILES, PEERS
from programs import PROGRAMS, Program, load_operators
from rich.table import Table
from torch._C._profiler import _EventType
from torch._dynamo.backends.registry import lookup_backend
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx

import intarsia
from intarsia import backend

Step = Callable[[], list[torch.Tensor]]


#: What a step is divided into; see above.
PARTS = ("calls", "kernels", "rest", "outside")


class Spent(ctypes.Structure):
    """As `profiler.cpp` declares it."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("calls", "kernels", "events"))


@functools.cache
def profiler() -> ctypes.CDLL:
    library = ctypes.CDLL(str(operator_library("profiler")))
    library.overhead.restype = ctypes.c_double
    return library


class Observed:
    """A compiled program that tells the profiler when it runs, and adds up its seconds."""

    seconds = 0.0  # of all

    def __init__(self, program: Any) -> None:
        self.program = program
        self._boxed_call = True  # on the object itself, from where Dynamo copies it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def __call__(self, arguments: list[Any]) -> Any:
        profiler().enter()
        start = time.perf_counter()
        try:
            return self.program(arguments)
        finally:
            Observed.seconds += time.perf_counter() - start
            profiler().leave()


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


def observed(compile_graph: Callable[..., Any]) -> Callable[..., Observed]:
    return lambda *arguments, **keywords: Observed(compile_graph(*arguments, **keywords))


def observed_intarsia(*arguments: Any, **keywords: Any) -> Any:
    return lookup_backend("intarsia")(*arguments, **keywords)


def observed_inductor(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    reporting = {"cpp.enable_kernel_profile": True}
    inner = observed(compile_fx.compile_fx_inner)
    return compile_fx.compile_fx(gm, inputs, inner_compile=inner, config_patches=reporting)


class Profile:
    """Seconds of each part of a backend's steps, one entry a step."""

    def __init__(self, program: Program, compiler: Callable[..., Any]) -> None:
        self.parts: dict[str, list[float]] = {part: [] for part in PARTS}
        self.overhead = min(profiler().overhead() for _ in range(5))  # nanoseconds an event
        graphs = mock.patch.object(backend, "_compile_graph", observed(backend._compile_graph))
        # What another backend has compiled is compiled again.
        with graphs, functorch_config.patch(enable_autograd_cache=False):
            self.run = compiled(program, backend=compiler)
            self.run()

    def step(self) -> None:
        spent = Spent.in_dll(profiler(), "spent")
        spent.calls = spent.kernels = spent.events = 0
        Observed.seconds = 0.0
        profiler().observe(True)
        start = time.perf_counter()
        self.run()
        total = time.perf_counter() - start
        profiler().observe(False)
        calls, kernels = 1e-9 * spent.calls, 1e-9 * spent.kernels
        own = 1e-9 * self.overhead * spent.events
        programs = Observed.seconds
        parts = (calls, kernels, programs - calls - kernels - own, total - programs)
        for part, seconds in zip(PARTS, parts, strict=True):
            self.parts[part].append(seconds)


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
    profiles = {"intarsia": Profile(program, observed_intarsia)}
    if "inductor" in steps:
        profiles["inductor"] = Profile(program, observed_inductor)
    turns: dict[str, Callable[[], Any]] = dict(steps)
    turns |= {f"{name}, profiled": profile.step for name, profile in profiles.items()}
    if is_kernel:
        turns["copy"] = copier(program, expected)
    seconds = interleaved(turns, (), arguments.rounds, grad=program.training)
    peaks = {name: peak_bytes(step) for name, step in steps.items() if program.training}
    parts = {
        name: {part: statistics.median(spent) / count for part, spent in profile.parts.items()}
        for name, profile in profiles.items()
    }
    return {
        "group": "suite",
        "case": name,
        "seconds": {candidate: seconds[candidate] / count for candidate in steps},
        "parts": parts,
        "floor": max(parts["intarsia"]["calls"], seconds.get("copy", 0.0) / count),
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
    wanted = [name for name in programs if not arguments.only or arguments.only in name]
    if not wanted:
        raise SystemExit(f"no name has {arguments.only!r}; there are {', '.join(programs)}")
    rows = []
    for name in wanted:
        try:
            rows.append(measure(name, programs[name], arguments, interleaved, are_kernels))
        except ModuleNotFoundError as error:
            console.print(f"{name}: {error}; `./dev conformance programs` installs it")
            continue
        console.print(describe(rows[-1]), soft_wrap=True)
    if rows:
        console.print(table(rows))
    return rows


def describe(row: dict) -> str:
    times = [f"{name} {value * 1e3:.3f}" for name, value in row["seconds"].items()]
    lines = [f"{row['case']}: {', '.join(times)} ms"]
    for name, parts in row["parts"].items():
        spent = ", ".join(f"{part} {seconds * 1e3:.3f}" for part, seconds in parts.items())
        lines.append(f"  {name}, profiled: {spent}")
    if row["peak"]:
        peaks = [f"{name} {value / 2**20:.1f}" for name, value in row["peak"].items()]
        bound = f"; by lifetimes {row['lifetimes'] / 2**20:.1f}" if row["lifetimes"] else ""
        lines.append(f"  peak memory: {', '.join(peaks)} MiB{bound}")
    return "\n".join(lines + [f"  no {name}: {why}" for name, why in row["without"].items()])


def above_floor(row: dict, name: str) -> float:
    return row["parts"][name]["kernels"] + row["parts"][name]["rest"]


def table(rows: list[dict]) -> Table:
    """Ratios of the times, those of files to Intarsia's file, and of the times above the
    floor."""
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    peers = [name for name in names if name != "intarsia"]
    result = Table(title="Time per step, of Intarsia's")
    columns = ["intarsia (ms)", "floor (ms)", "above floor (ms)", "outside (ms)", *peers]
    for heading in ("program", *columns, "inductor, above floor", "inductor, at most"):
        result.add_column(heading, justify="left" if heading == "program" else "right")
    ratios: dict[str, list[float]] = {name: [] for name in (*peers, "above floor", "at most")}
    for row in rows:
        seconds, outside = row["seconds"], row["parts"]["intarsia"]["outside"]
        own = (seconds["intarsia"], row["floor"], above_floor(row, "intarsia"), outside)
        found = dict.fromkeys(ratios, 0.0)
        for name in peers:
            is_file = name in FILES and name != "intarsia-file"
            beside = seconds.get("intarsia-file" if is_file else "intarsia")
            if beside is not None and name in seconds:
                found[name] = seconds[name] / beside
        if "inductor" in seconds:
            found["above floor"] = above_floor(row, "inductor") / above_floor(row, "intarsia")
            found["at most"] = seconds["inductor"] / (row["floor"] + outside)
        for name, ratio in found.items():
            ratios[name] += [ratio] if ratio else []
        cells = [f"{s * 1e3:.3f}" for s in own] + [f"{x:.2f}" if x else "-" for x in found.values()]
        result.add_row(row["case"], *cells)
    means = [f"{statistics.geometric_mean(x):.2f}" if x else "-" for x in ratios.values()]
    result.add_row("geometric mean", "", "", "", "", *means)
    return result
