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
  that does not say how to write one. `install` adds a skeleton to paste, as a note of
  the exception.
- Random operators whose result is unused, and untagged operators with side effects,
  are removed as dead code. Eager runs them. `keep_effects` keeps them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from intarsia._fakes import missing_fake_advice, raised_in_fake
from intarsia._namespaces import custom_operators, is_custom
from intarsia._refusals import advice_for
from intarsia._warnings import warn

__all__ = [
    "AUTOCAST",
    "add_advice",
    "advised",
    "install",
    "keep_effects",
    "keep_exported_effects",
    "note_autocast",
    "overloads_of",
    "prepare_program",
]


# --- Refusals -------------------------------------------------------------------


def install() -> None:
    """Makes PyTorch's refusal of an operator say what to do.

    PyTorch runs the callbacks of `torch._dynamo.on_compile_end` also while an
    exception leaves the compilation; it is given a note (PEP 678). Nothing of
    PyTorch's is replaced, and functions with other backends are left alone.
    """
    callbacks = torch._dynamo.callback_handler.end_callbacks
    if _after_compilation not in callbacks:  # `torch._dynamo.reset` forgets it
        torch._dynamo.on_compile_end(_after_compilation)


def _after_compilation(_: Any) -> None:
    error = sys.exc_info()[1]
    if not _is_ours():
        return
    if error is not None:
        add_advice(error)
        return
    # Outside a full graph Dynamo runs such an operator between two graphs, and
    # counts why.
    for reason in list(torch._dynamo.utils.counters["graph_break"]):
        advice = missing_fake_advice(reason)
        if advice is not None and advice not in _warned:
            _warned.add(advice)
            warn(advice)


_warned: set[str] = set()


def add_advice(error: BaseException) -> None:
    """Notes on an exception of PyTorch's what to do about it.

    It may be a cause of `error` that says what was refused: an operator without a
    fake implementation (the note has one to paste), or another of `_refusals`.
    """
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return
        advice = advice_for(str(seen)) or raised_in_fake(seen)
        if advice is not None:
            if advice not in getattr(error, "__notes__", ()):
                error.add_note(advice)
            return
        seen = seen.__cause__ or seen.__context__


@contextlib.contextmanager
def advised() -> Iterator[None]:
    """An exception that leaves the context is given advice, where there is some."""
    try:
        yield
    except Exception as error:
        add_advice(error)
        raise


def _is_ours() -> bool:
    """Whether the compilation that is ending is one for this backend.

    The callback is not told; the backend is a parameter of the function of
    Dynamo's that compiles the frame.
    """
    frame = sys._getframe(1)
    while frame is not None and "compiler_fn" not in frame.f_locals:
        frame = frame.f_back
    compiler = frame.f_locals["compiler_fn"] if frame is not None else None
    for _ in range(8):
        if compiler is None:
            return False
        if getattr(compiler, "_is_intarsia", False):
            return True
        compiler = getattr(
            compiler,
            "_torchdynamo_orig_backend",
            getattr(compiler, "compiler_fn", getattr(compiler, "__wrapped__", None)),
        )
    return False


# --- Autocast -------------------------------------------------------------------

#: In a node's ``meta["custom"]``, which AOTAutograd copies: the autocast around it.
AUTOCAST = "intarsia_autocast"

_Autocast = dict[str, torch.dtype]


def note_autocast(gm: fx.GraphModule) -> _Autocast:
    """Marks the nodes of Dynamo's graph around which autocast is on.

    Returns what is on around the whole graph.

    AOTAutograd applies autocast while it traces and leaves no sign of it. Operators
    that are not looked into need it once more, for what their kernels call.
    """
    state = {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }
    _note_autocast(gm, state)
    return state


def _note_autocast(gm: fx.GraphModule, state: _Autocast) -> None:
    outer: dict[fx.Node, _Autocast] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.amp.autocast_mode._enter_autocast:
            outer[node] = state
            device, dtype, enabled, *_ = node.args
            state = {k: v for k, v in state.items() if k != device}
            if enabled:
                state[device] = dtype or torch.get_autocast_dtype(device)
        elif node.op == "call_function" and node.target is torch.amp.autocast_mode._exit_autocast:
            state = outer.get(node.args[0], state)
        elif state:
            node.meta["custom"] = {**node.meta.get("custom", {}), AUTOCAST: dict(state)}
        if node.op == "get_attr":
            value = getattr(gm, node.target, None) if "." not in node.target else None
            if isinstance(value, fx.GraphModule):
                _note_autocast(value, state)


# --- Running a program ----------------------------------------------------------


def prepare_program(
    program: Any,
    grad_enabled: bool,
    detached: Sequence[int] = (),
) -> None:
    """What a new program has to know of its surroundings."""
    program.grad_enabled = grad_enabled
    program.detached = list(detached)
    program.set_first_context(without_alias_analysis)


@contextlib.contextmanager
def without_alias_analysis() -> Iterator[None]:
    """The first call of a compiled function, as every later one.

    AOTAutograd puts a dispatch mode around it that looks for aliases among the results
    of custom operators. We look at every call; below a mode kernels would not see the
    autocast that eager shows them, and those that conjugate lazily inside (linalg.pinv
    of complex numbers) would give wrong values.
    """
    from torch._functorch._aot_autograd.runtime_wrappers import _AnalyzeCustomOpInputOutputMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

    if isinstance(_get_current_dispatch_mode(), _AnalyzeCustomOpInputOutputMode):
        with _pop_mode_temporarily():
            yield
    else:
        yield


# --- Effects --------------------------------------------------------------------


@contextlib.contextmanager
def keep_effects(gm: fx.GraphModule) -> Iterator[None]:
    """While active, dead-code elimination keeps what eager would run.

    fx drops an unused random operator unless Inductor's ``fallback_random`` is set
    (it asks that setting whatever the backend), and drops an unused custom operator
    unless it is marked. Only operators whose result is unused in `gm`, or that may be
    found to be so when traced (writes, and numbers that are known already), are marked,
    and only for as long as AOTAutograd works on this graph. In training, all are: which
    ones backward formulas call is not known yet.
    """
    import torch._inductor.config

    called = _unused_operators(gm)
    if torch.is_grad_enabled() and _requires_grad(gm):
        called |= _registered_operators()
    with _marked(called), torch._inductor.config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def keep_exported_effects() -> Iterator[None]:
    """The same while a program is exported, whose branches PyTorch traces apart."""
    import torch._inductor.config

    with _marked(_registered_operators()), torch._inductor.config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def _marked(operators: set[Any]) -> Iterator[None]:
    from torch.fx.node import _side_effectful_functions

    marked = operators - _side_effectful_functions
    _side_effectful_functions.update(marked)
    try:
        yield
    finally:
        _side_effectful_functions.difference_update(marked)


def _unused_operators(gm: fx.GraphModule) -> set[Any]:
    """Custom operators of which a call in `gm` may have no bearing on its outputs."""
    result: set[Any] = set()
    for module in gm.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        live: set[fx.Node] = set()
        for node in reversed(module.graph.nodes):
            used = node.op in ("output", "placeholder") or any(u in live for u in node.users)
            effects = False
            for target in overloads_of(node.target):
                custom = is_custom(target)
                mutable = target._schema.is_mutable
                # A write is replaced by its result, which may have no use.
                if custom and (mutable or not used or _returns_numbers(target)):
                    result.add(target)
                effects |= custom or mutable
            if used or effects or not _is_pure_call(node):
                live.add(node)
    return result


def _requires_grad(gm: fx.GraphModule) -> bool:
    values = (n.meta.get("example_value") for n in gm.graph.nodes if n.op == "placeholder")
    return any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)


def _registered_operators() -> set[Any]:
    """Every custom operator that could be called."""
    result: set[Any] = set()
    for name in custom_operators():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        try:
            operators = getattr(torch.ops, namespace)
            result.add(getattr(getattr(operators, packet), overload or "default"))
        except (AttributeError, RuntimeError):
            continue  # a schema that Python cannot call
    return result


def overloads_of(target: Any) -> list[torch._ops.OpOverload]:
    """The operators that a node may call: Dynamo leaves ``torch.ops.ns.op(x)``, which
    names no overload, as it is."""
    if isinstance(target, torch._ops.OpOverload):
        return [target]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name) for name in target.overloads()]
    return []


def _returns_numbers(op: torch._ops.OpOverload) -> bool:
    """Whether AOTAutograd may have the use of a result without the call."""
    return any("Tensor" not in str(result.type) for result in op._schema.returns)


def _is_pure_call(node: fx.Node) -> bool:
    return node.op in ("get_attr", "call_function", "call_method")
