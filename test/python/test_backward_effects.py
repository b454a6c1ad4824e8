# ===- test_backward_effects.py - What runs when, in training -----------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Effects in backward formulas and checkpointed regions: as often as in eager, in the
same part, in the same order, on the same values, with the same random numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from conftest import assert_same
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import intarsia

SEEN: list[tuple[str, float]] = []

library = torch.library.Library("steps", "FRAGMENT")


def register(
    schema: str,
    kernel: Callable,
    backward: Callable | None = None,
    fake: Callable | None = None,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    name = schema.partition("(")[0]
    library.define(schema, tags=tags)
    library.impl(name, kernel, "CompositeExplicitAutograd")
    fake = fake or (lambda x, *_: None if schema.endswith("()") else torch.empty_like(x))
    torch.library.register_fake(f"steps::{name}", fake, lib=library)
    if backward is not None:
        torch.library.register_autograd(
            f"steps::{name}",
            backward,
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], output),
            lib=library,
        )
    return getattr(torch.ops.steps, name)


def look(x: Tensor, label: str) -> None:
    SEEN.append((label, round(float(x.sum()), 3)))


def double(label: str) -> Callable[[Tensor], Tensor]:
    def kernel(x):
        look(x, label)
        return x * 2

    return kernel


note = register("note(Tensor x, str label) -> ()", look)
copy = register("copy(Tensor x, str label) -> Tensor", lambda x, s: (look(x, s), x.clone())[1])


def reads_gradient(ctx, grad):
    note(grad, "gradient")
    return grad * 2


def reads_saved(ctx, grad):
    note(ctx.saved_tensors[0], "saved")
    return grad * 2


def reads_all(ctx, grad):
    x, y = ctx.saved_tensors
    copy(x, "unused of saved")
    grad = copy(grad, "used")
    copy(y, "unused of result")
    return grad * 2


def uses_saved(ctx, grad):
    return grad * copy(ctx.saved_tensors[0], "used of saved")


def draws(ctx, grad):
    x, y = ctx.saved_tensors
    return grad * (y.detach() / x.detach())


a = register("a(Tensor x) -> Tensor", double("a"), reads_gradient)
b = register("b(Tensor x) -> Tensor", double("b"), reads_saved)
c = register("c(Tensor x) -> Tensor", double("c"), reads_all)
d = register("d(Tensor x) -> Tensor", double("d"), uses_saved)
random = register("random(Tensor x) -> Tensor", lambda x: x * torch.rand(3), draws)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        note(x, "forward")
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        note(ctx.saved_tensors[0], "backward, saved")
        copy(grad, "backward, gradient")
        return grad * 3


def draws(ctx, grad):
    torch.rand(2)  # moves the stream
    return torch.nn.functional.dropout(grad, 0.5) * torch.randint(1, 9, (3,)) * torch.rand(())


drawn = register("drawn(Tensor x) -> Tensor", lambda x: x * 2, draws)
drawn_too = register(
    "drawn_too(Tensor x) -> Tensor",
    lambda x: x + torch.rand_like(x),
    lambda ctx, grad: random(grad) * torch.rand(3),
)


seeded = register(
    "seeded(Tensor x) -> Tensor",
    lambda x: (look(x, "seeded"), x * torch.rand_like(x))[1],
    lambda ctx, grad: grad * ctx.saved_tensors[0],
    tags=(torch.Tag.nondeterministic_seeded,),
)


class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    backward = staticmethod(draws)


def again(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: checkpoint(f, x, use_reentrant=False)


def keeps_d(ctx, op, *args, **kwargs):
    keep = op == torch.ops.steps.d.default
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


saves_d = functools.partial(create_selective_checkpoint_contexts, keeps_d)


def selected(x: Tensor) -> Tensor:
    def region(x):
        return seeded(d(seeded(x)).sin()).cos() * torch.rand_like(x)

    return checkpoint(region, x, use_reentrant=False, context_fn=saves_d)


def noted(x: Tensor) -> Tensor:
    note(x, "first")
    y = x.sin()
    note(y, "middle")
    z = y.exp()
    # After the last tensor that is saved: eager does not come so far again.
    note(z, "last")
    return z


PROGRAMS = {
    "unused in a formula": lambda x: a(x.sin()),
    "unused, of a saved tensor": lambda x: b(x.sin()),
    "used and unused": lambda x: c(x.sin()).exp(),
    "used, of a saved tensor": lambda x: d(x.sin()).exp(),
    "several formulas": lambda x: c(b(a(x.sin()).exp()).cos()),
    "autograd.Function": lambda x: Function.apply(x.sin()),
    "both": lambda x: d(Function.apply(c(x.sin())).exp()),
    "checkpoint": again(noted),
    "checkpoint, used in the forward": again(lambda x: copy(x.detach(), "n") + x.sin().exp()),
    "checkpoint, a formula": again(lambda x: d(x.sin()).exp()),
    "checkpoint, autograd.Function": again(lambda x: Function.apply(x.sin()).exp()),
    "checkpoint, nothing saved": again(lambda x: (note(x, "n"), x + 1)[1]),
    # Eager's branches run again in the backward.
    "a branch beside a formula": lambda x: (
        torch.cond(x.sum() > 0, lambda x: copy(x.sin(), "n") * 2, lambda x: x * 3, (x,)) + d(x)
    ),
    "two checkpoints": lambda x: again(noted)(again(noted)(x)),
    "two checkpoints, not one behind the other": lambda x: again(lambda x: a(x).sin())(
        again(lambda x: d(x).sin())(x) * 2
    ),
    "selective checkpoint": selected,
    "checkpoint, then not": lambda x: d(again(noted)(x)).exp() + Function.apply(x),
    "checkpoint, random": again(lambda x: random(x.sin()).exp()),
    "checkpoint, more random": again(
        lambda x: (torch.rand(2), random(x.sin()) * random(x.exp()).exp())[1]
    ),
    "random formulas": lambda x: drawn(Draws.apply(drawn_too(x).sin()).exp()) * torch.rand_like(x),
    "checkpoint, random formulas": again(
        lambda x: drawn_too(drawn(torch.nn.functional.dropout(x, 0.5)).sin()).exp()
    ),
    "two random formulas": lambda x: drawn(drawn(x).sin()),
    "region, two random formulas": torch.compiler.nested_compile_region(
        lambda x: drawn(drawn_too(x).sin())
    ),
    "region, random formula": torch.compiler.nested_compile_region(lambda x: drawn_too(x).sin()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_runs_what_eager_runs(name, compile_with):
    program = PROGRAMS[name]
    results = []
    for function in (program, compile_with(program)):
        for _ in range(2):
            SEEN.clear()
            torch.manual_seed(3)
            x = torch.linspace(0.1, 1, 3).requires_grad_()
            y = function(x).sum()
            SEEN.append(("backward", 0.0))
            torch.rand(1)
            y.backward()
        results.append((y, x.grad, torch.rand(1), [label for label, _ in SEEN], dict(SEEN)))
    (want, got) = results
    assert got[3] == want[3]
    assert got[4] == pytest.approx(want[4], rel=1e-4)
    assert_same(got[:2], want[:2])
    assert torch.equal(got[2], want[2]), "the random stream differs"


class Branches(torch.nn.Module):
    def forward(self, x):
        def positive(x):
            note(x, "positive")
            return x.sin()

        def negative(x):
            note(x, "negative")
            return x.cos()

        return torch.cond(x.sum() > 0, positive, negative, (x,))


def test_exported_branches_keep_what_is_unused(fuse, tmp_path):
    program = intarsia.export(Branches(), (torch.ones(3),))
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse))
    for x in (torch.ones(3), -torch.ones(3)):
        SEEN.clear()
        want = Branches()(x)
        seen = list(SEEN)
        SEEN.clear()
        assert_same(loaded(x), want)
        assert SEEN == seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_may_come_late_often_or_never(dynamic, compile_with):
    function = compile_with(PROGRAMS["several formulas"], dynamic=dynamic)
    x = torch.linspace(0.1, 1, 3).requires_grad_()
    SEEN.clear()
    function(x)
    first = function(x).sum()
    assert [label for label, _ in SEEN] == ["a", "b", "c"] * 2
    SEEN.clear()
    first.backward(retain_graph=True)
    first.backward()
    once = ["unused of saved", "used", "unused of result", "saved", "gradient"]
    assert [label for label, _ in SEEN] == once * 2


@torch.library.custom_op("steps::count_", mutates_args=("counter",))
def count_(counter: Tensor, x: Tensor) -> None:
    counter += x.sum()


def counts(ctx, grad):
    counter = torch.zeros(())
    count_(counter, ctx.saved_tensors[0])
    return grad * counter


counting = register("counting(Tensor x) -> Tensor", double("counting"), counts)


def test_a_formula_that_writes(check):
    check(
        lambda x: counting(x.sin()).exp(),
        [torch.linspace(0.1, 1, 3).requires_grad_()],
        training=True,
    )
