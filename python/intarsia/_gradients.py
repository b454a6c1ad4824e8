# ===- _gradients.py - Gradients that eager leaves out ------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""None where eager's gradient is None, in a graph that was cut.

Between two compiled graphs stands an operator that may have no gradient. Eager passes that
on: what only such operators read gets no gradient. AOTAutograd's backward takes zeros in
its place and computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from intarsia._hooks import overloads_of
from intarsia._namespaces import is_custom

__all__ = ["keep_none", "readers"]


def readers(module: fx.GraphModule, writes: bool) -> list[set[int] | None]:
    """For each input of a graph, the outputs whose gradients its own is made of.

    None stands for an input that always has a gradient: a formula of somebody else is
    called with zeros.

    Parameters
    ----------
    module
        A graph of Dynamo's.
    writes
        Whether it writes tensors; then each output may depend on each input.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    (results,) = module.graph.output_node().args
    every = set(range(len(results)))
    read: dict[fx.Node, set[int] | None] = {node: set() for node in module.graph.nodes}

    def add(node: fx.Node, more: set[int] | None) -> None:
        have = read[node]
        read[node] = None if have is None or more is None else have | more

    for i, result in enumerate(results):
        add(result, {i})
    for node in reversed(module.graph.nodes):
        if node.op in ("call_function", "call_method"):
            more = None if _has_formula(node) else every if writes else read[node]
            for used in node.all_input_nodes:
                add(used, more)
    return [read[node] for node in placeholders]


def _has_formula(node: fx.Node) -> bool:
    is_higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    return is_higher_order or any(map(is_custom, overloads_of(node.target)))


def keep_none(
    compiled: Callable[..., Sequence[Any]], reads: Sequence[set[int] | None]
) -> Callable[..., Sequence[Any]]:
    """The same function; in its backward, inputs of which nothing with a gradient was made
    get none.

    Parameters
    ----------
    compiled
        What AOTAutograd made of a graph.
    reads
        See `readers`.
    """

    def call(*args: Any) -> Sequence[Any]:
        # An argument may be written, and is then the result of another node.
        edges = [_edge(t) for t in args]
        results = compiled(*args)
        for node in {t.grad_fn for t in results if isinstance(t, torch.Tensor)}:
            if node is not None and node.name() == "CompiledFunctionBackward":
                outputs = {
                    t.output_nr: i
                    for i, t in enumerate(results)
                    if isinstance(t, torch.Tensor) and t.grad_fn is node
                }
                inputs = [
                    [reads[i] for i, edge in enumerate(edges) if edge == (function, number)]
                    for function, number in node.next_functions
                ]
                node.register_hook(_leave_out(inputs, outputs))
        return results

    return call


def _edge(t: Any) -> tuple[Any, int] | None:
    if not isinstance(t, torch.Tensor) or not t.requires_grad:
        return None
    edge = torch.autograd.graph.get_gradient_edge(t)
    return edge.node, edge.output_nr


def _leave_out(
    inputs: Sequence[Sequence[set[int] | None]], outputs: Mapping[int, int]
) -> Callable[..., Any]:
    def hook(computed: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        # What is no result of the graph may be made of everything.
        present = {outputs.get(i) for i, grad in enumerate(given) if grad is not None}
        return tuple(
            grad if any(_reach(reads, present) for reads in all_reads or (None,)) else None
            for grad, all_reads in zip(computed, inputs, strict=True)
        )

    return hook


def _reach(reads: set[int] | None, present: set[int | None]) -> bool:
    return reads is None or None in present or not reads.isdisjoint(present)
