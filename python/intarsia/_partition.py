# ===- _partition.py - Forward and backward ------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Splits AOTAutograd's joint graph into a forward and a backward.

PyTorch's partitioners know what a value is needed for, and nothing of effects: they
move a call that reads only saved tensors into the forward, repeat in the backward what
has no use, or lose it. `partition` says of each custom operator, in their terms, where
eager runs it: a call of a backward formula in the backward, every other in the forward,
and what eager's activation checkpointing runs again, in both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from intarsia._fx import autocast_of
from intarsia._namespaces import is_custom

__all__ = ["partition"]


def partition(
    fuse: bool,
    joint: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    num_fwd_outputs: int,
    **kwargs: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The ``partition_fn`` of ``aot_autograd``.

    Parameters
    ----------
    fuse
        Whether pointwise chains may be computed again in the backward, which then costs
        less than storing them. Otherwise every operator runs once, as in eager.
    joint, inputs, num_fwd_outputs, **kwargs
        As PyTorch's partitioners take them.
    """
    from torch._functorch.partitioners import (
        CheckpointPolicy,
        default_partition,
        min_cut_rematerialization_partition,
    )

    calls = _Calls(joint)
    there = (*calls.backward, *calls.random)
    for node in there:
        node.meta["partitioner_tag"] = "must_be_in_backward"
    for node in calls.region_inputs:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in joint.graph.nodes:
        if node.name in calls.order:
            node.meta[_CALL] = node.name
    # Calls for their effect are results, until they are where they belong.
    first = [node for node in calls.forward if not node.users]
    second = [node for node in there if not node.users] + calls.repeated
    _add_outputs(joint, num_fwd_outputs, first, second)
    kwargs["num_fwd_outputs"] = num_fwd_outputs + len(first)
    with _without_side_effects(joint, calls), _with_our_fusion():
        try:
            split = min_cut_rematerialization_partition if fuse else default_partition
            forward, backward = split(joint, inputs, **kwargs)
        except AssertionError as error:
            # PyTorch's default partitioner refuses nodes that return no tensor, which
            # Dynamo leaves in some graphs.
            if fuse or "to be a tensor" not in str(error):
                raise
            forward, backward = min_cut_rematerialization_partition(joint, inputs, **kwargs)
    _remove_outputs(forward, num_fwd_outputs, len(first))
    _remove_outputs(backward, -len(second) or None, len(second))
    _drop_repeated_random(forward, backward, calls.random)
    _name_random_calls(forward, backward)
    _restore_order(backward, calls.order)
    _repeat_random(forward, backward, num_fwd_outputs)
    forward.recompile()
    backward.recompile()
    return forward, backward


#: The name that a call had in the joint graph, in a node's meta.
_CALL = "intarsia_call"


class _Calls:
    """The custom calls of a joint graph.

    Attributes
    ----------
    forward, backward
        In which part eager runs them, in order.
    random
        PyTorch's own random operators of backward formulas. What they read is often
        known in the forward, but the numbers are drawn in the backward.
    repeated
        Those of `forward` that activation checkpointing runs in the backward, too.
    region_inputs
        What regions with such calls are given. Eager's checkpointing saves it; computed
        again, it could need the calls of an earlier region too soon.
    order
        For each of these calls by name, a key: they run in the backward in the order of
        their keys.
    """

    def __init__(self, joint: fx.GraphModule) -> None:
        from torch._functorch.partitioners import is_rng_op

        position = {node: i for i, node in enumerate(joint.graph.nodes)}
        last_forward = max(
            (position[n] for n in position if n.meta.get("partitioner_tag") == "is_forward"),
            default=-1,
        )

        def is_backward(node: fx.Node) -> bool:
            # The backward of an autograd.Function comes without a tag.
            tag = node.meta.get("partitioner_tag")
            return tag == "is_backward" or (tag is None and position[node] > last_forward)

        custom = [node for node in position if _is_custom_call(node)]
        self.backward = [node for node in custom if is_backward(node)]
        self.forward = [node for node in custom if not is_backward(node)]
        self.random = [
            node
            for node in position
            if is_rng_op(node) and not _is_custom_call(node) and is_backward(node)
        ]
        regions = _Regions(joint, position, is_backward)
        self.repeated = [node for node in self.forward if regions.repeats(node)]
        with_calls = {_region(node) for node in self.repeated}
        self.region_inputs = {
            given
            for node in position
            if _region(node) in with_calls and _region(node) is not None
            for given in node.all_input_nodes
            if given.op == "call_function" and _region(given) != _region(node)
        }.difference(self.repeated)
        there = (*self.backward, *self.random)
        self.order = {node.name: (position[node], 0, 0) for node in there}
        for node in self.forward:
            if (begin := regions.begins(node)) is not None:
                self.order[node.name] = (begin, -1, position[node])


class _Regions:
    """What eager's activation checkpointing runs again.

    When the first tensor that a region saved is asked for, the region runs again, until
    the last one that it saved is there. What runs in autograd for a node of the backward
    has its sequence number.
    """

    def __init__(self, joint: fx.GraphModule, position: dict[fx.Node, int], is_backward: Any):
        self.position = position
        #: For each region, where in the backward it runs, and up to where in the forward.
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        saving: dict[int, fx.Node] = {}
        for node in joint.graph.nodes:
            if node.op != "call_function":
                continue
            if not is_backward(node):
                saving[node.meta.get("seq_nr", -1)] = node
                continue
            saved = [n for n in node.all_input_nodes if not is_backward(n)]
            if saved and node.meta.get("partitioner_tag") is not None:
                # Not where the value is computed: a region saves its inputs, too, and
                # what is saved outside of it is there.
                saved = [saving.get(node.meta.get("seq_nr", -1), saved[0])]
            for value in saved:
                if (region := _region(value)) is not None:
                    self.first.setdefault(region, position[node])
                    self.last[region] = max(self.last.get(region, -1), position[value])

    def repeats(self, node: fx.Node) -> bool:
        """Whether a custom call runs again. One that writes does not: its write would."""
        region = _region(node)
        return (
            region is not None
            and isinstance(node.target, torch._ops.OpOverload)
            and self.position[node] <= self.last.get(region, -1)
        )

    def begins(self, node: fx.Node) -> int | None:
        """The node of the backward before which its region runs again."""
        region = _region(node)
        return None if region is None else self.first.get(region)


def _region(node: fx.Node) -> int | None:
    """The checkpointed region that computes the node again in the backward."""
    from torch._functorch.partitioners import must_recompute

    return node.meta.get("ac_graph_id", -1) if must_recompute(node) else None


def _is_custom_call(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        if target.name() not in ("auto_functionalized", "auto_functionalized_v2"):
            return False
        target = node.args[0]
    return isinstance(target, torch._ops.OpOverload) and is_custom(target)


@contextlib.contextmanager
def _without_side_effects(joint: fx.GraphModule, calls: _Calls) -> Iterator[None]:
    """Custom operators count as pure, so that each call is only where it has a use.

    Not inside of branches, loops and regions, which stay what they are.
    """
    from torch.fx.node import _side_effectful_functions

    called = {node.target for node in (*calls.forward, *calls.backward)}
    called |= {node.args[0] for node in (*calls.forward, *calls.backward) if node.args}
    marked = {op for op in called if isinstance(op, torch._ops.OpOverload)}
    marked &= _side_effectful_functions
    inside = [
        node
        for module in joint.modules()
        if isinstance(module, fx.GraphModule) and module is not joint
        for node in module.graph.nodes
        if node.op == "call_function" and node.target in marked
    ]
    stand_ins = {op: _StandIn(op) for op in {node.target for node in inside}}
    for node in inside:
        node.target = stand_ins[node.target]
    _side_effectful_functions.difference_update(marked)
    _side_effectful_functions.update(stand_ins.values())
    try:
        yield
    finally:
        for node in inside:
            node.target = node.target.op
        _side_effectful_functions.difference_update(stand_ins.values())
        _side_effectful_functions.update(marked)


class _StandIn:
    """In the place of an operator, for as long as others of it count as pure."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        self.op = op
        self.__name__ = "stand_in"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)


#: Operators of which passes/Lower makes kernels, and which PyTorch's partitioner, whose
#: own compiler has taken them apart, thinks of as library calls. Beside one of these it
#: saves what could be computed again on the way into the kernel.
_FUSED = (
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_native_batch_norm_legit_functional",
    "_softmax",
    "_softmax_backward_data",
    "native_batch_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
)


@contextlib.contextmanager
def _with_our_fusion() -> Iterator[None]:
    """The partitioner knows what is fused with its neighbours."""
    from torch._functorch import partitioners

    original = partitioners.get_default_op_list

    def ours() -> Any:
        types = original()
        fused = {getattr(torch.ops.aten, name) for name in _FUSED}
        return dataclasses.replace(types, fusible_ops=types.fusible_ops | fused)

    partitioners.get_default_op_list = ours
    try:
        yield
    finally:
        partitioners.get_default_op_list = original


# --- Outputs ----------------------------------------------------------------------


def _output(gm: fx.GraphModule) -> fx.Node:
    return next(node for node in reversed(gm.graph.nodes) if node.op == "output")


def _add_outputs(
    joint: fx.GraphModule, num_fwd_outputs: int, first: list[fx.Node], second: list[fx.Node]
) -> None:
    """Adds results of the forward (`first`) and of the backward."""
    from torch._functorch.partitioners import CheckpointPolicy
    from torch.utils import _pytree as pytree

    for node in first:
        # The default partitioner takes what is no tensor only if it is to be saved;
        # then it finds no use of it.
        if not isinstance(node.meta.get("val"), torch.Tensor):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    output = _output(joint)
    results = pytree.arg_tree_leaves(*output.args)
    descriptors = pytree.arg_tree_leaves(output.meta.get("desc", [None] * len(results)))
    output.args = (tuple(_with(results, num_fwd_outputs, first, second)),)
    none = [None] * len(first), [None] * len(second)
    output.meta["desc"] = _with(descriptors, num_fwd_outputs, *none)


def _with(values: list[Any], place: int, first: list[Any], second: list[Any]) -> list[Any]:
    return [*values[:place], *first, *values[place:], *second]


def _remove_outputs(gm: fx.GraphModule, start: int | None, count: int) -> None:
    if not count:
        return
    output = _output(gm)

    def shorter(values: Any) -> Any:
        values = list(values)
        begin = len(values) + start if start < 0 else start
        return values[:begin] + values[begin + count :]

    output.args = (tuple(shorter(output.args[0])),)
    for key in ("desc", "output_stack_traces"):
        if output.meta.get(key) is not None:
            output.meta[key] = shorter(output.meta[key])


# --- What is left to do in the backward -----------------------------------------------


def _drop_repeated_random(
    forward: fx.GraphModule, backward: fx.GraphModule, random: list[fx.Node]
) -> None:
    """PyTorch's own random operators without a use, which its partitioners keep in both
    parts, run where eager runs them: those of `random` in the backward."""
    late = {node.name for node in random}
    names = [
        {node.name for node in gm.graph.nodes if node.op == "call_function"}
        for gm in (forward, backward)
    ]
    both = names[0] & names[1]
    for gm, elsewhere in ((forward, both & late), (backward, both - late)):
        for node in reversed(gm.graph.nodes):
            if node.name in elsewhere and not node.users and not _is_custom_call(node):
                gm.graph.erase_node(node)


def _name_random_calls(forward: fx.GraphModule, backward: fx.GraphModule) -> None:
    """Random operators that run again are other nodes in PyTorch's backward, with a state
    that the forward saves; both parts have them in the order of the program."""
    saving = torch._prims.rng_prims.run_and_save_rng_state
    saved = forward.graph.find_nodes(op="call_function", target=saving)
    placeholders = backward.graph.find_nodes(op="placeholder")
    states = [node for node in placeholders if node.name.startswith("rng_state_output_")]
    for first, state in zip(saved, states, strict=False):  # CUDA's generators have none
        call = next((n.meta.get(_CALL) for n in first.users if n.args[1] == 1), None)
        for again in state.users if call else ():
            again.meta[_CALL] = call


def _restore_order(backward: fx.GraphModule, order: dict[str, Any]) -> None:
    """Puts the calls of the backward in eager's order.

    PyTorch moves what is computed again to where it is needed. Only calls that stand
    behind a later one move, with what they need; a call that needs a later one does not.
    """
    graph = backward.graph
    calls = [n for n in graph.nodes if n.op == "call_function" and n.meta.get(_CALL) in order]
    calls.sort(key=lambda node: order[node.meta[_CALL]])
    place = {node: i for i, node in enumerate(graph.nodes)}
    done: set[fx.Node] = set()
    if all(place[a] < place[b] for a, b in itertools.pairwise(calls)):
        return

    def needed(node: fx.Node) -> list[fx.Node]:
        found: set[fx.Node] = set()
        stack = [node]
        while stack:
            node = stack.pop()
            if node not in found and node not in done:
                found.add(node)
                stack += node.all_input_nodes
        return sorted(found, key=place.__getitem__)

    ranks = {node: i for i, node in enumerate(calls)}
    result: list[fx.Node] = []
    emitted = 0

    def emit(node: fx.Node) -> None:
        for each in needed(node):
            done.add(each)
            result.append(each)

    for node in list(graph.nodes):
        while emitted < ranks.get(node, -1):
            emit(calls[emitted])
            emitted += 1
        emit(node)
    for before, after in itertools.pairwise(result):
        before.append(after)
    graph.lint()


# --- Random numbers in what is computed again -------------------------------------------


def _repeat_random(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """A custom call that the backward repeats draws the numbers that it drew, under the
    autocast that it ran under.

    PyTorch saves the generator's state around operators whose tag says that they are
    random. Eager does it for whole regions, whatever they call.
    """
    from torch._functorch.partitioners import is_rng_op

    first = {node.name: node for node in forward.graph.nodes if _is_plain_custom_call(node)}
    for second in list(backward.graph.nodes):
        node = first.get(second.name)
        if node is None or not _is_plain_custom_call(second) or is_rng_op(second):
            continue
        states = []
        for device in _devices(node):
            with forward.graph.inserting_before(node):
                state = forward.graph.call_function(_random_state, (device,))
            state.meta["val"] = _fake_state(node, device)
            states.append((device, _save(forward, backward, state, num_fwd_outputs)))
        with backward.graph.inserting_before(second):
            again = backward.graph.call_function(
                _with_random_states,
                (
                    *([s for _, s in states], [d for d, _ in states]),
                    *(list(autocast_of(node).items()), second.target, *second.args),
                ),
                dict(second.kwargs),
            )
        again.meta = second.meta
        second.replace_all_uses_with(again)
        backward.graph.erase_node(second)


def _is_plain_custom_call(node: fx.Node) -> bool:
    return _is_custom_call(node) and isinstance(node.target, torch._ops.OpOverload)


def _devices(node: fx.Node) -> list[str]:
    """The devices whose generators the call may use."""
    values = (n.meta.get("val") for n in node.all_input_nodes)
    found = {str(v.device) for v in values if isinstance(v, torch.Tensor) and v.is_cuda}
    return ["cpu", *sorted(found)]


def _save(
    forward: fx.GraphModule, backward: fx.GraphModule, value: fx.Node, num_fwd_outputs: int
) -> fx.Node:
    """Saves a tensor for the backward, as the first one."""
    from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput
    from torch._functorch.partitioners import is_sym_node

    output = _output(forward)
    output.args = (tuple(_with(list(output.args[0]), num_fwd_outputs, [value], [])),)
    for key, more in (("desc", SavedForBackwardsAOTOutput(0)), ("output_stack_traces", None)):
        if output.meta.get(key) is not None:
            output.meta[key] = _with(list(output.meta[key]), num_fwd_outputs, [more], [])
    # Symbolic sizes come before the tensors.
    placeholders = backward.graph.find_nodes(op="placeholder")
    tensors = [node for node in placeholders if not is_sym_node(node)]
    with backward.graph.inserting_before(tensors[0] if tensors else _output(backward)):
        saved = backward.graph.placeholder(value.name)
    saved.meta["val"] = value.meta["val"]
    return saved


def _fake_state(node: fx.Node, device: str) -> torch.Tensor:
    values = [n.meta.get("val") for n in node.all_input_nodes] + [node.meta.get("val")]
    mode = torch._guards.detect_fake_mode(values)
    with mode or contextlib.nullcontext():
        return torch.empty(_STATE_BYTES[device.partition(":")[0]], dtype=torch.uint8)


_STATE_BYTES = {"cpu": torch.get_rng_state().numel(), "cuda": 16}


def _random_state(device: str) -> torch.Tensor:
    """The state of a device's generator, which lies on the CPU."""
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state(device)


def _with_random_states(
    states: Sequence[torch.Tensor],
    devices: Sequence[str],
    autocast: Sequence[tuple[str, torch.dtype]],
    op: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Calls an operator as it was called before, and leaves no trace in the generators."""
    before = [_random_state(device) for device in devices]
    try:
        for state, device in zip(states, devices, strict=True):
            _set_random_state(state, device)
        with contextlib.ExitStack() as around:
            for device, dtype in autocast:
                around.enter_context(torch.autocast(device, dtype=dtype))
            return op(*args, **kwargs)
    finally:
        for state, device in zip(before, devices, strict=True):
            _set_random_state(state, device)


def _set_random_state(state: torch.Tensor, device: str) -> None:
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
