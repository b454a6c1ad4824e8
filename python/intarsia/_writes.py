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
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from intarsia._fx import source_line
from intarsia._hooks import overloads_of
from intarsia._namespaces import is_custom
from intarsia.errors import CompileError

__all__ = ["check_writes", "use_what_is_written", "written_by"]


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
        for target, argument, value in written_by(node):
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


def use_what_is_written(gm: fx.GraphModule) -> None:
    """Puts the argument that an operator writes in the place of the result that is it.

    An operator tagged ``inplace`` or ``out`` returns what it was given. AOTAutograd traces two
    values, of which a later write through one name does not change the other.
    """
    for module in gm.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            for target, argument, value in written_by(node):
                index = _returned(target, argument)
                if index is None or not isinstance(value, fx.Node):
                    continue
                is_alone = len(target._schema.returns) == 1
                for result in [node] if is_alone else _members(node, index):
                    # A branch may not return what it was given.
                    result.replace_all_uses_with(
                        value, lambda user, inner=module is not gm: not inner or user.op != "output"
                    )
                module.recompile()


def written_by(
    node: fx.Node,
) -> Iterator[tuple[torch._ops.OpOverload, torch._C.Argument, Any]]:
    """What a node gives to the arguments that its custom operator writes."""
    for target in filter(is_custom, overloads_of(node.target)):
        for i, argument in enumerate(target._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            if argument.name in node.kwargs:
                yield target, argument, node.kwargs[argument.name]
            elif i < len(node.args) and not argument.kwarg_only:
                yield target, argument, node.args[i]


def _returned(target: torch._ops.OpOverload, argument: torch._C.Argument) -> int | None:
    """Which result of an operator tagged inplace or out is this argument."""
    if not {torch.Tag.inplace, torch.Tag.out}.intersection(target.tags):
        return None
    aliases = [result.alias_info for result in target._schema.returns]
    same = (a is not None and a.before_set == argument.alias_info.before_set for a in aliases)
    return next((i for i, found in enumerate(same) if found), None)


def _members(node: fx.Node, index: int) -> list[fx.Node]:
    return [u for u in node.users if u.target is operator.getitem and u.args[1] == index]


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
