# ===- test_optimisers.py - Compiled steps of torch.optim's optimizers --------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``torch.compile(optimizer.step)`` for every optimizer of torch.optim."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import intarsia
from intarsia import decompositions

OPTIMISERS = sorted(
    name
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value)
    and issubclass(value, torch.optim.Optimizer)
    and value is not torch.optim.Optimizer
)

#: What Dynamo leaves to Python: their steps read numbers out of tensors, or sparse ones.
NOT_COMPILED = {"Adafactor", "LBFGS", "SparseAdam"}

OPTIONS: dict[str, dict[str, Any]] = {
    "AdamW": {"amsgrad": True, "maximize": True},
    "NAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
}


def steps(name: str, compiled: bool, **options: Any) -> tuple[list[Any], list[Any]]:
    """The parameters and states after three steps, and what was compiled."""
    torch.manual_seed(0)
    shapes = [(6, 3), (4, 5)] if name == "Muon" else [(6, 3), (4,)]
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    optimiser = getattr(torch.optim, name)(parameters, lr=0.05, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = sum((p.sin() ** 2).sum() for p in parameters)
        loss.backward()
        return loss

    step = torch.compile(optimiser.step, backend="intarsia") if compiled else optimiser.step
    with intarsia.record_compilations() as compilations:
        for _ in range(3):
            closure()
            if name == "SparseAdam":
                for p in parameters:
                    p.grad = p.grad.to_sparse()
            step(closure) if name == "LBFGS" else step()
            schedule.step()
    states = [optimiser.state[p] for p in parameters]
    return [[p.detach() for p in parameters], states], compilations


def has_foreach(name: str) -> bool:
    return "foreach" in inspect.signature(getattr(torch.optim, name)).parameters


@pytest.mark.parametrize(
    "name, foreach",
    [(name, False) for name in OPTIMISERS] + [(n, True) for n in OPTIMISERS if has_foreach(n)],
)
def test_a_compiled_step_is_eagers(name: str, foreach: bool) -> None:
    options = dict(OPTIONS.get(name, {}))
    if foreach:
        options["foreach"] = True
    want, _ = steps(name, False, **options)
    got, compilations = steps(name, True, **options)
    # Compiled, Adam's bias correction is a float32 tensor.
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    if name in NOT_COMPILED:
        return
    plan = compilations[-1].program.plan_text
    assert "launch 0" in plan
    assert "call aten::_foreach" not in plan


def test_lists_of_tensors() -> None:
    """Each operator on lists that is taken apart gives what eager's gives."""
    lists = [[torch.rand(3, 2) + 0.1, torch.rand(4) + 0.1] for _ in range(3)]
    values = {"Tensor": torch.tensor(0.5), "number": 2.0, "List[number]": [0.5, 2.0]}

    def arguments(op: torch._ops.OpOverload) -> list[Any]:
        tensors = iter(lists)
        kinds = [str(a.type) for a in op._schema.arguments if not a.kwarg_only]
        kinds = [kind for kind in kinds if kind not in ("bool", "Optional[int]")]
        return [next(tensors) if kind == "List[Tensor]" else values[kind] for kind in kinds]

    operators = [op for op in decompositions.table() if "_foreach_" in str(op)]
    calls = [(op, arguments(op)) for op in operators]
    want = [op(*given) for op, given in calls]
    with intarsia.record_compilations() as compilations:
        compiled = torch.compile(
            lambda: [op(*given) for op, given in calls], backend="intarsia", fullgraph=True
        )
        got = compiled()
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    assert "call aten::_foreach" not in compilations[0].program.plan_text
