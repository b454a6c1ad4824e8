# ===- _cuda.py - GPUs that a graph runs on ------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What kernels for CUDA are made for. Nothing of CUDA is asked for a graph without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

__all__ = ["archs"]

#: Where tensors are fake and there is no GPU to ask.
_DEFAULT = "sm_80"


def archs(gm: fx.GraphModule) -> list[str]:
    """The GPUs that the graph's tensors are on, as ``"sm_90"``; empty without any.

    Parameters
    ----------
    gm
        A graph of Dynamo or AOTAutograd, whose nodes have their fake values.
    """
    devices = {
        leaf.device.index or 0
        for module in gm.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
        for leaf in pytree.tree_leaves(_value(node))
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda"
    }
    if not devices:
        return []
    if torch.version.hip or not torch.cuda.is_available():
        return [] if torch.version.hip else [_DEFAULT]
    capabilities = {torch.cuda.get_device_capability(index) for index in devices}
    return [f"sm_{major}{minor}" for major, minor in sorted(capabilities)]


def _value(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))
