# ===- _hooks.py - Before the backend is called ------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What has to be arranged while Dynamo and AOTAutograd are still at work.

Two things are decided before a backend sees a graph, and a user would blame the
backend for both:

- An operator without a fake implementation is refused by Dynamo with a message
  that does not say how to write one. `install` adds a skeleton to paste.
- Random operators whose result is unused, and untagged operators with side effects,
  are removed as dead code. Eager runs them. `keep_effects` keeps them.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

__all__ = ["fake_skeleton", "install", "keep_effects"]

_BUILTIN_NAMESPACES = frozenset({"aten", "prims", "prim", "_c10d_functional", "higher_order"})


# --- Missing fake implementations -----------------------------------------------

_MISSING_FAKE = re.compile(
    r"no fake impl registered for <CustomOpDef\((?P<custom>[\w.]+::[\w.]+)\)>"
    r"|unsupported operator: (?P<packet>[\w.]+)"
)


@functools.cache
def install() -> None:
    """Makes Dynamo's refusal of an operator without a fake say how to write one.

    Dynamo builds these messages in its exceptions' constructors, before any backend
    is called; extending them there changes text only, and only while a function
    with this backend is traced.
    """
    from torch._dynamo import exc

    for kind in (exc.Unsupported, exc.TorchRuntimeError):
        original = kind.__init__

        @functools.wraps(original)
        def extended(
            self: Any, msg: str, *args: Any, _original: Any = original, **kwargs: Any
        ) -> None:
            if _is_ours() and (advice := _advice(msg)) and advice not in msg:
                if isinstance(self, exc.Unsupported) and not _is_full_graph():
                    _warn_once(advice)
                msg = f"{msg}\n\n{advice}"
            _original(self, msg, *args, **kwargs)

        kind.__init__ = extended


# Dynamo meets the same refusal again in every frame that it resumes.
_warned: set[str] = set()


def _warn_once(advice: str) -> None:
    if advice not in _warned:
        _warned.add(advice)
        warnings.warn(advice, stacklevel=3)


def _current_output() -> Any:
    from torch._dynamo.symbolic_convert import tls

    tx = getattr(tls, "current_tx", None)
    return getattr(tx, "output", None)


def _is_ours() -> bool:
    """Whether the function being traced will be compiled by this backend."""
    compiler = getattr(_current_output(), "compiler_fn", None)
    seen = 0
    while compiler is not None and seen < 8:
        if getattr(compiler, "_is_intarsia", False):
            return True
        compiler = getattr(
            compiler,
            "_torchdynamo_orig_backend",
            getattr(compiler, "compiler_fn", getattr(compiler, "__wrapped__", None)),
        )
        seen += 1
    return False


def _is_full_graph() -> bool:
    from torch._dynamo.symbolic_convert import tls

    tx = getattr(tls, "current_tx", None)
    return bool(getattr(tx, "one_graph", False))


def _advice(message: str) -> str | None:
    match = _MISSING_FAKE.search(message)
    if match is None:
        return None
    if match["custom"]:
        name = match["custom"]
    else:
        # "mylib.op.default", as an overload prints itself.
        parts = match["packet"].split(".")
        if len(parts) < 3:
            return None
        name = f"{parts[0]}::{parts[1]}"
        if parts[2] != "default":
            name += f".{parts[2]}"
    if name.split("::", 1)[0] in _BUILTIN_NAMESPACES:
        return None
    return fake_skeleton(name)


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
    tensors = [a.name for a in schema.arguments if "Tensor" in str(a.type)]
    like = tensors[0] if tensors else None
    results = []
    for result in schema.returns:
        kind = str(result.type)
        if kind == "Tensor":
            results.append(f"torch.empty_like({like})" if like else "torch.empty(...)")
        elif kind == "List[Tensor]":
            results.append(f"[torch.empty_like({like})]" if like else "[torch.empty(...)]")
        elif kind.startswith("Optional"):
            results.append("None")
        else:
            results.append(f"...  # {kind}" if len(schema.returns) == 1 else "...")
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    keyword = [a.name for a in schema.arguments if a.kwarg_only]
    parameters = ", ".join(positional + (["*", *keyword] if keyword else []))
    body = "return " + ", ".join(results) if results else "return None"
    return (
        f"intarsia: operator {name} has no fake implementation, so the shapes and dtypes of "
        f"its results are unknown.\n"
        f"  schema: {schema}\n"
        f"Register one; it must return tensors of the right size, dtype, device and strides "
        f"without computing them:\n\n"
        f'    @torch.library.register_fake("{name}")\n'
        f"    def _({parameters}):\n"
        f"        {body}\n"
    )


# --- Effects --------------------------------------------------------------------


@contextlib.contextmanager
def keep_effects(gm: fx.GraphModule) -> Iterator[None]:
    """While active, dead-code elimination keeps what eager would run.

    fx drops an unused random operator unless Inductor's ``fallback_random`` is set
    (it asks that setting whatever the backend), and drops an unused custom operator
    unless it is marked. Only operators whose result is unused in `gm` are marked,
    and only for as long as AOTAutograd works on this graph.
    """
    import torch._inductor.config
    from torch.fx.node import _side_effectful_functions

    marked = {op for op in _unused_operators(gm) if op not in _side_effectful_functions}
    _side_effectful_functions.update(marked)
    try:
        with torch._inductor.config.patch(fallback_random=True):
            yield
    finally:
        _side_effectful_functions.difference_update(marked)


def _unused_operators(gm: fx.GraphModule) -> set[Any]:
    """Custom operators of which a call in `gm` has no bearing on its outputs."""
    result: set[Any] = set()
    for module in gm.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        live: set[fx.Node] = set()
        for node in reversed(module.graph.nodes):
            used = node.op in ("output", "placeholder") or any(u in live for u in node.users)
            target = node.target
            if isinstance(target, torch._ops.OpOverload):
                if target._schema.is_mutable:
                    used = True
                elif not used and target.namespace not in _BUILTIN_NAMESPACES:
                    result.add(target)
                    used = True
            if used or not _is_pure_call(node):
                live.add(node)
    return result


def _is_pure_call(node: fx.Node) -> bool:
    return node.op in ("get_attr", "call_function", "call_method")
