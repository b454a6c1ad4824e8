# ===- test_operator_facts.py - What operators really do --------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The compiler's facts about operators, against operators that are watched.

Each operator is run on PyTorch's own samples while the storages, version
counters and contents of its arguments, and the state of the random generator,
are observed. Whatever it does, the compiler must believe that it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from intarsia import _C

aten = torch.ops.aten


def facts_of(op: torch._ops.OpOverload) -> dict[str, Any]:
    schema = op._schema
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    return _C.operator_facts(name)


def strided_tensors(value: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    ]


def storages(value: Any) -> set[int]:
    return {
        t.untyped_storage()._cdata for t in strided_tensors(value) if t.untyped_storage().nbytes()
    }


def same_contents(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    equal = a == b
    if a.is_floating_point():
        equal |= a.isnan() & b.isnan()
    return bool(equal.all())


def observe(op: torch._ops.OpOverload, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, set]:
    """Runs the operator; returns its result and what it was seen to do."""
    schema = op._schema
    given = {
        a.name: kwargs.get(a.name, args[i] if i < len(args) else None)
        for i, a in enumerate(schema.arguments)
    }
    before = {
        name: [(t, t._version, t.detach().clone()) for t in strided_tensors(value)]
        for name, value in given.items()
    }
    shared = {name: storages(value) for name, value in given.items()}
    generator = torch.get_rng_state()
    result = op(*args, **kwargs)

    seen: set[tuple] = set()
    if not torch.equal(generator, torch.get_rng_state()):
        seen.add(("random",))
    for name, tensors in before.items():
        for tensor, version, contents in tensors:
            if tensor.shape != contents.shape:
                continue
            if tensor._version != version or not same_contents(tensor.detach(), contents):
                seen.add(("mutates", name))
    results = result if isinstance(result, tuple) and len(schema.returns) > 1 else (result,)
    for index, value in enumerate(results):
        for storage in storages(value):
            # Arguments may share a storage among themselves.
            if names := tuple(n for n, s in shared.items() if storage in s):
                seen.add(("aliases", index, names))
    return result, seen


def surprises(op: torch._ops.OpOverload, seen: set) -> set:
    """What was seen and is not believed."""
    facts = facts_of(op)

    def believed(kind: str, *details: Any) -> bool:
        if kind == "random":
            return facts["random"]
        if kind == "mutates":
            return details[0] in facts["mutated"]
        index, names = details
        fact = facts["returns"][index]
        return any(name in fact["views"] or name == fact["tied"] for name in names)

    return {fact for fact in seen if not believed(*fact)}


class Watch(TorchDispatchMode):
    """Watches the operators below autograd and composite ones."""

    def __init__(self) -> None:
        super().__init__()
        self.surprises: dict[str, set] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, seen = observe(func, args, kwargs or {})
        if found := surprises(func, seen):
            self.surprises.setdefault(str(func), set()).update(found)
        return result


def samples(info: Any) -> Iterator[tuple[tuple, dict[str, Any]]]:
    for dtype in (torch.float32, torch.int64):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        try:
            inputs = list(info.sample_inputs("cpu", dtype))
        except Exception:  # a sample that this build of PyTorch cannot make
            continue
        for sample in inputs[:1]:
            yield (sample.input, *sample.args), sample.kwargs


@pytest.mark.filterwarnings("ignore")
def test_no_operator_does_what_is_not_believed() -> None:
    torch.manual_seed(0)
    found: dict[str, set] = {}
    watched = 0
    for info in op_db:
        for args, kwargs in samples(info):
            watch = Watch()
            try:
                with watch, torch.no_grad():
                    info.op(*args, **kwargs)
            except Exception:  # samples may be refused; what ran was watched
                pass
            found.update(watch.surprises)
            # The operator itself, which dispatch modes never see if it is composite.
            try:
                overload = torch._C._jit_resolve_packet(f"aten::{info.aten_name}", *args, **kwargs)
                op = getattr(getattr(aten, info.aten_name), overload or "default")
                with torch.no_grad():
                    _, seen = observe(op, args, kwargs)
            except Exception:  # not an operator of that name and those arguments
                continue
            if not torch._C._dispatch_has_kernel(op.name()):
                continue  # TorchScript's alone
            watched += 1
            if unexpected := surprises(op, seen):
                found.setdefault(str(op), set()).update(unexpected)
    assert watched > 500
    assert not found


X = torch.arange(12.0).reshape(3, 4)
STATS = (torch.zeros(4), torch.ones(4))


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        (
            aten.batch_norm.default,
            (X, None, None, *STATS, True, 0.1, 1e-5, False),
            {("mutates", "running_mean"), ("mutates", "running_var")},
        ),
        (aten.dropout.default, (X, 0.5, False), {("aliases", 0, ("input",))}),
        (aten.contiguous.default, (X,), {("aliases", 0, ("self",))}),
        (aten.to.dtype, (X, torch.float32), {("aliases", 0, ("self",))}),
        (aten.reshape.default, (X, [12]), {("aliases", 0, ("self",))}),
        (aten.type_as.default, (X, X.clone()), {("aliases", 0, ("self",))}),
        (aten.expand_as.default, (X, X.clone()), {("aliases", 0, ("self",))}),
        (aten.einsum.default, ("ij->ji", [X]), {("aliases", 0, ("tensors",))}),
        (aten._unsafe_view.default, (X, [12]), {("aliases", 0, ("self",))}),
        (aten.atleast_2d.default, (X,), {("aliases", 0, ("self",))}),
        (aten.conj_physical.default, (X,), {("aliases", 0, ("self",))}),
        (aten.split.Tensor, (X, 2), {("aliases", 0, ("self",))}),
        (aten.rand.default, ([2],), {("random",)}),
    ],
    ids=lambda value: str(value) if isinstance(value, torch._ops.OpOverload) else "",
)
def test_seen_and_believed(op: torch._ops.OpOverload, args: tuple, expected: set) -> None:
    """The facts that PyTorch does not declare happen, and are believed."""
    with torch.no_grad():
        _, seen = observe(op, args, {})
    assert expected <= seen
    assert not surprises(op, seen)


@pytest.mark.parametrize("op", [aten.add.Tensor, aten.clone.default, aten._to_copy.default])
def test_plain_operators_are_plain(op: torch._ops.OpOverload) -> None:
    facts = facts_of(op)
    assert not facts["mutated"]
    assert not facts["random"]
    assert not facts["effectful"]
    assert all(not r["views"] and r["tied"] is None for r in facts["returns"])
