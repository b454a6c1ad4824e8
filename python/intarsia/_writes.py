# ===- _writes.py - Writes that functionalisation cannot express --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What AOTAutograd would record as another write than the program's."""

from __future__ import annotations

import torch
from torch import fx

from intarsia._fx import source_line
from intarsia._namespaces import TRACED
from intarsia.errors import CompileError

__all__ = ["check_writes"]


def check_writes(gm: fx.GraphModule) -> None:
    """Refuses what PyTorch's functionalisation records as another write.

    A custom operator's write into a view is recorded as sizes and strides within the
    view's base, without the dtype of the view, and without whether it is a conjugate.

    Raises
    ------
    CompileError
        For a written view of another dtype, or a lazily conjugated or negated one.
    """
    for node in gm.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
            continue
        if target.namespace in TRACED:
            continue
        declared = target._schema.arguments
        named = zip(declared, node.args, strict=False)
        given = [*named, *((a, node.kwargs[a.name]) for a in declared if a.name in node.kwargs)]
        for argument, value in given:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for member in value if isinstance(value, (list, tuple)) else (value,):
                written = member.meta.get("example_value") if isinstance(member, fx.Node) else None
                base = written._base if isinstance(written, torch.Tensor) else None
                if base is None or _lies_alike(written, base):
                    continue
                kind = str(written.dtype) if written.dtype != base.dtype else "a lazy conjugate"
                raise CompileError(
                    f"operator {target} writes its argument '{argument.name}', a view "
                    f"({kind}) of a tensor of {base.dtype}. PyTorch's functionalisation "
                    f"cannot express this. Write a copy, and copy it back: "
                    f"y = view.clone(); op(y); view.copy_(y)\n"
                    f"  source:   {source_line(node)}"
                )


def _lies_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.dtype, a.is_conj(), a.is_neg()) == (b.dtype, b.is_conj(), b.is_neg())
