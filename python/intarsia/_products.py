# ===- _products.py - The faster library for each product ---------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Times each float32 product of a graph with the two libraries that PyTorch has for it.

``aten::mm`` and ``aten::addmm`` call PyTorch's BLAS (MKL), ``mkldnn::_linear_pointwise``
calls oneDNN. Which is faster depends on the processor and on the sizes, by up to a
fifth either way; their results differ in the last bits. ``mode="max-autotune"`` takes
the faster one (``products="fastest"``).
"""

from __future__ import annotations

import functools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import fx

__all__ = ["choose"]

log = logging.getLogger("intarsia")

aten = torch.ops.aten

#: Fewer multiplications than this are over before a library makes a difference.
_SMALLEST = 1 << 18
#: Parts by which oneDNN must be faster: what is within the noise stays as in eager.
_MARGIN = 0.04
#: Seconds after which a product is not timed once more.
_PATIENCE = 0.1
_ROUNDS = 6


class _Product(NamedTuple):
    """left (m x k) times right (k x n), by sizes and strides."""

    left: tuple[tuple[int, int], tuple[int, int]]
    right: tuple[tuple[int, int], tuple[int, int]]
    has_bias: bool


def is_allowed() -> bool:
    """Whether the user lets oneDNN compute, and in full precision."""
    mkldnn: Any = torch.backends.mkldnn
    precise = mkldnn.matmul.fp32_precision in ("none", "ieee")
    return mkldnn.is_available() and mkldnn.enabled and precise


def choose(gm: fx.GraphModule) -> int:
    """Gives to oneDNN the products of `gm`, in place, that it computes faster.

    Returns how many. Only of sizes that are known: what is timed must be what runs.
    """
    if not is_allowed():
        return 0
    changed = 0
    for node in list(gm.graph.nodes):
        product = _product(node)
        if product is None:
            continue
        aten_time, onednn_time = _times(product, torch.get_num_threads())
        if onednn_time > (1 - _MARGIN) * aten_time:
            continue
        *bias, left, right = node.args
        with gm.graph.inserting_before(node):
            weight = _transposed(right)
            if weight is None:
                weight = gm.graph.call_function(aten.permute.default, (right, [1, 0]))
                weight.meta = {**node.meta, "val": aten.permute(right.meta["val"], [1, 0])}
            new = gm.graph.call_function(
                torch.ops.mkldnn._linear_pointwise.default,
                (left, weight, bias[0] if bias else None, "none", [], ""),
            )
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
        if not right.users and right.op == "call_function":
            gm.graph.erase_node(right)
        changed += 1
    return changed


def _product(node: fx.Node) -> _Product | None:
    if node.target is aten.mm.default and len(node.args) == 2:
        bias, (left, right) = None, node.args
    elif node.target is aten.addmm.default and len(node.args) == 3:
        bias, left, right = node.args
    else:
        return None
    if node.kwargs:
        return None
    tensors = [x.meta.get("val") for x in (left, right, bias) if isinstance(x, fx.Node)]
    for x in tensors:
        if (
            not isinstance(x, torch.Tensor)
            or x.device.type != "cpu"
            or x.dtype is not torch.float32
            or not all(isinstance(n, int) for n in (*x.shape, *x.stride()))
        ):
            return None
    a, b = tensors[:2]
    m, k, n = *a.shape, b.shape[1]
    if m * k * n < _SMALLEST:
        return None
    # oneDNN does not look at a bias's stride.
    if bias is not None and _layout(tensors[2]) != ((n,), (1,)):
        return None
    return _Product(_layout(a), _layout(b), bias is not None)


def _layout(x: torch.Tensor) -> Any:
    return tuple(x.shape), tuple(x.stride())


def _transposed(node: fx.Node) -> fx.Node | None:
    """What the matrix `node` is the transpose of."""
    target, rest = node.target, tuple(node.args[1:])
    if (
        target is aten.t.default
        or (target is aten.permute.default and [n % 2 for n in rest[0]] == [1, 0])
        or (target is aten.transpose.int and {n % 2 for n in rest} == {0, 1})
    ):
        return node.args[0]
    return None


@functools.cache
def _times(product: _Product, threads: int) -> tuple[float, float]:
    """Seconds in ATen and in oneDNN; products alike are timed once a process.

    `threads` is how many compute, and belongs to the key.
    """
    # A thread of its own has none of the modes under which a graph is compiled: tensors
    # are real there.
    with ThreadPoolExecutor(1) as pool:
        times = pool.submit(_time, product).result()
    sizes = " x ".join(str(n) for n in (*product.left[0], product.right[0][1]))
    log.info("product %s: ATen %.3f ms, oneDNN %.3f ms", sizes, *(1e3 * t for t in times))
    return times


def _time(product: _Product) -> tuple[float, float]:
    def matrix(sizes: tuple[int, int], strides: tuple[int, int]) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=torch.float32).fill_(1.0)

    left, right = matrix(*product.left), matrix(*product.right)
    bias = torch.ones(product.right[0][1], dtype=torch.float32) if product.has_bias else None
    weight = right.t()
    candidates = (
        lambda: aten.mm(left, right) if bias is None else aten.addmm(bias, left, right),
        lambda: torch.ops.mkldnn._linear_pointwise(left, weight, bias, "none", [], ""),
    )
    best = [float("inf")] * len(candidates)
    with torch.no_grad():
        start = time.perf_counter()
        for number in range(_ROUNDS + 1):
            for which, run in enumerate(candidates):
                begin = time.perf_counter()
                run()
                if number > 0:  # the first makes what the library keeps
                    best[which] = min(best[which], time.perf_counter() - begin)
            if number > 1 and time.perf_counter() - start > _PATIENCE:
                break
    return best[0], best[1]
