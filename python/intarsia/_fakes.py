# ===- _fakes.py - Fake implementations of operators --------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Where an operator's fake implementation stands, and what to say when it has none."""

from __future__ import annotations

import functools
import inspect
import os
import re
from typing import Any

import torch

from intarsia._namespaces import SHIPPED, custom_operators, is_pytorchs

__all__ = [
    "fake_location",
    "fake_skeleton",
    "missing_fake_advice",
    "raised_in_fake",
    "wrong_gradient_advice",
]

_TORCH = os.path.dirname(torch.__file__)


def fake_location(name: str) -> str:
    """``file.py:12`` of operator `name`'s Python fake; empty when it has none.

    Where a fake that is written in C++ was registered, PyTorch's dispatcher knows.
    """
    from torch._library import custom_ops, simple_registry

    definition = custom_ops.OPDEFS.get(name)
    if definition is not None:
        return _source_of(definition._abstract_fn)
    entry = simple_registry.singleton.get(name)
    kernel = entry.fake_impl.kernel if entry is not None else None
    return _source_of(kernel.func) or kernel.source if kernel is not None else ""


def _source_of(function: Any) -> str:
    """``file.py:12`` of a function, without what PyTorch has put around it."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
            continue
        function = inspect.unwrap(function) if callable(function) else function
        code = getattr(function, "__code__", None)
        if code is None:
            return ""
        inner = dict(zip(code.co_freevars, function.__closure__ or (), strict=False)).get("func")
        if inner is None or not code.co_filename.startswith(_TORCH):
            return f"{code.co_filename}:{code.co_firstlineno}"
        function = inner.cell_contents


_MISSING_FAKE = re.compile(
    r"no fake impl registered for <CustomOpDef\((?P<custom>[\w.]+::[\w.]+)\)>"
    r"|unsupported operator: (?P<packet>[\w.]+)"
    # As FakeTensor's own UnsupportedOperatorException says it.
    r"|^(?P<bare>\w+\.\w+\.\w+)(?:\n|$)"
)


def missing_fake_advice(message: str) -> str | None:
    """What to do about an error of PyTorch's; None when it is not about a fake."""
    match = _MISSING_FAKE.search(message)
    if match is None:
        return None
    name = match["custom"]
    if not name:
        # "mylib.op.default", as an overload prints itself.
        parts = (match["packet"] or match["bare"]).split(".")
        if len(parts) < 3:
            return None
        if match["bare"] and not hasattr(getattr(torch.ops, parts[0]), parts[1]):
            return None  # some other text of this form
        name = f"{parts[0]}::{parts[1]}"
        if parts[2] != "default":
            name += f".{parts[2]}"
    if is_pytorchs(name, SHIPPED):
        return None
    return fake_skeleton(name)


_WRONG_GRADIENT = re.compile(
    r"GeneratedBackwardFor_(?P<operator>\w+)Backward returned an invalid gradient"
)


def wrong_gradient_advice(message: str) -> str | None:
    """What to do about a gradient that does not fit; None when it is another error.

    PyTorch blames the backward formula, which was given what the fake implementation
    promised.
    """
    match = _WRONG_GRADIENT.search(message)
    for name in custom_operators() if match else ():
        full = name if "." in name else f"{name}.default"
        if re.sub(r"::|\.", "_", full) == match["operator"]:
            return (
                f"intarsia: a gradient that the backward formula of {name} computed does not "
                "fit its argument. While a graph is traced, the formula is given results as the "
                f"fake implementation promises them ({fake_location(name)}), in eager those of "
                "the kernel: if eager works, fix the fake implementation, or that of an operator "
                "that the formula calls."
            )
    return None


def raised_in_fake(error: BaseException) -> str | None:
    """Which operator's fake implementation raised an exception; None when none did.

    Where a formula calls the operator, nothing of PyTorch's says it.
    """
    name, place = None, ""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        op = frame.f_locals.get("func")
        if isinstance(op, torch._ops.OpOverload) and op.name() != name:
            if not is_pytorchs(op.name(), SHIPPED):
                name, place = op.name(), fake_location(op.name())
        elif place and f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}" == place:
            return f"intarsia: the fake implementation of {name} ({place}) raised this."
        trace = trace.tb_next
    return None


def fake_skeleton(name: str) -> str:
    """Why operator `name` cannot be traced, and code that registers its fake."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        schema = op._schema
    except (AttributeError, RuntimeError):
        return (
            f"intarsia: operator {name} has no fake implementation; register one with "
            f'torch.library.register_fake("{name}", ...).'
        )
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    keyword = [a.name for a in schema.arguments if a.kwarg_only]
    parameters = ", ".join(positional + (["*", *keyword] if keyword else []))
    body = "".join(f"        {line}\n" for line in _body(schema))
    return (
        f"intarsia: operator {name} has no fake implementation, so the shapes and dtypes of "
        f"its results are unknown.\n"
        f"  schema: {schema}\n"
        f"  library: {namespace}{_definition(name)}\n"
        f"Register one; it must return tensors of the right size, dtype, device and strides "
        f"without computing them:\n\n"
        f'    @torch.library.register_fake("{name}")\n'
        f"    def _({parameters}):\n"
        f"{body}"
    )


def _definition(name: str) -> str:
    """Where the operator was defined, and which module its author put fakes in."""
    from torch._library import custom_ops

    definition = custom_ops.OPDEFS.get(name)
    place = _source_of(definition._init_fn) if definition is not None else ""
    if not place:
        dump = torch._C._dispatch_dump(name)
        match = re.search(r"^debug: registered at (.*)$", dump, re.MULTILINE)
        place = match[1] if match else ""
    text = f", defined at {place}" if place else ""
    qualified, _, overload = name.partition(".")
    stub = torch._C._dispatch_pystub(qualified, overload)
    if stub is not None:
        text += f"; its Python part is module {stub[0]}: is it imported?"
    return text


def _body(schema: Any) -> list[str]:
    """The lines of a function that returns something for each result."""
    tensors = [a.name for a in schema.arguments if str(a.type) == "Tensor"]
    optional = [a.name for a in schema.arguments if "Tensor" in str(a.type)]
    like = f"torch.empty_like({tensors[0]})" if tensors else "torch.empty(...)"
    results, remarks = [], []
    for result in schema.returns:
        kind = str(result.type)
        written = _written_argument(schema, result)
        if written is not None:
            results.append(written)
        elif kind == "Tensor":
            results.append(like)
        elif kind == "List[Tensor]":
            results.append(f"[{like}]")
        elif kind.startswith("Optional"):
            results.append("None")
        else:
            results.append("...")
            remarks.append(f"# a result of type {kind}: a value, or get_ctx().new_dynamic_size()")
    if not results:
        remarks.append("# nothing is returned: what is written keeps its shape")
    elif not tensors and optional:
        remarks.append(f"# sizes follow from {', '.join(optional)}")
    return [*remarks, "return " + (", ".join(results) or "None")]


def _written_argument(schema: Any, result: Any) -> str | None:
    """The argument that a result ``Tensor(a!)`` is."""
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    for argument in schema.arguments:
        info = argument.alias_info
        if info is not None and info.before_set == result.alias_info.before_set:
            return argument.name
    return None
