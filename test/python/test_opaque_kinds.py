# ===- test_opaque_kinds.py - Every kind, at every door ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Each kind of operator in `opaque_kinds`, eager against compiled, at each door."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import assert_same, clone_inputs
from opaque_kinds import KINDS, SEEN, Kind
from torch.utils import _pytree as pytree

import intarsia


def _cases(door: str) -> list[Any]:
    return [pytest.param(kind, id=kind.name) for kind in KINDS if door in kind.doors]


def _observed(function: Any, kind: Kind, *, training: bool = False) -> Any:
    """All that a user, or the kernels, could notice of one call."""
    inputs = clone_inputs(kind.inputs())
    if training:
        for leaf in pytree.tree_leaves(inputs):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
    SEEN.clear()
    torch.manual_seed(1)
    with torch.set_grad_enabled(training):
        output = function(*inputs)
    grads = None
    if training:
        tensors = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
        sum((t * t).sum() for t in tensors if t.requires_grad).backward()
        grads = [t.grad for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    return (output, inputs, grads, torch.rand(1)), list(SEEN)


def _compare(kind: Kind, compiled: Any, *, training: bool = False) -> None:
    want, want_seen = _observed(kind.function, kind, training=training)
    for _ in range(2):
        got, got_seen = _observed(compiled, kind, training=training)
        assert_same(got, want)
        assert got_seen == want_seen


def _expect(kind: Kind, door: str) -> Any:
    """Nothing, or the refusal that the table records."""
    refusal = kind.refusal(door)
    if refusal is None:
        return None
    return pytest.raises(Exception, match=refusal[1])


@pytest.mark.parametrize("kind", _cases("compile"))
def test_compile(kind, compile_with):
    _through_torch_compile(kind, "compile", compile_with)


@pytest.mark.parametrize("kind", _cases("training"))
def test_training(kind, compile_with):
    _through_torch_compile(kind, "training", compile_with)


def _through_torch_compile(kind: Kind, door: str, compile_with: Any) -> None:
    compiled = compile_with(kind.function, dynamic=kind.dynamic or None)
    training = door == "training"
    if (refused := _expect(kind, door)) is not None:
        with refused:
            _observed(compiled, kind, training=training)
        return
    _compare(kind, compiled, training=training)


class _Module(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("functional", [False, True], ids=["training-ir", "functional"])
@pytest.mark.parametrize("kind", _cases("export"))
def test_export(kind, functional, tmp_path):
    def go() -> Any:
        inputs = clone_inputs(kind.inputs())
        shapes = None
        if kind.dynamic:
            shapes = pytree.tree_map(
                lambda t: (
                    (torch.export.Dim.AUTO,) * t.dim() if isinstance(t, torch.Tensor) else None
                ),
                (inputs,),
            )
        program = torch.export.export(_Module(kind.function), inputs, dynamic_shapes=shapes)
        if functional:
            program = program.run_decompositions({})
        torch.export.save(program, tmp_path / "exported.pt2")
        intarsia.aot_compile(tmp_path / "exported.pt2", tmp_path / "compiled.pt2")
        return intarsia.load(tmp_path / "compiled.pt2")

    if (refused := _expect(kind, "export")) is not None:
        with refused:
            go()
        return
    with torch.no_grad():
        _compare(kind, go())
