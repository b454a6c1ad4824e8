# ===- opaque_kinds.py - Every kind of operator that can be registered -------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Every kind of argument, result, mutation, effect and layout, one entry each.

`KINDS` is data: the tests compare each kind with eager through each door, and the
table in ``docs/`` says who refuses what. Operators are registered in the library
``kinds`` when a kind is first used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: What the kernels (never the fakes) saw, in order.
SEEN: list[Any] = []

_library = torch.library.Library("kinds", "FRAGMENT")

#: The doors, in the order of the table: ``torch.compile`` under ``no_grad``, the
#: same with a backward, and ``torch.export`` to a compiled file.
DOORS = ("compile", "training", "export")

WORKS = "works"


@dataclass(frozen=True)
class Kind:
    """One kind of operator.

    Attributes
    ----------
    name
        What the table calls it.
    group
        ``arguments``, ``returns``, ``mutation``, ``effects`` or ``layout``.
    schema
        The operator's schema without its name.
    make
        Registers the operator; returns a function of `inputs` that calls it between
        computations that fuse.
    inputs
        Makes the inputs, equal ones at each call.
    doors
        For each door "works" or "<who>: <regex>": who refuses it (Dynamo,
        AOTAutograd, export, PyTorch's serialiser, eager), and what the message matches.
        A door that is left out makes no sense for the kind.
    dynamic
        Whether sizes are symbolic: ``torch.compile(dynamic=True)``, and every
        dimension of every tensor ``Dim.AUTO`` in export.
    """

    name: str
    group: str
    schema: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], tuple[Any, ...]]
    doors: dict[str, str] = field(default_factory=dict)
    dynamic: bool = False

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        return self.make()

    def refusal(self, door: str) -> tuple[str, str] | None:
        """Who refuses the kind at this door, and what the message matches."""
        who, _, pattern = self.doors[door].partition(": ")
        return None if who == WORKS else (who, pattern)

    def __str__(self) -> str:
        return self.name


KINDS: list[Kind] = []


def describe(value: Any) -> Any:
    """A value as data that can be compared: kind, dtype, strides, contents."""
    if isinstance(value, Tensor):
        contents = value.detach().clone().contiguous().view(-1)
        if contents.dtype.itemsize:
            contents = contents.view(torch.uint8)
        return (
            str(value.dtype),
            str(value.device),
            tuple(value.shape),
            value.stride(),
            tuple(contents.tolist()),
        )
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, dict):
        return {k: describe(v) for k, v in value.items()}
    if isinstance(value, torch.Generator):
        return ("generator", value.device.type)
    return (type(value).__name__, repr(value))


def register(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any] | None = None,
    *,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    """Registers ``kinds::<schema>`` once; `fake` defaults to `kernel`."""
    name = "kinds::" + schema.partition("(")[0]
    _library.define(schema, tags=tuple(tags))
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake or kernel, lib=_library)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=_library)
    packet, _, overload = name.partition("::")[2].partition(".")
    return getattr(getattr(torch.ops.kinds, packet), overload or "default")


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _no_grads(values: Sequence[Any], schema: str) -> list[Any]:
    """What a backward returns for arguments that have no gradient."""
    # Lists of tensors take lists of gradients, where the schema has one.
    return [
        [None] * len(value)
        if "Tensor[]" in schema
        and isinstance(value, (list, tuple))
        and all(isinstance(member, Tensor) for member in value)
        else None
        for value in values
    ]


# --- Arguments -------------------------------------------------------------------


def argument(
    name: str,
    declared: str,
    *values: Any,
    computed: Callable[[Tensor], tuple[Any, ...]] | None = None,
    keywords: dict[str, Any] | None = None,
    dynamic: bool = False,
    overload: str = "",
    **doors: str,
) -> None:
    """A kind of argument: an operator with it behind a tensor, and values for it.

    `computed` makes the values from the tensor where they cannot be constants.
    """
    schema = f"(Tensor x{', ' if declared else ''}{declared}) -> Tensor"

    def make() -> Callable[..., Any]:
        def kernel(x, *args, **kwargs):
            SEEN.append([describe(x), describe(args), describe(kwargs)])
            return x * 2

        op = register(
            f"argument_{_identifier(name)}{'.' if overload else ''}{overload}{schema}",
            kernel,
            lambda x, *args, **kwargs: torch.empty_like(x),
            backward=lambda ctx, grad: (grad * 2, *ctx.no_grads),
            setup_context=lambda ctx, inputs, output, **_: setattr(
                ctx, "no_grads", _no_grads(inputs[1:], schema)
            ),
        )
        given = keywords or {}

        def function(x):
            more = values if computed is None else computed(x)
            return op(x + 1, *more, **given) * 3

        return function

    KINDS.append(
        Kind(
            name,
            "arguments",
            schema,
            make,
            lambda: (torch.linspace(-1, 1, 6).view(2, 3),),
            dict.fromkeys(DOORS, WORKS) | doors,
            dynamic,
        )
    )


argument("one tensor", "")
argument("Tensor? given", "Tensor? a", computed=lambda x: (x * 2,))
argument("Tensor? none", "Tensor? a", None)
argument("Tensor[]", "Tensor[] a", computed=lambda x: ([x * 2, x.sum()],))
argument("Tensor[] empty", "Tensor[] a", [])
argument("Tensor?[]", "Tensor?[] a", computed=lambda x: ([x * 2, None],))
argument("SymInt static", "SymInt n", 3)
argument("SymInt dynamic", "SymInt n", computed=lambda x: (x.shape[0] * 2 + 1,), dynamic=True)
argument("float", "float a", 0.1)
argument("float infinite", "float a", -math.inf)
argument("float nan", "float a", math.nan)
argument("str quoted", "str a", 'a "quoted"\n\\ text\t{}%s \u00e9')
argument("Scalar complex", "Scalar a", 3 - 4j)
argument(
    "Generator given",
    "Generator? g",
    torch.Generator(),
    compile="Dynamo: (?s)Generator",
    training="Dynamo: (?s)Generator",
    export="export: (?s)Generator",
)
