# ===- _cudagraphs.py - Graphs that CUDA replays ------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""CUDA graphs of compiled graphs, for ``options={"cudagraphs": True}``.

A graph is cut where something cannot be captured: at operators with the tag
``torch.Tag.cudagraph_unsafe``, at what is on the CPU or reads there what a GPU computed, at
kernels that check indices. What lies between is a program of its own. Its first call runs as
it is, which loads code and fills caches; the second one is captured, with inputs in
memory of its own, and from then on replayed. Results are copied out of the
graph's memory, so that they stay what they are, as in eager.

Captured memory belongs to one stream and one set of sizes: each has its capture.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module
from torch.utils import _pytree as pytree

__all__ = ["Captured", "compile_graph", "is_wanted", "obstacle"]

log = logging.getLogger("intarsia")

#: The type of device whose work is captured; tests have another one.
DEVICE = "cuda"

#: Captures of one program beyond which further sizes run as they are.
LIMIT = 16

#: Lowered, these check indices that a tensor holds, and wait for the result.
_CHECKING = frozenset(
    f"aten::{name}"
    for name in """
    embedding embedding_dense_backward gather index index_add index_copy index_fill index_put
    index_put_ _unsafe_index _unsafe_index_put index_select masked_scatter nll_loss_forward
    nll_loss2d_forward nll_loss_backward nll_loss2d_backward scatter scatter_add scatter_reduce
    take take_along_dim one_hot
    """.split()
)


# --- What can be captured ---------------------------------------------------------


def obstacle(node: fx.Node) -> str | None:
    """Why a node of an AOTAutograd graph cannot be captured; "" if it can be, None if it
    computes with sizes, or takes a result apart, which happens on the host."""
    target = node.target
    if node.op != "call_function" or target is operator.getitem:
        return None
    tensors = list(_tensors(node))
    if isinstance(target, torch._ops.HigherOrderOperator):
        if target.name() not in ("auto_functionalized", "auto_functionalized_v2"):
            return f"{target.name()} is more than one call"
        target = node.args[0]
    if not isinstance(target, torch._ops.OpOverload):
        return None if not tensors else f"{target} is no operator"
    for tag in (
        torch.Tag.cudagraph_unsafe,
        torch.Tag.dynamic_output_shape,
        torch.Tag.data_dependent_output,
    ):
        if tag in target.tags:
            return f"{target} has the tag {tag.name}"
    if node.meta.get("unbacked_bindings"):
        return f"{target} has a size that data decides"
    if not tensors:
        return None
    elsewhere = {t.device for t in tensors if t.device.type != DEVICE}
    if elsewhere:
        return f"{target} works on {min(map(str, elsewhere))}"
    if target.name().partition(".")[0] in _CHECKING:
        return f"{target} checks indices"
    return ""


def _tensors(node: fx.Node) -> Iterator[torch.Tensor]:
    for value in (_value(node), *map(_value, node.all_input_nodes)):
        yield from (x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor))


def is_wanted(gm: fx.GraphModule) -> bool:
    """Whether any of a graph can be captured."""
    return any(obstacle(node) == "" for node in gm.graph.nodes)


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")


def _partition(gm: fx.GraphModule) -> dict[fx.Node, int]:
    """The piece of each node: runs of what can be captured, and of what cannot."""
    pieces: dict[fx.Node, int] = {}
    piece, captured = 0, None
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        why = obstacle(node)
        if why is not None:
            if captured is not None and captured != (why == ""):
                piece += 1
            captured = why == ""
            if why:
                log.info("cut for CUDA graphs: %s", why)
        if node.target is operator.getitem and node.args[0] in pieces:
            pieces[node] = pieces[node.args[0]]
        else:
            pieces[node] = piece
    return pieces


# --- One piece --------------------------------------------------------------------


class _CudaApi:
    """What is asked of PyTorch's CUDA module."""

    @staticmethod
    def on(device: torch.device) -> AbstractContextManager[Any]:
        return torch.cuda.device(device)

    @staticmethod
    def stream() -> Any:
        return torch.cuda.current_stream().cuda_stream

    @staticmethod
    def is_capturing() -> bool:
        return torch.cuda.is_current_stream_capturing()

    @staticmethod
    def capture(run: Callable[[], list[Any]]) -> tuple[Any, list[Any]]:
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating and launching.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = run()
        return graph, outputs


API: Any = _CudaApi


@dataclass
class _Capture:
    graph: Any
    #: What the graph reads: copies of inputs, or inputs that keep their address.
    inputs: list[Any]
    outputs: list[Any]
    #: For each output, the input whose memory it shows, if any.
    shown: list[int | None]
    addresses: list[int]


class Captured:
    """A program whose calls are replayed.

    Called like a program: with the list of its inputs, which is emptied.

    Parameters
    ----------
    program
        What is called at first, and where nothing can be captured.
    static
        Inputs that keep their address from call to call (parameters, buffers): they are
        read, and written, where they are.
    written
        Inputs that the program writes.
    device
        Where all of it runs.
    """

    def __init__(
        self, program: Any, static: Sequence[int], written: Sequence[int], device: torch.device
    ) -> None:
        self._boxed_call = True  # of the object: wrappers take its attributes over
        self.program, self.device = program, device
        self.static, self.written = frozenset(static), tuple(written)
        self.lock = threading.Lock()
        self.captures: dict[Any, _Capture | None] = {}
        self.is_refused = False

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.is_refused:
            return self.program(inputs)
        with API.on(self.device):
            return self._run(inputs)

    def _run(self, inputs: list[Any]) -> list[Any]:
        if API.is_capturing():
            return self.program(inputs)
        key = (API.stream(), *map(self._key, range(len(inputs)), inputs))
        with self.lock:
            if key not in self.captures:
                if len(self.captures) < LIMIT:
                    self.captures[key] = None
                return self.program(inputs)
            capture = self.captures[key]
            addresses = [inputs[i].data_ptr() for i in sorted(self.static)]
            given = list(inputs)
            if capture is None or capture.addresses != addresses:
                capture = self._capture(given, addresses)
                if capture is None:
                    return self.program(inputs)
                self.captures[key] = capture
            inputs.clear()
            return self._replay(capture, given)

    def _key(self, index: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return tuple(value.shape), value.stride(), value.dtype, value.device

    def _capture(self, given: list[Any], addresses: list[int]) -> _Capture | None:
        kept = [
            _copy(value) if isinstance(value, torch.Tensor) and i not in self.static else value
            for i, value in enumerate(given)
        ]
        try:
            graph, outputs = API.capture(lambda: self.program(list(kept)))
        except Exception as error:
            self.is_refused = True
            line = str(error).strip().splitlines()[:1] or [type(error).__name__]
            log.warning(
                "a graph could not be captured for CUDA and runs without: %s. An operator that "
                "cannot be captured is left out if it has the tag torch.Tag.cudagraph_unsafe",
                line[0],
            )
            return None
        places = {_memory(x): i for i, x in enumerate(kept) if isinstance(x, torch.Tensor)}
        shown = [places.get(_memory(x)) if isinstance(x, torch.Tensor) else None for x in outputs]
        return _Capture(graph, kept, outputs, shown, addresses)

    def _replay(self, capture: _Capture, given: list[Any]) -> list[Any]:
        for i, value in enumerate(given):
            if isinstance(value, torch.Tensor) and i not in self.static:
                _elements(capture.inputs[i]).copy_(_elements(value))
        capture.graph.replay()
        for i in self.written:
            if i in self.static:
                torch.autograd.graph.increment_version(given[i])
            else:
                with torch.no_grad():
                    given[i].copy_(capture.inputs[i])
        results = []
        for value, place in zip(capture.outputs, capture.shown, strict=True):
            if not isinstance(value, torch.Tensor):
                results.append(value)
            elif place is None:
                results.append(_copy(value))
            else:
                offset = value.storage_offset() - capture.inputs[place].storage_offset()
                source = given[place]
                results.append(
                    source.detach().as_strided(
                        value.shape, value.stride(), source.storage_offset() + offset
                    )
                )
        return results


def _memory(value: torch.Tensor) -> Any:
    # An empty tensor has no memory: it shows nothing.
    return value.untyped_storage().data_ptr() or id(value)


def _elements(value: torch.Tensor) -> torch.Tensor:
    """All memory from a tensor's first element to its last one."""
    value = value.detach()
    if value.numel() == 0:
        return value.new_empty(0)
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((span,), (1,))


def _copy(value: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, of elements that share memory, too."""
    if value.numel() == 0:
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    return _elements(value).clone().as_strided(value.shape, value.stride())


def _written(graph: fx.Graph) -> list[int]:
    """The inputs that a graph writes."""
    placeholders = graph.find_nodes(op="placeholder")
    written = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            names = [a.name for a in node.target._schema.arguments]
            arguments = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            for argument in node.target._schema.arguments:
                if argument.alias_info is not None and argument.alias_info.is_write:
                    written.update(
                        x
                        for x in pytree.tree_leaves(arguments.get(argument.name))
                        if isinstance(x, fx.Node)
                    )
    return [i for i, node in enumerate(placeholders) if node in written]


# --- A graph ----------------------------------------------------------------------


class _Sequence:
    """Pieces, one after the other. Called like a program."""

    def __init__(self, graph: fx.Graph, programs: dict[str, Any]) -> None:
        self._boxed_call = True
        self.inputs = [n.name for n in graph.find_nodes(op="placeholder")]
        (output,) = graph.find_nodes(op="output")
        self.outputs = _names(output.args[0])
        #: The program or the index, what it takes, and what it is called.
        self.steps: list[tuple[Any, list[Any], str]] = []
        for node in graph.nodes:
            if node.op == "call_module":
                self.steps.append((programs[node.target], _names(node.args), node.name))
            elif node.op == "call_function":
                self.steps.append((node.args[1], _names(node.args[:1]), node.name))
        self.programs = list(programs.values())

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values = dict(zip(self.inputs, inputs, strict=True))
        inputs.clear()
        lasts = {x: i for i, (_, taken, _) in enumerate(self.steps) for x in _strings(taken)}
        lasts |= dict.fromkeys(_strings(self.outputs), len(self.steps))
        for i, (work, taken, name) in enumerate(self.steps):
            arguments = [values.get(x, x) if isinstance(x, str) else x for x in taken]
            for x in _strings(taken):
                if lasts[x] == i:
                    values.pop(x, None)
            if isinstance(work, int):
                values[name] = arguments[0][work]
            else:
                values[name] = work(arguments)
        return [values[x] if isinstance(x, str) else x for x in self.outputs]


def _names(arguments: Any) -> list[Any]:
    return [x.name if isinstance(x, fx.Node) else x for x in arguments]


def _strings(names: Sequence[Any]) -> set[str]:
    return {x for x in names if isinstance(x, str)}


def compile_graph(
    gm: fx.GraphModule,
    static: Sequence[int],
    compile_piece: Callable[[fx.GraphModule, str], Any],
) -> Any:
    """Compiles a graph of AOTAutograd such that CUDA replays what can be captured.

    Parameters
    ----------
    gm
        The graph; its nodes have their fake values.
    static
        Indices of inputs that keep their address from call to call.
    compile_piece
        Compiles a graph; it is given a word that tells the pieces apart.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    names = {placeholders[i].name for i in static}
    pieces = _partition(gm)
    if len(set(pieces.values())) < 2:
        return _captured(gm, static, compile_piece(gm, ""))
    split = split_module(gm, None, lambda node: pieces[node], keep_original_order=True)
    programs = {}
    for number, (name, piece) in enumerate(split.named_children()):
        single = _return_list(piece)
        program = compile_piece(piece, f"_piece{number}")
        inputs = piece.graph.find_nodes(op="placeholder")
        fixed = [i for i, node in enumerate(inputs) if node.name in names]
        captured = _captured(piece, fixed, program)
        programs[name] = _First(captured) if single else captured
    return _Sequence(split.graph, programs)


class _First:
    """The one result of a program."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __call__(self, inputs: list[Any]) -> Any:
        return self.program(inputs)[0]


def _return_list(piece: fx.GraphModule) -> bool:
    """Makes a graph that returns one value return a list; whether it was one."""
    (output,) = piece.graph.find_nodes(op="output")
    result = output.args[0]
    if isinstance(result, (tuple, list)):
        return False
    output.args = ((result,) if isinstance(result, fx.Node) else (),)
    piece.recompile()
    return isinstance(result, fx.Node)


def _captured(gm: fx.GraphModule, static: Sequence[int], program: Any) -> Any:
    reasons = [why for node in gm.graph.nodes if (why := obstacle(node))]
    reason = reasons[0] if reasons else program.capture_obstacle(DEVICE)
    devices = {t.device for node in gm.graph.nodes for t in _tensors(node)}
    if len(devices) > 1:
        reason = reason or "it works on " + " and ".join(sorted(map(str, devices)))
    if reason or not any(obstacle(node) == "" for node in gm.graph.nodes):
        if reason and not reasons:
            log.info("not captured for CUDA: %s", reason)
        return program
    return Captured(program, static, _written(gm.graph), devices.pop())
