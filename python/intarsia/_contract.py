# ===- _contract.py - What operators return between compiled pieces ----------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The contract of an operator that runs between two compiled graphs.

Inside a compiled graph, ``lib/Runtime/Torch/Calls.cpp`` does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import sympy
import torch
from torch import fx
from torch.utils import _pytree as pytree

from intarsia._extension import extension
from intarsia._fakes import fake_location
from intarsia._fx import source_line
from intarsia._hooks import overloads_of
from intarsia._warnings import warn
from intarsia.errors import ContractError

__all__ = ["Contract", "Symbols", "is_plain", "storage"]

#: The symbols of the inputs' sizes, and what they are in a call.
Symbols = dict[sympy.Symbol, sympy.Integer]


class Contract:
    """Compares what an operator returned with what its fake implementation said."""

    def __init__(self, node: fx.Node, strict: bool, given: Any, symbols: Symbols) -> None:
        operators = overloads_of(node.target)
        self.node = node
        self.symbols = symbols
        self.fake = fake_location(operators[0].name())
        self.is_aliasing = any(r.alias_info for op in operators for r in op._schema.returns)
        #: For the storage of an argument's example value, both.
        self.aliased = dict(_aliased(node, given)) if self.is_aliasing else {}
        # The kernel of such an operator is given other strides than the fake was.
        self.is_free = any(tag in op.tags for op in operators for tag in _FREE_LAYOUT)
        self.strict = strict and not self.is_free
        #: What has a storage, and if it is a result, the tensor.
        self.seen: dict[int, list[tuple[str, torch.Tensor | None]]] = {
            storage(t): [("an argument", None)] for t in pytree.tree_leaves(given) if is_plain(t)
        }

    def receive(self, result: Any) -> Any:
        """What the program goes on with."""
        promised = self.node.meta.get("example_value")
        if isinstance(promised, tuple) and isinstance(result, tuple):
            pairs = enumerate(zip(result, promised, strict=True))
            return tuple(self._value(t, want, f"output {i}") for i, (t, want) in pairs)
        return self._value(result, promised, "output 0")

    def _value(self, value: Any, want: Any, place: str) -> Any:
        if isinstance(want, (list, tuple)) and isinstance(value, (list, tuple)):
            if len(value) != len(want):
                self._broken(f"{place} has {len(value)} members", f"{len(want)}")
            pairs = enumerate(zip(value, want, strict=True))
            return type(value)(self._value(t, w, f"{place}[{i}]") for i, (t, w) in pairs)
        if isinstance(want, torch.Tensor) != isinstance(value, torch.Tensor):
            is_tensor = isinstance(want, torch.Tensor)
            self._broken(f"{place} is {value}", "a tensor" if is_tensor else f"{want}")
        if is_plain(want):
            if not is_plain(value):
                self._broken(f"{place} has the layout {value.layout}", "a strided tensor")
            return self._tensor(value, want, place)
        if isinstance(want, (int, float, torch.SymInt)) and isinstance(value, (int, float)):
            number = self._number(want)
            if number is not None and value != number and not (value != value and want != want):
                self._broken(f"{place} is {value}", f"{number}")
        return value

    def _tensor(self, t: torch.Tensor, want: torch.Tensor, place: str) -> torch.Tensor:
        sizes = [self._number(n) for n in want.shape]
        fits = len(sizes) == t.dim() and all(
            n is None or n == m for n, m in zip(sizes, t.shape, strict=True)
        )
        if (t.dtype, t.device) != (want.dtype, want.device) or not fits:
            self._broken(
                f"{place} is {t.dtype} of size {list(t.shape)} on {t.device}",
                f"{want.dtype} of size {_text(sizes, want.shape)} on {want.device}",
            )
        if self.is_aliasing:
            if storage(want) in self.aliased:
                self._alias(t, want, place)
            return t
        for name, other in self.seen.get(storage(t), ()) if t.numel() else ():
            if other is not None and not extension().may_overlap(t, other):
                continue  # parts of one new tensor
            raise ContractError(
                f"{self.node.target}: {place} shares memory with {name}, which "
                f"its schema does not declare{self._where()}. Return a copy from the kernel (for "
                "example x.clone())."
            )
        self.seen.setdefault(storage(t), []).append((place, t))
        strides = [self._number(n) for n in want.stride()]
        extents = zip(t.stride(), strides, t.shape, strict=True)
        if not t.numel() or all(m is None or n == m or size <= 1 for n, m, size in extents):
            return t
        return self._mended(t, strides, place)

    def _alias(self, t: torch.Tensor, want: torch.Tensor, place: str) -> None:
        example, argument = self.aliased[storage(want)]
        if storage(t) != storage(argument):
            raise ContractError(
                f"{self.node.target}: {place} is another tensor than the argument that its "
                f"schema says it returns{self._where()}. Return the argument itself, or a view of "
                "it, from the kernel, or declare a result of its own in the schema (Tensor, "
                "without (a!) or (a))."
            )
        strides = [self._number(n) for n in want.stride()]
        begin, promised = (
            self._number(a.storage_offset() - b.storage_offset())
            for a, b in ((t, argument), (want, example))
        )
        if begin != promised or any(
            m not in (n, None) and size > 1
            for n, m, size in zip(t.stride(), strides, t.shape, strict=True)
        ):
            self._broken(
                f"{place} is a view with strides {list(t.stride())}, {begin} elements after its "
                "argument",
                f"one with {strides}, {promised} after it",
            )

    def _mended(self, t: torch.Tensor, strides: Sequence[Any], place: str) -> torch.Tensor:
        what = f"{place} has strides {list(t.stride())} (size {list(t.shape)})"
        if self.strict:
            self._broken(what, f"{strides}")
        if not self.is_free and (self.node.target, place) not in _warned:
            _warned.add((self.node.target, place))
            warn(
                f"{self.node.target}: {what}, but its fake implementation promised {strides}"
                f"{self._where()}. It is copied into the promised layout at every call. To save "
                "the copy, return the kernel's strides from the fake implementation "
                f"({self.fake})."
            )
        if None in strides:
            return t.contiguous()
        return t.new_empty_strided(t.shape, strides).copy_(t)

    def _broken(self, is_: str, promised: str) -> NoReturn:
        raise ContractError(
            f"{self.node.target}: {is_}, but its fake implementation promised {promised}"
            f"{self._where()}. Fix the fake implementation ({self.fake}) or the kernel: they must "
            "agree for all inputs."
        )

    def _where(self) -> str:
        return f" ({source_line(self.node)})"

    def _number(self, number: Any) -> Any:
        """Its value in this call; None when only the kernel knows it."""
        if not isinstance(number, torch.SymInt):
            return number
        value = number.node.expr.xreplace(self.symbols)
        return int(value) if value.is_Integer else None


def _aliased(node: fx.Node, given: Any) -> Iterator[tuple[int, tuple[torch.Tensor, torch.Tensor]]]:
    examples = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("example_value"))
    pairs = zip(pytree.tree_leaves(examples), pytree.tree_leaves(given), strict=False)
    return ((storage(a), (a, t)) for a, t in pairs if is_plain(a) and is_plain(t))


_FREE_LAYOUT = (
    torch.Tag.needs_contiguous_strides,
    torch.Tag.needs_fixed_stride_order,
    torch.Tag.flexible_layout,
)

#: Operators and places of which a warning was given.
_warned: set[tuple[Any, str]] = set()


def _text(sizes: Sequence[Any], promised: Sequence[Any]) -> str:
    shown = (m if n is None else n for n, m in zip(sizes, promised, strict=True))
    return f"[{', '.join(map(str, shown))}]"


def is_plain(value: Any) -> bool:
    """Whether it has a storage of its own: not where a transform wraps another tensor."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata
