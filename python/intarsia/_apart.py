# ===- _apart.py - Inputs that share memory ------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Inputs that share memory, where a graph writes one of them.

AOTAutograd traces such a graph for inputs that overlap as they do in the first call, and
functionalises it: what lies apart there is two values. PyTorch guards this in some cases only;
in others a later call, whose inputs overlap otherwise, would compute with old values. We look
at each call, and run the graph as eager does where the inputs do not lie as they were traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from intarsia._contract import is_plain, storage
from intarsia._extension import extension
from intarsia._hooks import overloads_of
from intarsia._warnings import warn
from intarsia.errors import OverlapError

__all__ = ["Watching", "in_eager_where_moved", "watched"]


def watched(
    placeholders: Sequence[fx.Node],
    names: Sequence[str],
    metadata: Any,
    static: Collection[int],
) -> list[tuple[int, bool, str]]:
    """The inputs of AOTAutograd's graph that have to lie apart.

    Parameters
    ----------
    placeholders, names
        Of the forward or the inference graph; what the user calls them.
    metadata
        AOTAutograd's ViewAndMutationMeta of the function, or None.
    static
        Which of them are parameters or buffers; two of these are not compared.

    Returns
    -------
    list
        The index of each, whether it is written, and its name.
    """
    if metadata is None:
        return []
    written = {i for i, info in enumerate(metadata.input_info) if info.mutates_data}
    descriptors = [node.meta.get("desc") for node in placeholders]
    kinds = [type(descriptor).__name__ for descriptor in descriptors]
    if not written or "SyntheticBaseAOTInput" in kinds:
        return []
    result = [
        (i, descriptor.idx in written, names[i] or f"number {i}")
        for i, (kind, descriptor) in enumerate(zip(kinds, descriptors, strict=True))
        if kind == "PlainAOTInput" and (descriptor.idx in written or i not in static)
    ]
    return result if len(result) > 1 and any(is_written for _, is_written, _ in result) else []


class Watching:
    """A program that copies inputs, or runs in pieces, and cannot look at them itself."""

    def __init__(self, program: Callable[..., Any], apart: list[tuple[int, bool, str]]) -> None:
        self._boxed_call = True
        self.program, self.apart = program, apart

    def __call__(self, inputs: list[Any]) -> Any:
        extension().check_apart(inputs, self.apart)
        return self.program(inputs)


def in_eager_where_moved(
    gm: fx.GraphModule, inputs: Sequence[Any], compiled: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """`compiled`, or the graph node by node where inputs overlap otherwise than these.

    Parameters
    ----------
    gm
        Dynamo's graph.
    inputs
        What it was compiled for.
    compiled
        Raises an `OverlapError`, before it does anything, where inputs that lay apart overlap.
    name
        Of the graph, for the warning.
    """
    written = _written(gm)
    examples = [n.meta.get("example_value") for n in gm.graph.find_nodes(op="placeholder")]
    if not written or sum(map(is_plain, examples)) < 2:
        return compiled
    overlapping = _overlapping(inputs, written)
    # A symbolic offset may be another in each call.
    fixed = [i for i in overlapping if isinstance(examples[i].storage_offset(), int)]
    places = _places(inputs, overlapping, fixed)
    warned = False

    def call(*args: Any) -> Any:
        nonlocal warned
        try:
            if overlapping and _places(args, overlapping, fixed) != places:
                raise OverlapError(
                    "inputs share memory, one of them is written, and they overlap otherwise "
                    "than those that the program was compiled for"
                )
            return compiled(*args)
        except OverlapError as error:
            what = str(error)
        if not warned:
            warned = True
            warn(
                f"{name}: {what}. This call runs as in eager. Pass the tensor that they are "
                "parts of, and take the parts inside the function; or pass tensors that lie apart."
            )
        return gm(*args)

    return call


def _overlapping(inputs: Sequence[Any], written: Collection[int]) -> list[int]:
    """The inputs of which AOTAutograd sees one tensor: they overlap, and one is written."""
    groups: dict[int, list[int]] = {}
    for i, t in enumerate(inputs):
        if is_plain(t):
            groups.setdefault(storage(t), []).append(i)
    shared = [group for group in groups.values() if not written.isdisjoint(group)]
    return sorted(
        i
        for group in shared
        for i in group
        if any(i != j and extension().may_overlap(inputs[i], inputs[j]) for j in group)
    )


def _places(
    inputs: Sequence[Any], overlapping: Sequence[int], fixed: Collection[int]
) -> list[tuple[int, int]]:
    first: dict[int, int] = {}
    return [
        (first.setdefault(storage(inputs[i]), i), inputs[i].storage_offset() if i in fixed else 0)
        for i in overlapping
    ]


def _written(gm: fx.GraphModule) -> set[int]:
    """The inputs that the graph may write, by their indices."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    tensors = {
        i: t for i, n in enumerate(placeholders) if is_plain(t := n.meta.get("example_value"))
    }
    inside = [m for m in gm.modules() if isinstance(m, fx.GraphModule) and m is not gm]
    if any(_may_write(module) for module in inside):
        return set(tensors)
    storages = set()
    for node in gm.graph.nodes:
        if any(op._schema.is_mutable for op in overloads_of(node.target)):
            given = [n.meta.get("example_value") for n in node.all_input_nodes]
            storages |= {storage(t) for t in pytree.tree_leaves(given) if is_plain(t)}
    return {i for i, t in tensors.items() if _is_counted(t) or storage(t) in storages}


def _may_write(gm: fx.GraphModule) -> bool:
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return any(is_plain(t) and _is_counted(t) for t in values) or any(
        op._schema.is_mutable for node in gm.graph.nodes for op in overloads_of(node.target)
    )


def _is_counted(t: torch.Tensor) -> bool:
    """Whether a write was counted while Dynamo traced; none is of a tensor of inference mode."""
    return t.is_inference() or t._version > 0
