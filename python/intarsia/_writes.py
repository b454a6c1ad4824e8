# ===- _writes.py - Writes that functionalisation cannot express --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What AOTAutograd would record as another write than the program's."""

from __future__ import annotations

import functools
import operator

import torch
from torch import fx

from intarsia._fx import source_line
from intarsia._namespaces import is_custom
from intarsia.errors import CompileError

__all__ = ["check_writes"]


def check_writes(gm: fx.GraphModule) -> None:
    """Refuses what PyTorch's functionalisation records as another write.

    A custom operator's write into a view is recorded as sizes and strides within the
    view's base, without the dtype of the view, and without whether it is a conjugate.

    A product that is stored into integers is recorded as a conversion, where eager refuses
    what cannot be cast.

    Raises
    ------
    CompileError
        For a written view of another dtype, or a lazily conjugated or negated one; for a
        product of floats that is stored into integers.
    """
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            _check_cast(node)
    for node in gm.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
            continue
        if not is_custom(target):
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


#: Of PyTorch's operators in place, those whose fake implementations cast what they should
#: refuse; test/python/test_dtype_refusals.py looks for others.
_CASTING = ("mul_", "multiply_", "addcmul_", "__imul__", operator.imul)


def _check_cast(node: fx.Node) -> None:
    if node.target not in _CASTING:
        return
    values = [a.meta.get("example_value") if isinstance(a, fx.Node) else a for a in node.args]
    into = values[0]
    if not isinstance(into, torch.Tensor):
        return
    factors = [v for v in values if isinstance(v, (torch.Tensor, int, float, complex))]
    kinds = [torch.result_type(into, factor) for factor in factors]
    kind = functools.reduce(torch.promote_types, kinds)
    if not torch.can_cast(kind, into.dtype):
        raise CompileError(
            f"result type {kind} can't be cast to {into.dtype}, the dtype of the tensor that "
            f"{node.target} writes; convert the tensor first: x = x.to({kind})\n"
            f"  source:   {source_line(node)}"
        )


def _lies_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.dtype, a.is_conj(), a.is_neg()) == (b.dtype, b.is_conj(), b.is_neg())
