# ===- test_opcheck.py - The tests' operators are honest ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``torch.library.opcheck`` for the operators that the tests register.

What a test shows of an operator whose registration is wrong would mean nothing.
Operators that are wrong on purpose are left out.
"""

from __future__ import annotations

from typing import Any

import operators  # noqa: F401 (registers)
import pytest
import torch
from conftest import clone_inputs
from opaque_kinds import AOT_ALIAS, AOT_OPTIONAL, KINDS, WORKS
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """Notes each call of an operator of ours, with copies of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace in ("test", "kinds"):
            self.calls.append((func, *clone_inputs((args, kwargs))))
        return func(*args, **kwargs)


#: Everything needs AOTAutograd, and to give equal results twice.
DYNAMIC = "test_aot_dispatch_dynamic"
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def check(function: Any, inputs: tuple[Any, ...], checks: tuple[str, ...]) -> None:
    with Calls() as mode, torch.no_grad():
        function(*inputs)
    assert mode.calls
    seen = set()
    for op, args, kwargs in mode.calls:
        if op not in seen:
            seen.add(op)
            torch.library.opcheck(op, args, kwargs, test_utils=checks)


#: What opcheck itself does not take: it knows no lists of dtypes or layouts, no arguments
#: called "input" beside a "self", and none called like a word of Python. The last it refuses,
#: as we do.
NOT_TAKEN = (
    *("ScalarType[]", "Layout[]", "named self", "named like Python", "one tensor twice"),
    "quantized tensor",
)


#: Of the groups whose kinds are others' operators, or one operator in many places.
NO_GROUPS = ("registrations", "surroundings")
TAKEN = [k for k in KINDS if k.name not in NOT_TAKEN and k.group not in NO_GROUPS]


@pytest.mark.parametrize("kind", TAKEN, ids=str)
def test_kinds(kind):
    checks = CHECKS
    # AOTAutograd alone refuses what it does not functionalise; our graphs are cut there.
    refused = kind.doors.get("functional") in (AOT_ALIAS, AOT_OPTIONAL)
    traced = kind.doors["compile"] == WORKS and not refused
    if traced and kind.group == "mutation":
        checks += (DYNAMIC,)
    check(kind.function, kind.inputs(), checks)


X = torch.linspace(-1, 1, 6).view(2, 3)
CALLS = {
    "scaled_tanh": (X, 2.0),
    "put_": (torch.zeros(4, 3), torch.tensor([2, 0]), X),
    "add_into_": (X, X * 2),
    "split3": (X, [X + 1]),
    "nonzero_rows": (X,),
    "count_positive": (X,),
    "rows": (X, 3),
    "record": (X,),
    "wants_columns": (X,),
    "draw": (3,),
    "maybe": (X, True),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators(name):
    op = getattr(torch.ops.test, name).default
    # Random numbers differ from call to call.
    checks = CHECKS if name == "draw" else (*CHECKS, DYNAMIC)
    check(op, clone_inputs(CALLS[name]), checks)
