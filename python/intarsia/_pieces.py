# ===- _pieces.py - Graphs cut at operators without a formula ---------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Operators around which AOTAutograd traces no graph.

Two kinds of operator have no formula that it could trace in training:

- One with a kernel for a device and none for autograd, or one that falls through. Eager
  differentiates what its kernel calls; a traced graph has no gradient there, and says
  nothing.
- A `torch.library.custom_op` without ``register_autograd``. Eager runs it, and raises
  when somebody calls ``backward()``; AOTAutograd raises while it traces.

A third is what AOTAutograd does not functionalise: an operator that returns an argument that
it writes, ``(Tensor(a!) x) -> Tensor(a!)``, or a view of an argument, ``(Tensor(a) x) ->
Tensor(a)``; one that writes and returns something else than tensors; one that writes a list
of optional tensors.

A fourth is a higher-order operator with an operator inside that was registered as
effectful: AOTAutograd loses calls of it, also of those outside.

Dynamo's graph is cut at such an operator: it runs between two compiled graphs, where
autograd sees it as in eager.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils import _pytree as pytree

from intarsia._contract import Contract, Symbols, is_plain, storage
from intarsia._fx import source_line
from intarsia._gradients import keep_none, readers
from intarsia._hooks import overloads_of
from intarsia._namespaces import is_custom
from intarsia._writes import written_by
from intarsia.errors import CompileError

log = logging.getLogger("intarsia")

__all__ = [
    "REFUSED",
    "compile_in_pieces",
    "has_effects_inside",
    "hidden_gradients",
    "is_differentiated_inside",
    "needs_cut",
]

# Nodes that change a state of the thread; they run between two pieces, too.
_GRAD_MODE = torch._C._set_grad_enabled
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
_MODES = (_GRAD_MODE, _ENTER_AUTOCAST, _EXIT_AUTOCAST)

# Higher-order operators whose subgraph eager differentiates call by call.
_REGIONS = ("tag_activation_checkpoint", "invoke_subgraph")

# Those whose subgraphs AOTAutograd keeps, each with tokens of its own.
_SUBGRAPHS = ("cond", "invoke_subgraph", "map_impl", "scan", "while_loop")


# --- Which operators --------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _autograd_kernel(name: str, device: str) -> str:
    """How PyTorch describes what autograd calls for an operator."""
    key = f"Autograd{device.upper()}: "
    lines = torch._C._dispatch_dump_table(name).splitlines()
    return next((line.removeprefix(key) for line in lines if line.startswith(key)), "")


def _falls_through(name: str, device: str) -> bool:
    """Whether autograd was told to let the operator pass: then what its fake
    implementation returns requires no gradient either."""
    return _autograd_kernel(name, device).startswith("fallthrough")


def _is_recorded_inside(name: str, device: str) -> bool:
    """Whether autograd has no formula of this operator, and records what its kernel calls."""
    kernel = _autograd_kernel(name, device)
    return kernel.endswith("[backend fallback]") or _falls_through(name, device)


#: Takes a node, and whether grad mode is on there.
_Test = Callable[[fx.Node, bool], bool]


def is_differentiated_inside(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether eager records what the kernel of this node's operator calls."""
    operators = overloads_of(node.target)
    if any(result.alias_info for op in operators for result in op._schema.returns):
        return False  # see `_is_not_functionalised`
    recorded = _recorded_inside(node) if grad_enabled else []
    if any(_falls_through(name, device) for name, device in recorded):
        made = _tensors(node.meta.get("example_value"))
        return any(op._schema.is_mutable for op in operators) or any(map(_may_require_grad, made))
    return bool(recorded) and _may_carry_a_gradient(node)


def _recorded_inside(node: fx.Node) -> list[tuple[str, str]]:
    """The operators, and the device, of a node that gives some a tensor with a gradient."""
    operators = [op for op in overloads_of(node.target) if is_custom(op)]
    given = list(_tensors((node.args, node.kwargs))) if operators else []
    if not any(t.requires_grad for t in given):
        return []
    device = given[0].device.type
    names = [(op.name(), device) for op in operators]
    return [name for name in names if _is_recorded_inside(*name)]


def _may_require_grad(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _lacks_formula(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether it calls a custom_op without ``register_autograd``."""
    from torch._library.custom_ops import OPDEFS

    if not grad_enabled or not _may_carry_a_gradient(node):
        return False
    definitions = (OPDEFS.get(op.name()) for op in overloads_of(node.target))
    return any(found is not None and found._backward_fn is None for found in definitions)


def _is_not_functionalised(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether it calls an operator that AOTAutograd cannot make one without writes or aliases.

    The pieces around it are told by the fake tensors what shares memory.
    """
    for op in filter(is_custom, overloads_of(node.target)):
        aliases = [result.alias_info for result in op._schema.returns]
        if any(alias is not None for alias in aliases):
            made = node.meta.get("example_value")
            made = made if len(aliases) > 1 else (made,)
            given = [t for t in _tensors((node.args, node.kwargs)) if is_plain(t)]
            return len(made) == len(aliases) and all(
                alias is None or all(_is_alias(t, given, alias.is_write) for t in _tensors(value))
                for value, alias in zip(made, aliases, strict=True)
            )
        arguments = [a for a in op._schema.arguments if a.alias_info is not None]
        written = [str(a.type) for a in arguments if a.alias_info.is_write]
        if written and any(str(result.type) != "Tensor" for result in op._schema.returns):
            return True
        if "List[Optional[Tensor]]" in written:
            return True
    return False


def _returns_what_it_writes(node: fx.Node) -> bool:
    results = (r for op in overloads_of(node.target) for r in op._schema.returns)
    return all(r.alias_info is None or r.alias_info.is_write for r in results)


def _is_alias(t: torch.Tensor, given: Sequence[torch.Tensor], is_write: bool) -> bool:
    same = _layout if is_write else storage
    return is_plain(t) and same(t) in map(same, given)


def _layout(t: torch.Tensor) -> Any:
    return storage(t), t.dtype, t.shape, t.stride(), t.storage_offset()


#: What AOTAutograd refuses and eager does not, or not before somebody calls backward().
REFUSED: tuple[_Test, ...] = (_lacks_formula, _is_not_functionalised)


def has_effects_inside(node: fx.Node, grad_enabled: bool) -> bool:
    """Whether a subgraph of this node calls an operator that was registered as effectful."""
    return getattr(node.target, "_name", "") in _SUBGRAPHS and any(
        _is_effectful(inner) or has_effects_inside(inner, grad_enabled)
        for subgraph in _subgraphs(node)
        for inner in subgraph.graph.nodes
    )


def _is_effectful(node: fx.Node) -> bool:
    from torch._library.simple_registry import singleton

    custom = filter(is_custom, overloads_of(node.target))
    entries = (singleton.get(op._name) for op in custom)
    return any(entry is not None and entry.effect.effect is not None for entry in entries)


def _subgraphs(node: fx.Node) -> Iterator[fx.GraphModule]:
    for argument in node.all_input_nodes:
        if argument.op == "get_attr":
            value = getattr(node.graph.owning_module, argument.target, None)
            if isinstance(value, fx.GraphModule):
                yield value


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


def hidden_gradients(gm: fx.GraphModule) -> set[int]:
    """The inputs with a gradient that custom operators see without one, by their indices.

    In eager because of ``detach``, ``.data`` or a region without gradients. AOTAutograd keeps
    none of these in a graph for inference, where an operator would get the input itself.
    """
    inputs: dict[int, list[int]] = {}
    for i, placeholder in enumerate(gm.graph.find_nodes(op="placeholder")):
        for t in _tensors(placeholder):
            if is_plain(t) and t.requires_grad:
                inputs.setdefault(storage(t), []).append(i)
    hidden: set[int] = set()
    enabled = torch.is_grad_enabled()
    for node in gm.graph.nodes if inputs else ():
        if node.target is _GRAD_MODE:
            enabled = node.args[0]
        elif node.op == "call_function" and _calls_custom(node):
            for t in _tensors((node.args, node.kwargs)):
                if not (enabled and t.requires_grad):
                    while torch._C._functorch.is_functorch_wrapped_tensor(t):
                        t = torch._C._functorch.get_unwrapped(t)
                    hidden.update(inputs.get(storage(t), ()) if is_plain(t) else ())
    return hidden


def _calls_custom(node: fx.Node) -> bool:
    return any(map(is_custom, overloads_of(node.target))) or any(
        map(_calls_custom, (inner for module in _subgraphs(node) for inner in module.graph.nodes))
    )


def needs_cut(gm: fx.GraphModule, inputs: Sequence[Any], test: _Test) -> bool:
    """Whether Dynamo's graph has a node for which `test` holds.

    Raises
    ------
    CompileError
        When it is in a region that cannot be cut.
    """
    if test is is_differentiated_inside and torch.is_grad_enabled():
        for node in gm.graph.nodes:
            if node.op == "call_function" and getattr(node.target, "_name", "") in _REGIONS:
                _refuse_inside(node)
    # The example values are those of the end of the program: what gets a gradient in the
    # course of it has one.
    if not any(node.op == "call_function" and test(node, True) for node in gm.graph.nodes):
        return False
    return bool(_cuts(_Replay(gm, inputs), test))


def _refuse_inside(region: fx.Node) -> None:
    for subgraph in _subgraphs(region):
        for node in subgraph.graph.nodes:
            if getattr(node.target, "_name", "") in _REGIONS:
                _refuse_inside(node)
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
    inputs: Sequence[Any],
    test: _Test,
    compile_piece: Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    strict: bool,
) -> Callable[..., Any]:
    """Compiles what is between the operators for which `test` holds.

    Parameters
    ----------
    gm
        Dynamo's graph; its nodes have ``meta["example_value"]``, which become those of the
        places where the nodes stand.
    inputs
        Example inputs of the graph.
    test
        Tells the nodes at which to cut.
    compile_piece
        Compiles one piece for its example inputs.
    strict
        Other strides than the fake implementation's are an error.
    """
    replay = _Replay(gm, inputs)
    cuts = _cuts(replay, test)
    program = _Pieces(gm, strict)
    piece: list[fx.Node] = []
    replay.restart()
    with _Modes() as modes:

        def close() -> None:
            if piece:
                module, taken, made = _extract(gm, piece)
                compiled = compile_piece(module, replay.examples(taken))
                if torch.is_grad_enabled():
                    writes = max(map(replay.writes, piece))  # runs them all
                    compiled = keep_none(compiled, readers(module, writes))
                else:
                    for node in piece:
                        replay.run(node)
                program.steps.append((compiled, taken, made))
                piece.clear()

        for node in _members_first(gm):
            if node.op in _NOT_RUN:
                continue
            if node in cuts or (_is_member(node) and node.args[0] in cuts):
                cuts.add(node)
                close()
                program.steps.append((node, list(node.all_input_nodes), [node]))
                if node.target in _MODES:  # what follows is compiled for it
                    modes.run(node, lambda n: n)
                else:
                    replay.run_in_eager(node)
            else:
                piece.append(node)
        close()
    program.note_last_uses()
    return program


_NOT_RUN = ("placeholder", "get_attr", "output")


def _cuts(replay: _Replay, test: _Test) -> set[fx.Node]:
    """The nodes between pieces; none if there is no operator for which `test` holds."""
    cuts: set[fx.Node] = set()
    written: set[int] = set()
    found = False
    replay.restart()
    with _Modes() as modes:
        for node in _members_first(replay.gm):
            if node.op in _NOT_RUN:
                continue
            if node.target in _MODES:
                modes.run(node, lambda n: n)
                cuts.add(node)
                continue
            if torch.is_grad_enabled() and _recorded_inside(node):
                tensors = (t for _, _, argument in written_by(node) for t in _tensors(argument))
                written.update(storage(t) for t in tensors if not t.requires_grad)
            replay.run(node)
            if node.op == "call_function" and test(node, torch.is_grad_enabled()):
                found = True
                cuts.add(node)
                replay.record(node)
                if test is _is_not_functionalised and not _returns_what_it_writes(node):
                    made = _tensors(node.meta.get("example_value"))
                    written.update(map(storage, filter(is_plain, made)))
    return cuts | _views_of(replay.gm, written) if found else set()


def _views_of(gm: fx.GraphModule, written: set[int]) -> set[fx.Node]:
    """What shares, or may write, memory of certain tensors.

    It is that of tensors that get a gradient when a kernel writes them: a piece that computes
    no gradients would return views that autograd does not know. Or it is memory of which an
    operator returns a view: AOTAutograd would have to know how to make it when a piece writes
    one and reads the other.
    """

    def storages(value: Any) -> set[int]:
        return {storage(t) for t in filter(is_plain, _tensors(value))}

    return {
        node
        for node in (gm.graph.nodes if written else ())
        if node.op in ("call_function", "call_method")
        and not written.isdisjoint(storages((node.args, node.kwargs)) & (storages(node) or written))
    }


class _Recorded(torch.autograd.Function):
    """A tensor like another one that requires a gradient."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return t.new_empty_strided(t.size(), t.stride())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise NotImplementedError  # example values are never differentiated


class _Replay:
    """Runs Dynamo's graph on fake tensors, again.

    What Dynamo leaves as example values was written by the whole program. In the course of
    it, a tensor gets a gradient when something with one is written into it; and where a
    fake implementation stands for a kernel that autograd looks into, nothing of it is
    recorded at all.
    """

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self.gm = gm
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        self.inputs = inputs
        self.original = {n: n.meta.get("example_value") for n in gm.graph.nodes}
        # Not the one that AOTAutograd will work in.
        modes = (getattr(t, "fake_mode", None) for t in _tensors(list(self.original.values())))
        self.mode = next((mode for mode in modes if mode is not None), None)

    def restart(self) -> None:
        """Gives the placeholders the values that they have at the beginning."""
        if self.mode is None:
            return
        bases: dict[int, torch.Tensor] = {}
        required = {
            id(_base(self.original[node])): given
            for node, given in zip(self.placeholders, self.inputs, strict=True)
            if isinstance(given, torch.Tensor) and given.requires_grad
        }

        def begin(t: torch.Tensor) -> torch.Tensor:
            base = _base(t)
            if id(base) not in bases:
                start = bases[id(base)] = base.detach()
                if (given := required.get(id(base))) is not None:
                    start.requires_grad_() if given.is_leaf else start.copy_(_source())
            start = bases[id(base)]
            if t is base:
                return start
            if not is_plain(t) or t.dtype != base.dtype:
                return t.detach()
            return start.as_strided(t.size(), t.stride(), t.storage_offset())

        with self.mode:
            for node in self.placeholders:
                node.meta["example_value"] = pytree.tree_map_only(
                    torch.Tensor, begin, self.original[node]
                )

    def examples(self, nodes: Sequence[fx.Node]) -> list[Any]:
        """What they are now."""
        values = [node.meta["example_value"] for node in nodes]
        if self.mode is not None:
            with self.mode:  # a view that was written makes its formula anew when asked
                for t in _tensors(values):
                    t.is_leaf  # noqa: B018
        return values

    def run(self, node: fx.Node) -> None:
        """Gives a node, and what it writes, their values."""
        if self.mode is None:
            return
        if not node.meta.get("unbacked_bindings"):
            try:
                with self.mode:
                    args, kwargs = fx.map_arg((node.args, node.kwargs), self._value)
                    if node.op == "call_method":
                        made = getattr(args[0], node.target)(*args[1:], **kwargs)
                    else:
                        made = node.target(*args, **kwargs)
                node.meta["example_value"] = made
                return
            except Exception:  # what runs under Dynamo alone
                log.debug("%s keeps Dynamo's example value", node, exc_info=True)
        self._keep(node)

    def writes(self, node: fx.Node) -> bool:
        """Does the same; whether a tensor was written."""

        def versions() -> list[int]:
            return [t._version for t in _tensors((node.args, node.kwargs))]

        before = versions()
        self.run(node)
        return before != versions() or any(
            op._schema.is_mutable for op in overloads_of(node.target)
        )

    def run_in_eager(self, node: fx.Node) -> None:
        """The same for what runs between two pieces."""
        self.run(node)
        self.record(node)

    def record(self, node: fx.Node) -> None:
        """Adds the gradients that eager records inside the node's kernel."""
        recorded = _recorded_inside(node) if torch.is_grad_enabled() else []
        if not recorded or self.mode is None:
            return
        for _, _, argument in written_by(node):
            for t in filter(_may_require_grad, _tensors(argument)):
                if not t.requires_grad:
                    with self.mode:
                        t.copy_(_source())
        if any(_falls_through(name, device) for name, device in recorded):
            self._require_results(node)

    def _value(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return functools.reduce(getattr, node.target.split("."), self.gm)
        return node.meta["example_value"]

    def _keep(self, node: fx.Node) -> None:
        """What Dynamo says that it is, with a gradient if an argument has one."""
        given = any(t.requires_grad for t in _tensors((node.args, node.kwargs)))
        with self.mode:
            node.meta["example_value"] = pytree.tree_map_only(
                torch.Tensor, lambda t: t.detach(), self.original[node]
            )
        if given and torch.is_grad_enabled():
            self._require_results(node)

    def _require_results(self, node: fx.Node) -> None:
        def require(t: torch.Tensor) -> torch.Tensor:
            if not is_plain(t) or not _may_require_grad(t) or t.requires_grad:
                return t
            with self.mode:
                return _Recorded.apply(_source(), t)

        value = node.meta.get("example_value")
        node.meta["example_value"] = pytree.tree_map_only(torch.Tensor, require, value)


def _source() -> torch.Tensor:
    return torch.zeros((), requires_grad=True)


def _base(value: Any) -> Any:
    is_view = isinstance(value, torch.Tensor) and value._is_view()
    return value._base if is_view else value


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


class _Pieces:
    """Compiled pieces, and between them operators that run as in eager."""

    def __init__(self, gm: fx.GraphModule, strict: bool) -> None:
        self.gm = gm  # keeps attributes alive
        self.strict = strict
        self.inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        values = ((n, n.meta.get("example_value")) for n in self.inputs)
        self.symbols = {n: v.node.expr for n, v in values if isinstance(v, torch.SymInt)}
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
        symbols: Symbols = {symbol: sympy.Integer(values[n]) for n, symbol in self.symbols.items()}
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
                    if step.op == "call_method":
                        result = getattr(args[0], step.target)(*args[1:], **kwargs)
                    else:
                        result = step.target(*args, **kwargs)
                    if overloads_of(step.target):
                        contract = Contract(step, self.strict, (args, kwargs), symbols)
                        result = contract.receive(result)
                    values[step] = result
                    del args, kwargs, result
                for node in dead:
                    values.pop(node, None)
            return fx.map_arg(self.outputs, values.__getitem__)
