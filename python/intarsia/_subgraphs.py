# ===- _subgraphs.py - Subgraphs that Python calls ---------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The subgraphs of higher-order operators that run in Python.

Such an operator's own implementation decides how often, and on what, it calls its
subgraph. The subgraph that it is given is compiled for what it was traced with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from intarsia import _fx
from intarsia._extension import extension
from intarsia.errors import CompileError

__all__ = ["compiled_when_called"]

log = logging.getLogger("intarsia")


def compiled_when_called(
    gm: fx.GraphModule, options: Callable[[], dict[str, Any]]
) -> fx.GraphModule:
    """A graph module that computes what `gm` does, compiled at its first call.

    It is still a graph module, which operators ask of their subgraphs. Called on
    something else than it was traced with (other sizes, batched or fake tensors, an
    active dispatch mode), it runs node by node as `gm` does.

    Parameters
    ----------
    gm
        A subgraph of a graph from AOTAutograd.
    options
        Makes the options of the compilation.
    """
    result = fx.GraphModule(gm, gm.graph)
    result.forward = _Subgraph(gm, options)  # type: ignore[method-assign]
    return result


class _Subgraph:
    def __init__(self, gm: fx.GraphModule, options: Callable[[], dict[str, Any]]) -> None:
        self.gm = gm
        self.options = options
        self.traced = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
        output = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0]
        self.is_single = not isinstance(output, (tuple, list))
        self.spec = pytree.tree_structure(
            output, is_leaf=lambda leaf: isinstance(leaf, fx.Node) or leaf is None
        )
        # Not yet compiled: False; cannot be compiled: None.
        self.program: Any = False
        self.lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        if not self.fits(args):
            return self.gm(*args)
        with self.lock:
            if self.program is False:
                self.program = self.compile()
        if self.program is None:
            return self.gm(*args)
        results = self.program(list(args))
        return results[0] if self.is_single else pytree.tree_unflatten(results, self.spec)

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether these are what the subgraph was traced with."""
        if (
            torch._C._functorch.maybe_current_level() is not None
            or torch._C._len_torch_dispatch_stack() > 0
            or len(args) != len(self.traced)
        ):
            return False
        for arg, traced in zip(args, self.traced, strict=True):
            if not isinstance(traced, torch.Tensor):
                if isinstance(arg, torch.Tensor):
                    return False
                continue
            if type(arg) not in (torch.Tensor, torch.nn.Parameter):
                return False
            if (arg.dtype, arg.device, arg.dim()) != (traced.dtype, traced.device, traced.dim()):
                return False
            # A symbolic size is the program's to check.
            for have, want in zip(
                (*arg.shape, *arg.stride()), (*traced.shape, *traced.stride()), strict=True
            ):
                if isinstance(want, int) and have != want:
                    return False
        return True

    def compile(self) -> Any:
        try:
            read = _fx.read_graph(self.gm)
            program = extension().compile(read.json, read.objects, self.options())
        except CompileError as error:
            # A size of the surrounding graph, for example, that no input tells.
            log.info("a subgraph runs node by node: %s", error)
            return None
        program._boxed_call = True
        return program
