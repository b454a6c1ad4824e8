# ===- _pieces.py - Graphs cut at operators without a formula ---------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Operators around which AOTAutograd traces no graph.

Two kinds of operator have no formula that it could trace in training:

- One with a kernel for a device and none for autograd. Eager differentiates what its
  kernel calls; a traced graph has no gradient there, and says nothing.
- A `torch.library.custom_op` without ``register_autograd``. Eager runs it, and raises
  when somebody calls ``backward()``; AOTAutograd raises while it traces.

A third is one that returns an argument that it writes, ``(Tensor(a!) x) -> Tensor(a!)``,
which AOTAutograd does not functionalise.

Dynamo's graph is cut at such an operator: it runs between two compiled graphs, where
autograd sees it as in eager.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from intarsia._fakes import fake_location
from intarsia._fx import source_line
from intarsia._hooks import overloads_of
from intarsia._namespaces import TRACED
from intarsia.errors import CompileError, ContractError

__all__ = ["compile_in_pieces", "is_differentiated_inside", "needs_cut", "test_for"]

# Nodes that change a state of the thread; they run between two pieces, too.
_GRAD_MODE = torch._C._set_grad_enabled
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
_MODES = (_GRAD_MODE, _ENTER_AUTOCAST, _EXIT_AUTOCAST)

# Higher-order operators whose subgraph eager differentiates call by call.
_REGIONS = ("tag_activation_checkpoint", "invoke_subgraph")


# --- Which operators --------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _is_differentiated_inside(name: str, device: str) -> bool:
    """Whether autograd has no kernel of this operator, and records what its kernel calls."""
    key = f"Autograd{device.upper()}: "
    for line in torch._C._dispatch_dump_table(name).splitlines():
        if line.startswith(key):
            return "[backend fallback]" in line
    return False


#: Takes a node, and whether grad mode is on there.
_Test = Callable[[fx.Node, bool], bool]


def is_differentiated_inside(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether eager records what the kernel of this node's operator calls."""
    if not grad_enabled or not _may_carry_a_gradient(node):
        return False
    device = next(_tensors((node.args, node.kwargs))).device.type
    if any(result.alias_info for op in overloads_of(node.target) for result in op._schema.returns):
        return False  # see `_returns_what_it_writes`
    return any(
        op.namespace not in TRACED and _is_differentiated_inside(op.name(), device)
        for op in overloads_of(node.target)
    )


def _lacks_formula(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether it calls a custom_op without ``register_autograd``."""
    from torch._library.custom_ops import OPDEFS

    if not grad_enabled or not _may_carry_a_gradient(node):
        return False
    definitions = (OPDEFS.get(op.name()) for op in overloads_of(node.target))
    return any(found is not None and found._backward_fn is None for found in definitions)


def _returns_what_it_writes(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether it calls an operator that returns an argument that it writes, as it is.

    The pieces around it are told by the fake tensors that these are one tensor. Of other
    aliases AOTAutograd would have to know how one is made from the other.
    """
    for op in overloads_of(node.target):
        aliases = [result.alias_info for result in op._schema.returns]
        if op.namespace not in TRACED and any(alias is not None for alias in aliases):
            made = node.meta.get("example_value")
            made = made if isinstance(made, (tuple, list)) else (made,)
            given = [_layout(t) for t in _tensors((node.args, node.kwargs))]
            return len(made) == len(aliases) and all(
                alias is None
                or (alias.is_write and isinstance(t, torch.Tensor) and _layout(t) in given)
                for t, alias in zip(made, aliases, strict=True)
            )
    return False


def _layout(t: torch.Tensor) -> Any:
    return _storage(t), t.dtype, t.shape, t.stride(), t.storage_offset()


def test_for(refusal: str) -> _Test | None:
    """What tells the operators that this error of AOTAutograd's is about."""
    if "no autograd formula was registered" in refusal:
        return _lacks_formula
    if "output has alias annotations" in refusal:
        return _returns_what_it_writes
    return None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, fx.Node):
            leaf = leaf.meta.get("example_value")
        for member in pytree.tree_leaves(leaf):
            if isinstance(member, torch.Tensor):
                yield member


def _may_carry_a_gradient(node: fx.Node) -> bool:
    operators = overloads_of(node.target)
    if not operators or not any(t.requires_grad for t in _tensors((node.args, node.kwargs))):
        return False
    writes = any(op._schema.is_mutable for op in operators)
    return writes or any(t.requires_grad for t in _tensors(node.meta.get("example_value")))


def needs_cut(gm: fx.GraphModule, test: _Test) -> bool:
    """Whether Dynamo's graph has a node for which `test` holds.

    Raises
    ------
    CompileError
        When it is in a region that cannot be cut.
    """
    if test is is_differentiated_inside and torch.is_grad_enabled():
        for node in gm.graph.nodes:
            if node.op == "call_function" and getattr(node.target, "_name", "") in _REGIONS:
                _refuse_inside(gm, node)
    return any(_cut_points(gm, test))


def _cut_points(gm: fx.GraphModule, test: _Test) -> Iterator[fx.Node]:
    enabled = torch.is_grad_enabled()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is _GRAD_MODE:
            enabled = bool(node.args[0])
        elif test(node, enabled):
            yield node


def _refuse_inside(gm: fx.GraphModule, region: fx.Node) -> None:
    for argument in region.args:
        if not isinstance(argument, fx.Node) or argument.op != "get_attr":
            continue
        subgraph = getattr(gm, argument.target, None)
        if not isinstance(subgraph, fx.GraphModule):
            continue
        for node in subgraph.graph.nodes:
            if getattr(node.target, "_name", "") in _REGIONS:
                _refuse_inside(subgraph, node)
            if node.op == "call_function" and is_differentiated_inside(node, True):
                raise CompileError(
                    f"{node.target} has no autograd formula: eager differentiates what its "
                    "kernel calls, which no graph of a checkpointed or nested region can. "
                    f"Register one with torch.library.register_autograd, or implement the "
                    "operator for CompositeImplicitAutograd"
                    f"\n  operator: {node.target} (node {node.name})"
                    f"\n  source:   {source_line(node)}"
                )


# --- Pieces -----------------------------------------------------------------------


def compile_in_pieces(
    gm: fx.GraphModule,
    test: _Test,
    compile_piece: Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """Compiles what is between the operators for which `test` holds.

    Parameters
    ----------
    gm
        Dynamo's graph; its nodes have ``meta["example_value"]``.
    test
        Tells the nodes at which to cut.
    compile_piece
        Compiles one piece for its example inputs.
    """
    cuts = set(_cut_points(gm, test))
    cuts.update(n for n in gm.graph.nodes if n.op == "call_function" and n.target in _MODES)
    program = _Pieces(gm)
    piece: list[fx.Node] = []
    with _Modes() as modes:

        def close() -> None:
            if piece:
                module, inputs, outputs = _extract(gm, piece)
                examples = [n.meta["example_value"] for n in inputs]
                program.steps.append((compile_piece(module, examples), inputs, outputs))
                piece.clear()

        for node in _members_first(gm):
            if node in cuts or (_is_member(node) and node.args[0] in cuts):
                cuts.add(node)
                close()
                program.steps.append((node, list(node.all_input_nodes), [node]))
                if node.target in _MODES:  # what follows is compiled for it
                    modes.run(node, lambda n: n)
            elif node.op not in ("placeholder", "get_attr", "output"):
                piece.append(node)
        close()
    program.note_last_uses()
    return program


def _is_member(node: fx.Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node)


def _members_first(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes in order, but members of a tuple right after it.

    What pieces take and return is flat.
    """
    order: dict[fx.Node, None] = {}

    def add(node: fx.Node) -> None:
        order[node] = None
        for user in node.users:
            if (
                _is_member(user)
                and user.args[0] is node
                and not isinstance(node.meta.get("example_value"), torch.Tensor)
            ):
                add(user)

    for node in gm.graph.nodes:
        if node not in order:
            add(node)
    return list(order)


def _extract(
    gm: fx.GraphModule, nodes: Sequence[fx.Node]
) -> tuple[fx.GraphModule, list[fx.Node], list[fx.Node]]:
    """Some nodes as a module of their own, what it takes, and what it returns."""
    inside = set(nodes)
    inputs = dict.fromkeys(
        n for node in nodes for n in node.all_input_nodes if n not in inside and n.op != "get_attr"
    )
    # A size may be an expression of a symbol that no tensor of this piece has as its size.
    symbols = (n for n in gm.graph.nodes if n.op == "placeholder")
    inputs |= {n: None for n in symbols if isinstance(n.meta.get("example_value"), torch.SymInt)}
    outputs = [n for n in nodes if any(user not in inside for user in n.users)]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in copies:
                copies[used] = graph.node_copy(used)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in outputs))
    return fx.GraphModule(gm, graph), list(inputs), outputs


class _Modes:
    """Runs the nodes that change a state of the thread; an exception undoes them."""

    def __enter__(self) -> _Modes:
        self.entered: list[Any] = []
        self.grad_enabled = torch.is_grad_enabled()
        return self

    def run(self, node: fx.Node, value_of: Callable[[fx.Node], Any]) -> Any:
        if node.target is _EXIT_AUTOCAST:
            # While compiling, nodes have no values: regions are nested.
            return _EXIT_AUTOCAST(self.entered.pop())
        result = node.target(*fx.map_arg(node.args, value_of))
        if node.target is _ENTER_AUTOCAST:
            self.entered.append(result)
        return result

    def __exit__(self, kind: Any, *_: Any) -> None:
        while self.entered:
            _EXIT_AUTOCAST(self.entered.pop())
        if kind is not None:
            torch._C._set_grad_enabled(self.grad_enabled)


def _check(node: fx.Node, result: Any, given: Any) -> None:
    """Compares what an operator returned with what its fake implementation said."""
    promised = pytree.tree_leaves(node.meta.get("example_value"))
    seen = {_storage(t): "an argument" for t in pytree.tree_leaves(given) if _is_plain(t)}
    aliases = any(r.alias_info for op in overloads_of(node.target) for r in op._schema.returns)
    for i, (t, want) in enumerate(zip(pytree.tree_leaves(result), promised, strict=False)):
        if not (_is_plain(t) and isinstance(want, torch.Tensor)):
            continue
        place = f"{node.target}: output {i}"
        where = f" ({source_line(node)})"
        known = [n for n in want.shape if isinstance(n, int)]
        sizes = [n for n, m in zip(t.shape, want.shape, strict=False) if isinstance(m, int)]
        if (t.dtype, t.device, t.dim(), sizes) != (want.dtype, want.device, want.dim(), known):
            raise ContractError(
                f"{place} is {t.dtype} of size {list(t.shape)} on {t.device}, but its fake "
                f"implementation promised {want.dtype} of size {list(want.shape)} on "
                f"{want.device}{where}. Fix the fake implementation "
                f"({fake_location(overloads_of(node.target)[0].name())}) or the kernel: they "
                "must agree for all inputs."
            )
        if not aliases and t.numel() and _storage(t) in seen:
            raise ContractError(
                f"{place} shares memory with {seen[_storage(t)]}, which its schema does not "
                f"declare{where}. Return a copy from the kernel (for example x.clone())."
            )
        seen[_storage(t)] = f"output {i}"


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


class _Pieces:
    """Compiled pieces, and between them operators that run as in eager."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm  # keeps attributes alive
        self.inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.constants = {
            n: functools.reduce(getattr, n.target.split("."), gm)
            for n in gm.graph.nodes
            if n.op == "get_attr"
        }
        (self.outputs,) = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args
        # (a compiled piece or a node, the nodes that it takes, those that it makes)
        self.steps: list[tuple[Any, list[fx.Node], list[fx.Node]]] = []
        self.dead: list[list[fx.Node]] = []

    def note_last_uses(self) -> None:
        """Values are let go after their last use, as eager does it."""
        live = {n for n in pytree.tree_leaves(self.outputs) if isinstance(n, fx.Node)}
        live.update(self.constants)
        for _, taken, made in reversed(self.steps):
            last = [n for n in dict.fromkeys([*taken, *made]) if n not in live]
            live.update(last)
            self.dead.append(last)
        self.dead.reverse()

    def __call__(self, *args: Any) -> Any:
        values = self.constants | dict(zip(self.inputs, args, strict=True))
        del args
        with _Modes() as modes:
            for (step, taken, made), dead in zip(self.steps, self.dead, strict=True):
                if not isinstance(step, fx.Node):
                    results = step(*[values[n] for n in taken])
                    values.update(zip(made, results, strict=True))
                    del results
                elif step.target in _MODES:
                    values[step] = modes.run(step, values.__getitem__)
                else:
                    args, kwargs = fx.map_arg((step.args, step.kwargs), values.__getitem__)
                    values[step] = step.target(*args, **kwargs)
                    if not _is_member(step):
                        _check(step, values[step], (args, kwargs))
                for node in dead:
                    values.pop(node, None)
            return fx.map_arg(self.outputs, values.__getitem__)
