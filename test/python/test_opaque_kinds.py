# ===- test_opaque_kinds.py - Every kind, at every door ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Each kind of operator in `opaque_kinds`, eager against compiled, at each door.

Kinds that work share graphs, as operators do in programs, and because tracing a graph
takes longer than running it. When a shared graph fails, each of its kinds is tried in
a graph of its own, so that the failure is that of a kind.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import assert_same, clone_inputs
from opaque_kinds import KINDS, SEEN, WORKS, Kind, sizes_of
from torch.utils import _pytree as pytree

import intarsia

_TOGETHER = 12


@dataclass
class Seen:
    """All that a user or the kernel could notice of one call of one kind."""

    output: Any
    inputs: Any
    grads: Any
    kernel: list[Any]  # what it saw, and the order of all kernels' calls
    random: torch.Tensor


class Together(torch.nn.Module):
    """The functions of some kinds as one."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        super().__init__()
        self.functions = [kind.function for kind in kinds]

    def forward(self, *inputs):
        return [f(*i) for f, i in zip(self.functions, inputs, strict=True)]


def observe(function: Any, kinds: tuple[Kind, ...], training: bool) -> list[Seen]:
    inputs = tuple(clone_inputs(kind.inputs()) for kind in kinds)
    leaves = pytree.tree_leaves(inputs)
    if training:
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
    SEEN.clear()
    torch.manual_seed(1)
    with torch.set_grad_enabled(training):
        output = function(*inputs)
    if training:
        given = [size for size in sizes_of(output) if size.requires_grad]
        if given:
            sum(given).backward()
    random = torch.rand(1)
    order = [name for name, _ in SEEN]
    return [
        Seen(
            output[i],
            inputs[i],
            [t.grad for t in pytree.tree_leaves(inputs[i]) if isinstance(t, torch.Tensor)],
            [[data for name, data in SEEN if name == kind.name], order],
            random,
        )
        for i, kind in enumerate(kinds)
    ]


def build(kinds: tuple[Kind, ...], door: str, fuse: bool) -> Any:
    torch._dynamo.reset()
    together = Together(kinds)
    dynamic = kinds[0].dynamic
    if door in ("compile", "training"):
        return torch.compile(
            together,
            backend="intarsia",
            fullgraph=True,
            dynamic=dynamic or None,
            options={"fuse": fuse},
        )
    inputs = tuple(clone_inputs(kind.inputs()) for kind in kinds)
    shapes = None
    if dynamic:
        every = torch.export.Dim.AUTO
        shapes = pytree.tree_map(
            lambda t: (every,) * t.dim() if isinstance(t, torch.Tensor) else None, (inputs,)
        )
    program = torch.export.export(together, inputs, dynamic_shapes=shapes)
    if door == "functional":
        program = program.run_decompositions({})
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "exported.pt2", Path(folder) / "compiled.pt2"
        torch.export.save(program, source)
        intarsia.aot_compile(source, target, fuse=fuse)
        return intarsia.load(target)


Outcome = tuple[Seen, list[Seen]]


def run(kinds: tuple[Kind, ...], door: str, fuse: bool) -> dict[str, Outcome]:
    """What eager does for each kind, and what two calls of the compiled function do."""
    training = door == "training"
    want = observe(Together(kinds), kinds, training)
    compiled = build(kinds, door, fuse)
    calls = [observe(compiled, kinds, training) for _ in range(2)]
    return {k.name: (want[i], [call[i] for call in calls]) for i, k in enumerate(kinds)}


@functools.cache
def run_or_fail(kinds: tuple[Kind, ...], door: str, fuse: bool) -> dict[str, Outcome] | None:
    try:
        return run(kinds, door, fuse)
    except Exception:
        return None


@functools.cache
def companions(door: str) -> dict[tuple[str, str], tuple[Kind, ...]]:
    """The kinds that share a graph with each kind, itself included."""
    result = {}

    def shared(kind: Kind) -> tuple[str, bool, str]:
        return kind.group, kind.dynamic, kind.name if kind.alone else ""

    kinds = sorted((k for k in KINDS if k.doors.get(door) == WORKS), key=shared)
    for _, group in itertools.groupby(kinds, shared):
        members = tuple(group)
        for start in range(0, len(members), _TOGETHER):
            chunk = members[start : start + _TOGETHER]
            result.update({(k.group, k.name): chunk for k in chunk})
    return result


def check(kind: Kind, outcome: Outcome) -> None:
    want, calls = outcome
    for got in calls:
        assert_same(got.output, want.output)
        assert_same(got.inputs, want.inputs)
        assert_same(got.grads, want.grads)
        assert torch.equal(got.random, want.random), "the random stream differs"
        data, order = want.kernel
        assert got.kernel[0] == [kind.promise(d) for d in data]
        # What another kind of the graph does wrong is not this one's fault.
        both = [n for n in set(order) if order.count(n) == got.kernel[1].count(n)]
        assert [n for n in got.kernel[1] if n in both] == [n for n in order if n in both]


def check_door(kind: Kind, door: str, fuse: bool) -> None:
    refusal = kind.refusal(door)
    if refusal is not None:
        with pytest.raises(Exception, match=refusal[1]):
            run((kind,), door, fuse)
    elif kind.doors[door] != WORKS:
        with pytest.raises(AssertionError):
            check(kind, run((kind,), door, fuse)[kind.name])
    else:
        together = companions(door)[kind.group, kind.name]
        outcomes = run_or_fail(together, door, fuse) or run((kind,), door, fuse)
        check(kind, outcomes[kind.name])


def cases(door: str) -> pytest.MarkDecorator:
    kinds = [k for k in KINDS if door in k.doors]
    return pytest.mark.parametrize("kind", kinds, ids=[f"{k.group}: {k.name}" for k in kinds])


@cases("compile")
def test_compile(kind, fuse):
    check_door(kind, "compile", fuse)


@cases("training")
def test_training(kind, fuse):
    check_door(kind, "training", fuse)


@cases("export")
def test_export(kind):
    check_door(kind, "export", True)


@cases("functional")
def test_functional_export(kind):
    check_door(kind, "functional", True)
