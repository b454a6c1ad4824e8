# ===- fusion_programs.py - Random programs for the fusion tests -------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Random programs of lowered operators, views, in-place writes and opaque calls.

A program is Python text, one statement a line, so that a failure prints as a script
that runs by itself and shrinks by leaving statements out. It is grown one statement at
a time while eager mode executes it: eager decides what is a valid statement, and a
statement that raises, or whose values leave the range in which the comparison means
something, is not taken.

`check` runs a program eagerly, with every node a call and fused, and compares results
(values, dtypes, sizes, strides), mutated inputs and gradients. Every variable is either
*exact* (only operators that IEEE 754 or integer arithmetic define to the last bit have
touched it) and must agree bit for bit, or not, and then has a tolerance; what jumps
(comparisons, casts to integers, indices) is only ever made from exact variables.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Mismatch", "Program", "check", "generate", "shrink"]

SIZES = (3, 5, 7, 2, 17, 33, 65, 1, 130, 0)
FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "uint8", "bool", "int16", "int8")
COMPLEX = ("complex64", "complex128")
#: The largest tensor of a program; and the largest magnitude in it.
MAX_ELEMENTS = 20000
MAX_MAGNITUDE = 1000.0

TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 3e-2,
    torch.bfloat16: 2e-1,
}


# --- Operators that nobody may look into --------------------------------------------

_library = torch.library.Library("fusion", "FRAGMENT")


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = "fusion::" + schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake, lib=_library)


def _affine_backward(ctx: Any, grad: torch.Tensor) -> Any:
    return torch.ops.fusion.affine(grad, 2.0) - 1, None


_define(
    "affine(Tensor x, float a) -> Tensor", lambda x, a: x * a + 1, lambda x, a: torch.empty_like(x)
)
torch.library.register_autograd("fusion::affine", _affine_backward, lib=_library)
_define("both(Tensor x, Tensor y) -> Tensor", lambda x, y: x + y, lambda x, y: x + y)
_define("double_(Tensor(a!) x) -> ()", lambda x: _void(x.mul_(2)), lambda x: None)
_define(
    "add_to_(Tensor x, Tensor(a!) y) -> ()",
    lambda x, y: _void(y.add_(x.clone())),
    lambda x, y: None,
)
_define(
    "halves(Tensor x) -> (Tensor, Tensor)",
    lambda x: (x + 1, (x - 1).contiguous()),
    lambda x: (torch.empty_like(x), torch.empty(x.shape, dtype=x.dtype)),
)


def _void(_: Any) -> None:
    return None


# --- Inputs -------------------------------------------------------------------------


def values(shape: Sequence[int], dtype: str, seed: int) -> torch.Tensor:
    """Multiples of 1/4 of small magnitude: exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    low = 0 if dtype in ("uint8", "bool") else -8
    drawn = torch.randint(low, 9 if dtype != "bool" else 2, tuple(shape), generator=generator)
    if kind.is_complex:
        return (drawn / 4).to(kind) * (1 + 0.5j)
    return (drawn / 4).to(kind) if kind.is_floating_point else drawn.to(kind)


def lay_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in other memory."""
    if layout == "transposed" and x.dim() >= 2:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "overlapping" and x.dim() >= 1:
        # Each row begins one element after the last.
        base = values((sum(x.shape),), str(x.dtype).removeprefix("torch."), x.numel())
        return base.as_strided(x.shape, [1] * x.dim())
    if layout == "strided" and x.dim() >= 1:
        base = torch.zeros([2 * n + 1 for n in x.shape], dtype=x.dtype)
        view = base[tuple(slice(1, None, 2) for _ in x.shape)]
        return view.copy_(x)
    if layout == "offset":
        base = torch.zeros(x.numel() + 3, dtype=x.dtype)
        return base[3:].view(x.shape).copy_(x)
    if layout == "expanded" and x.dim() >= 1:
        return x[:1].expand(x.shape) if x.shape[0] else x
    return x.contiguous()


# --- Programs -----------------------------------------------------------------------


@dataclass
class Program:
    """A program as text.

    Attributes
    ----------
    inputs : list of str
        For each argument ``x0``, ``x1``... the expression that makes it. An expression
        may name an earlier argument: then they share memory.
    statements : list of str
    outputs : list of str
    exact : list of str
        The variables among the outputs and arguments that must agree bit for bit.
    gradients, dynamic : bool
    """

    inputs: list[str]
    statements: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    exact: list[str] = field(default_factory=list)
    gradients: bool = False
    dynamic: bool = False

    def text(self) -> str:
        """The function's source."""
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        lines = [f"def program({names}):", *(f"    {s}" for s in self.statements)]
        results = "".join(f"{name}, " for name in self.outputs)
        return "\n".join([*lines, f"    return ({results})"])

    def reproducer(self) -> str:
        """A script that runs this program through `check`."""
        return "\n".join(
            [
                "from fusion_programs import Program, check",
                "check(Program(",
                f"    inputs={self.inputs!r},",
                "    statements=[",
                *(f"        {s!r}," for s in self.statements),
                "    ],",
                f"    outputs={self.outputs!r},",
                f"    exact={self.exact!r},",
                f"    gradients={self.gradients}, dynamic={self.dynamic},",
                "))",
            ]
        )

    def make_inputs(self) -> list[torch.Tensor]:
        made: dict[str, Any] = dict(_NAMESPACE)
        for i, expression in enumerate(self.inputs):
            made[f"x{i}"] = eval(expression, made)
        inputs = [made[f"x{i}"] for i in range(len(self.inputs))]
        if self.gradients:
            for x in inputs:
                if x.is_floating_point() and x._base is None:
                    x.requires_grad_(True)
        return inputs

    def function(self) -> Callable[..., Any]:
        scope: dict[str, Any] = dict(_NAMESPACE)
        exec(compile(self.text(), "<program>", "exec"), scope)
        return scope["program"]


_NAMESPACE = {
    "torch": torch,
    "F": torch.nn.functional,
    "ops": torch.ops.fusion,
    "values": values,
    "lay_out": lay_out,
}


# --- Growing a program --------------------------------------------------------------


class _Rejected(Exception):
    """The statement at hand cannot be made from what is there."""


class _Grower:
    """Draws statements and executes them."""

    def __init__(self, choose: Callable[[int], int]):
        self.choose = choose
        self.program = Program([])
        self.scope: dict[str, Any] = dict(_NAMESPACE)
        self.names: list[str] = []
        self.exact: set[str] = set()
        self.count = 0

    # Drawing.

    def pick(self, items: Sequence[Any]) -> Any:
        if not items:
            raise _Rejected
        return items[self.choose(len(items))]

    def chance(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    def any(
        self, accept: Callable[[torch.Tensor], bool] = lambda x: True, exact: bool = False
    ) -> str:
        """A variable, the later ones more often."""
        fitting = [
            name
            for name in self.names
            if (not exact or name in self.exact) and accept(self.scope[name])
        ]
        if len(fitting) > 3 and not self.chance(3):
            fitting = fitting[-3:]
        # The last one is what choosing 0 means: programs shrink to chains.
        return self.pick(fitting[::-1])

    def float(self, exact: bool = False) -> str:
        return self.any(lambda x: x.is_floating_point(), exact)

    def get(self, name: str) -> torch.Tensor:
        return self.scope[name]

    def dim(self, name: str) -> int:
        x = self.get(name)
        if x.dim() == 0:
            raise _Rejected
        return self.choose(x.dim()) - (x.dim() if self.chance(2) else 0)

    # Growing.

    def inputs(self) -> None:
        sizes = [self.pick(SIZES) for _ in range(3)]
        if 0 in sizes and not self.chance(4):
            sizes = [n or 3 for n in sizes]
        program = self.program
        program.gradients = self.chance(4)
        program.dynamic = self.chance(3)
        floats = self.pick(FLOATS) if not self.chance(3) else "float32"
        for i in range(1 + self.choose(4)):
            if i and self.chance(6):
                self._alias(f"x{self.choose(i)}", i)
                continue
            rank = self.pick((2, 3, 1, 2, 3, 2, 4, 0))
            shape = [self.pick(sizes) if not self.chance(8) else 1 for _ in range(rank)]
            while math.prod(shape) > MAX_ELEMENTS:
                shape[shape.index(max(shape))] = 2
            dtype = floats if not self.chance(4) else self.pick((*INTEGERS, *FLOATS, *COMPLEX))
            layout = self.pick(
                (
                    *("contiguous", "contiguous", "transposed", "strided", "offset", "expanded"),
                    "channels_last" if rank == 4 else "overlapping",
                )
            )
            made = f"values({tuple(shape)}, {dtype!r}, {self.choose(1000)})"
            if layout != "contiguous":
                made = f"lay_out({made}, {layout!r})"
            self._input(made, i)
        # Two arguments may be the same memory only where nothing is differentiated.
        self.is_leaf = set(self.names)

    def _alias(self, base: str, i: int) -> None:
        x = self.get(base)
        forms = [base]
        if x.dim():
            forms += [f"{base}[1:]", f"{base}[::2]", f"{base}.transpose(0, -1)"]
        self._input(self.pick(forms) if not self.program.gradients else base, i)

    def _input(self, expression: str, i: int) -> None:
        self.scope[f"x{i}"] = eval(expression, self.scope)
        self.program.inputs.append(expression)
        self.names.append(f"x{i}")
        self.exact.add(f"x{i}")

    def add(self, template: Callable[[_Grower], tuple[str, bool] | str | None]) -> bool:
        """Executes one statement of this kind; False if there is none."""
        try:
            made = template(self)
        except _Rejected:
            return False
        expression, exact = made if isinstance(made, tuple) else (made, True)
        used = [name for name in self.names if _mentions(expression, name)]
        exact = exact and all(name in self.exact for name in used)
        inplace = expression.startswith("!")
        expression = expression.removeprefix("!")
        results = expression.count("halves(") + 1 if not inplace else 0
        new = [f"v{self.count + k}" for k in range(results)]
        statement = f"{', '.join(new)} = {expression}" if new else expression
        saved = {n: self.get(n).detach().clone() for n in self.names} if inplace else {}
        try:
            exec(statement, self.scope)
        except Exception:
            return False
        if inplace and not all(_tame(self.get(name)) for name in self.names):
            # Undo, base by base, in the order in which they were made.
            with torch.no_grad(), contextlib.suppress(Exception):
                for name, value in saved.items():
                    self.get(name).copy_(value)
            return False
        if not all(isinstance(self.scope[n], torch.Tensor) and _tame(self.scope[n]) for n in new):
            return False
        self.program.statements.append(statement)
        self.names += new
        self.count += results
        if exact:
            self.exact.update(new)
        # What shares memory with something inexact is inexact.
        written = {
            self.get(n).untyped_storage().data_ptr() for n in self.names if n not in self.exact
        }
        if inplace and not exact:
            target = used[0]
            written.add(self.get(target).untyped_storage().data_ptr())
        self.exact -= {
            n
            for n in self.names
            if self.get(n).untyped_storage().data_ptr() in written and self.get(n).numel()
        }
        return True

    def finish(self) -> Program:
        program = self.program
        made = [n for n in self.names if n.startswith("v")] or self.names
        outputs = [made[-1]]
        for _ in range(self.choose(4)):
            outputs.append(self.any())
        if program.gradients:
            outputs = list(dict.fromkeys(outputs))
        program.outputs = outputs
        kept = (n for n in self.names if n in outputs or n.startswith("x"))
        program.exact = [n for n in kept if n in self.exact]
        return program


def _mentions(expression: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", expression) is not None


def _tame(x: torch.Tensor) -> bool:
    if x.numel() > MAX_ELEMENTS or x.dim() > 5:
        return False
    is_number = x.is_floating_point() or x.is_complex() or x.dtype in (torch.int64, torch.int32)
    if x.numel() == 0 or not is_number:
        return True
    limit = MAX_MAGNITUDE / 8 if x.dtype in (torch.float16, torch.bfloat16) else MAX_MAGNITUDE
    return bool(x.detach().abs().max() <= limit)


# --- Kinds of statements ------------------------------------------------------------


def _unary_exact(g: _Grower) -> str:
    name = g.any()
    x = g.get(name)
    if x.dtype is torch.bool:
        return f"torch.logical_not({name})"
    if not x.is_floating_point():
        return g.pick(
            (
                f"{name} * 3",
                f"-{name}",
                f"{name} // 3",
                f"torch.abs({name})",
                f"torch.bitwise_not({name})",
                f"{name}.clamp(1, 5)",
                f"{name} % 3",
            )
        )
    return g.pick(
        (
            f"-{name}",
            f"torch.abs({name})",
            f"torch.relu({name})",
            f"{name} * 0.5",
            f"{name} + 1.5",
            f"{name}.clamp(-1, 1)",
            f"torch.reciprocal({name}.abs() + 1)",
            f"{name} - 0.25",
            f"{name} / 3",
            f"{name}.clamp_min(0.5)",
            f"{name}.square()",
        )
    )


def _unary_math(g: _Grower) -> tuple[str, bool]:
    name = g.float()
    form = g.pick(
        (
            "torch.exp({}.clamp(-4, 4))",
            "torch.tanh({})",
            "torch.sigmoid({})",
            "torch.log({}.abs() + 1)",
            "torch.erf({})",
            "F.gelu({})",
            "F.silu({})",
            "torch.sin({})",
            "torch.cos({})",
            "F.gelu({}, approximate='tanh')",
            "torch.log1p({}.abs())",
            "torch.rsqrt({}.abs() + 0.5)",
            # Eager's is not correctly rounded; the kernels' is.
            "torch.sqrt({}.abs())",
        )
    )
    return form.format(name), False


def _jump(g: _Grower) -> str:
    name = g.any(exact=True)
    return g.pick(
        (
            f"({name} > 0)",
            f"({name} == {name})",
            f"torch.sign({name})",
            f"({name} != 1)",
            f"({name} <= 0.5)",
            f"torch.floor({name})",
            f"torch.round({name})",
        )
    )


def _cast(g: _Grower) -> str:
    name = g.any()
    kinds = FLOATS + (INTEGERS if name in g.exact else ())
    dtype = g.pick(kinds)
    source = g.get(name)
    if dtype == "uint8" and source.numel() and source.is_floating_point():
        name = f"{name}.abs()"
    return f"{name}.to(torch.{dtype})"


def _partner(g: _Grower, name: str) -> str:
    """A variable that broadcasts with `name`."""
    shape = g.get(name).shape

    def fits(x: torch.Tensor) -> bool:
        try:
            return math.prod(torch.broadcast_shapes(shape, x.shape)) <= MAX_ELEMENTS
        except RuntimeError:
            return False

    return g.any(fits)


def _binary(g: _Grower) -> str:
    a = g.any()
    b = _partner(g, a)
    if g.chance(2):
        a, b = b, a
    if torch.bool in (g.get(a).dtype, g.get(b).dtype):
        return g.pick(
            (
                f"torch.logical_or({a}, {b})",
                f"torch.logical_and({a}, {b})",
                f"{a} + {b}",
                f"{a} * {b}",
            )
        )
    return g.pick(
        (
            f"{a} + {b}",
            f"{a} - {b}",
            f"{a} * {b}",
            f"torch.maximum({a}, {b})",
            f"torch.minimum({a}, {b})",
            f"{a} / ({b}.abs() + 1)",
            f"torch.add({a}, {b}, alpha=2)",
        )
    )


def _compare(g: _Grower) -> str:
    a = g.any(exact=True)
    b = _partner(g, a)
    if b not in g.exact:
        raise _Rejected
    return f"({a} {g.pick(('<', '>=', '=='))} {b})"


def _where(g: _Grower) -> str:
    c = g.any(lambda x: x.dtype is torch.bool)
    a = _partner(g, c)
    b = _partner(g, a)
    return g.pick(
        (f"torch.where({c}, {a}, {b})", f"{a}.masked_fill({c}, 0.5)", f"torch.where({c}, {a}, 0)")
    )


def _dims(g: _Grower, name: str) -> str:
    x = g.get(name)
    if x.dim() == 0 or g.chance(8):
        return ""
    chosen = sorted({g.choose(x.dim()) for _ in range(1 + g.choose(x.dim()))})
    return repr(chosen[0] if len(chosen) == 1 else tuple(chosen))


def _reduce(g: _Grower) -> tuple[str, bool]:
    name = g.any()
    x = g.get(name)
    dims = _dims(g, name)
    keep = ", keepdim=True" if dims and g.chance(2) else ""
    call = f"({dims}{keep})"
    if x.is_floating_point():
        inexact = (
            f"{name}.sum{call}",
            f"{name}.mean{call}",
            f"torch.var({name}, {dims or None}, correction=0{keep})",
            f"torch.linalg.vector_norm({name}, 2, {dims or None}{keep})",
            f"{name}.logsumexp{call}",
        )
        exact = (f"{name}.amax{call}", f"{name}.amin{call}") if name in g.exact else ()
        chosen = g.pick((*inexact, *exact))
        return chosen, chosen in exact
    exact = [f"{name}.sum{call}", f"torch.any({name}{', ' + dims if dims else ''}{keep})"]
    if x.dtype is not torch.bool:
        exact += [f"{name}.amax{call}", f"{name}.amin{call}"]
    return g.pick(exact), True


def _argmax(g: _Grower) -> str:
    name = g.any(lambda x: x.dtype is not torch.bool, exact=True)
    dim = g.dim(name)
    return g.pick(
        (
            f"torch.argmax({name}, {dim})",
            f"torch.argmin({name}, {dim}, keepdim=True)",
            f"torch.max({name}, {dim})[0]",
            f"torch.max({name}, {dim})[1]",
            f"torch.cumsum({name}, {dim}).clamp(-9, 9)",
        )
    )


def _normalise(g: _Grower) -> tuple[str, bool]:
    name = g.float()
    dim = g.dim(name)
    x = g.get(name)
    return g.pick(
        (
            f"torch.softmax({name}, {dim})",
            f"torch.log_softmax({name}, {dim})",
            f"F.layer_norm({name}, {tuple(x.shape[x.dim() - 1 - g.choose(x.dim()) :])})",
            f"({name} - {name}.mean({dim}, keepdim=True))",
            f"({name} * torch.rsqrt({name}.square().mean({dim}, keepdim=True) + 1))",
            f"F.rms_norm({name}, {tuple(x.shape[-1:])})",
        )
    ), False


def _cat(g: _Grower) -> str:
    a = g.any()
    dim = g.dim(a)
    x = g.get(a)

    def fits(y: torch.Tensor) -> bool:
        return y.dim() == x.dim() and all(
            m == n
            for i, (m, n) in enumerate(zip(x.shape, y.shape, strict=True))
            if i != dim % x.dim()
        )

    parts = [a] + [g.any(fits) for _ in range(g.choose(3))]
    if g.chance(4) and all(g.get(p).shape == x.shape for p in parts):
        return f"torch.stack([{', '.join(parts)}], {dim})"
    return f"torch.cat([{', '.join(parts)}], {dim})"


def _slice_of(g: _Grower, name: str) -> str:
    x = g.get(name)
    if x.dim() == 0:
        raise _Rejected
    parts = []
    for n in x.shape:
        kind = g.choose(6)
        if kind == 0:
            parts.append(f"{g.choose(3)}:")
        elif kind == 1:
            parts.append(f"::{2 + g.choose(2)}")
        elif kind == 2:
            parts.append(f"{g.choose(2)}:{n - g.choose(2)}:{1 + g.choose(2)}")
        else:
            parts.append(":")
    if g.chance(4):
        parts = parts[:1]
    return f"{name}[{', '.join(parts)}]"


def _view(g: _Grower) -> str:
    name = g.any()
    x = g.get(name)
    if x.dim() == 0:
        return g.pick(
            (f"{name}.unsqueeze(0)", f"{name}.expand({g.pick(SIZES)})", f"{name}.reshape(1, 1)")
        )
    order = list(range(x.dim()))
    permuted = []
    while order:
        permuted.append(order.pop(g.choose(len(order))))
    kind = g.choose(10)
    if kind == 0:
        return f"{name}.permute({', '.join(map(str, permuted))})"
    if kind == 1:
        return f"{name}.transpose({g.dim(name)}, {g.dim(name)})"
    if kind == 2:
        return _slice_of(g, name)
    if kind == 3:
        return f"{name}.unsqueeze({g.choose(x.dim() + 1)})"
    if kind == 4:
        return f"torch.flip({name}, [{g.dim(name)}])"
    if kind == 5:
        dim = g.dim(name)
        if not x.shape[dim]:
            raise _Rejected
        return f"{name}.select({dim}, {g.choose(x.shape[dim])})"
    if kind == 6:
        return f"{name}.reshape({_reshaped(g, x.shape)})"
    if kind == 7:
        sizes = [g.pick((2, 3, 5)) if n == 1 else -1 for n in x.shape]
        front = [g.pick((1, 2, 3))] if g.chance(2) else []
        return f"{name}.expand({', '.join(map(str, front + sizes))})"
    if kind == 8:
        return f"{name}.squeeze({g.dim(name)})"
    return f"{name}.contiguous()" if g.chance(2) else f"{name}.flatten({g.choose(x.dim())})"


def _reshaped(g: _Grower, shape: Sequence[int]) -> str:
    """Other sizes for as many elements: some merged, some split."""
    sizes: list[int] = []
    for n in shape:
        if sizes and g.chance(2):
            sizes[-1] *= n
        else:
            sizes.append(n)
    result: list[int] = []
    for n in sizes:
        factor = g.pick((1, 5, 3, 2, 13))
        if n % factor == 0 and n and g.chance(2):
            result += [factor, n // factor] if g.chance(2) else [n // factor, factor]
        else:
            result.append(n)
    return ", ".join(map(str, result))


def _index(g: _Grower) -> str:
    name = g.any()
    x = g.get(name)
    dim = g.dim(name)
    n = x.shape[dim]
    if not n:
        raise _Rejected
    dim = dim % x.dim()
    count = g.pick((1, 3, 7, 17))
    made = f"values(({count},), 'uint8', {g.choose(99)}).long() % {n}"
    if g.program.gradients or g.program.dynamic or g.chance(2):
        made = f"torch.arange({count}) * {1 + g.choose(3)} % {n}"
    integers = [v for v in g.names if v in g.exact and g.get(v).dtype is torch.int64]
    if integers and g.chance(2):
        source = g.pick(integers[::-1])
        made = f"({source} % {n})"
        if g.get(source).dim() == x.dim() and g.chance(2):
            return f"torch.gather({name}, {dim}, {made})"
        if g.get(source).dim() != 1:
            made = f"{made}.reshape(-1)"
    elif "values" in made:
        made = f"(torch.arange({count}) * 2 % {n})"
    if x.dim() == 2 and x.is_floating_point() and g.chance(3):
        return f"F.embedding({made.replace(str(n), str(x.shape[0]))}, {name})"
    if g.chance(2):
        return f"{name}[{':, ' * dim}{made}]"
    return f"torch.index_select({name}, {dim}, {made})"


def _factory(g: _Grower) -> str:
    name = g.any()
    x = g.get(name)
    if x.dim() and g.chance(2):
        dim = g.dim(name)
        return g.pick(
            (f"torch.arange({name}.shape[{dim}])", f"{name} + torch.arange({name}.shape[-1])")
        )
    return g.pick(
        (
            f"torch.full_like({name}, 2)",
            f"torch.zeros_like({name})",
            f"torch.ones({name}.shape)",
            f"torch.full({name}.shape[:1], 1.5)",
            f"torch.tril({name})" if x.dim() >= 2 else f"torch.ones_like({name})",
        )
    )


def _pad(g: _Grower) -> str:
    name = g.any()
    x = g.get(name)
    if x.dim() == 0:
        raise _Rejected
    widths = [g.choose(3) for _ in range(2 * (1 + g.choose(min(x.dim(), 2))))]
    return (
        f"F.pad({name}, {widths}, value=0.5)"
        if x.is_floating_point()
        else f"F.pad({name}, {widths})"
    )


def _share(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def _inplace(g: _Grower) -> tuple[str, bool]:
    target = g.any()
    if g.program.gradients and target.startswith("x"):
        raise _Rejected
    place = target
    kind = g.choose(4)
    if kind == 1 and g.get(target).dim():
        place = _slice_of(g, target)
    elif kind == 2 and g.get(target).dim() >= 2:
        place = f"{target}.t()" if g.get(target).dim() == 2 else f"{target}.transpose(0, 1)"
    elif kind == 3 and g.get(target).dim() and g.get(target).shape[0]:
        place = f"{target}[{g.choose(g.get(target).shape[0])}]"
    try:
        shape = eval(place, g.scope).shape
    except Exception as error:
        raise _Rejected from error

    def fits(x: torch.Tensor) -> bool:
        try:
            return torch.broadcast_shapes(shape, x.shape) == shape
        except RuntimeError:
            return False

    source = g.any(fits)
    if source != place and _share(g.get(source), g.get(target)):
        # What eager makes of overlapping memory is not defined.
        raise _Rejected
    if not g.get(target).is_floating_point() and source not in g.exact:
        raise _Rejected
    call = g.pick(
        (
            f"add_({source})",
            f"copy_({source})",
            f"mul_({source})",
            "add_(1)",
            "mul_(2)",
            f"sub_({source})",
            "zero_()",
            "fill_(1)",
            "clamp_(-1, 1)",
            "neg_()",
        )
    )
    return f"!{place}.{call}", True


def _move(g: _Grower) -> str:
    name = g.any()
    dim = g.dim(name)
    x = g.get(name)
    n = x.shape[dim]
    if not n:
        raise _Rejected
    length = 1 + g.choose(n)
    start = g.choose(n - length + 1)
    widths = [g.choose(min(n, 3)) for _ in range(2)]
    counts = [1 + g.choose(2) for _ in range(x.dim())]
    return g.pick(
        (
            f"torch.roll({name}, {g.choose(9) - 4}, {dim})",
            f"torch.roll({name}, {g.choose(9) - 4})",
            f"{name}.repeat({', '.join(map(str, counts))})",
            f"{name}.repeat_interleave({2 + g.choose(2)}, {dim})",
            f"torch.slice_scatter({name}, {name}.narrow({dim}, 0, {length}) * 2, "
            f"{dim}, {start}, {start + length})",
            f"torch.select_scatter({name}, {name}.select({dim}, 0) * 2, {dim}, {start})",
            f"torch.triu({name}, {g.choose(3) - 1})",
            f"F.pad({name}, {widths}, mode='reflect')",
            f"F.pad({name}, {widths}, mode='replicate')",
            f"F.pad({name}, {widths}, mode='circular')",
            f"torch.stack([{name}, {name}], {dim})",
            f"{name}.unfold({dim}, {length}, 1)",
        )
    )


def _run_along(g: _Grower) -> tuple[str, bool]:
    name = g.any(lambda x: x.dtype is not torch.bool)
    dim = g.dim(name)
    if not g.get(name).is_floating_point():
        return f"torch.cumsum({name}, {dim}).remainder(100)", True
    exact = (f"torch.cummax({name}, {dim})[0]", f"torch.cummin({name}, {dim})[0]")
    inexact = (f"torch.cumsum({name}, {dim})", f"torch.cumprod({name}.clamp(-1, 1), {dim})")
    chosen = g.pick((*inexact, *(exact if name in g.exact else ())))
    return chosen, chosen in exact


def _image(g: _Grower) -> tuple[str, bool]:
    """Windows, and what lies between elements."""
    name = g.any(lambda x: x.is_floating_point() and x.dim() in (3, 4))
    if g.get(name).dim() == 3:
        forms = ("F.interpolate({}, scale_factor=2)", "F.interpolate({}, size=7)")
        forms += ("F.interpolate({}, scale_factor=2, mode='linear')", "F.avg_pool1d({}, 2)")
        forms += ("F.avg_pool1d({}, 3, 1, 1)", "F.avg_pool2d({}, 2, 1)", "F.max_pool1d({}, 2)")
    else:
        forms = ("F.interpolate({}, scale_factor=2)", "F.interpolate({}, size=(7, 5))")
        forms += ("F.interpolate({}, scale_factor=1.5, mode='bilinear')", "F.avg_pool2d({}, 2)")
        forms += ("F.avg_pool2d({}, 3, 2, 1, True)", "F.avg_pool2d({}, 2, 1, 1, False, False)")
        forms += ("F.batch_norm({}, None, None, training=True)", "F.group_norm({}, 1)")
    return g.pick(forms).format(name), False


def _loss(g: _Grower) -> tuple[str, bool]:
    a = g.float()
    x = g.get(a)
    b = g.any(lambda y: y.shape == x.shape and y.dtype is x.dtype)
    reduction = g.pick(("mean", "sum", "none"))
    forms = (
        "F.mse_loss({a}, {b}, reduction='{r}')",
        "F.l1_loss({a}, {b}, reduction='{r}')",
        "F.smooth_l1_loss({a}, {b}, reduction='{r}')",
        "F.huber_loss({a}, {b}, reduction='{r}', delta=0.5)",
        "F.binary_cross_entropy_with_logits({a}, torch.sigmoid({b}), reduction='{r}')",
        "F.kl_div(torch.log_softmax({a}, -1), torch.softmax({b}, -1), reduction='{r}')",
        "F.cross_entropy({a}, torch.arange({a}.shape[0]) % {a}.shape[1], reduction='{r}')",
        "F.cross_entropy({a}, torch.arange({a}.shape[0]) % {a}.shape[1], label_smoothing=0.1)",
        "F.cosine_similarity({a}, {b}, -1)",
    )
    return g.pick(forms).format(a=a, b=b, r=reduction), False


def _more_binary(g: _Grower) -> tuple[str, bool]:
    a = g.any()
    b = _partner(g, a)
    if g.get(a).is_floating_point():
        exact = (f"torch.fmod({a}, 1.5)", f"torch.remainder({a}, 1.5)")
        inexact = (
            f"torch.atan2({a}, {b})",
            f"torch.hypot({a}, {b})",
            f"torch.lerp({a}, {b}, 0.25)",
        )
        chosen = g.pick((*inexact, *(exact if a in g.exact else ())))
        return chosen, chosen in exact
    forms = (f"({a} << 1)", f"({a} >> 1)", f"({a} & {b})", f"({a} | {b})", f"({a} ^ {b})")
    return g.pick((*forms, f"torch.div({a}, 3, rounding_mode='floor')", f"{a}.bool()")), True


def _one_hot(g: _Grower) -> str:
    name = g.any(lambda x: x.dtype is torch.int64, exact=True)
    return f"F.one_hot({name} % 5, 5)"


def _put(g: _Grower) -> str:
    """A number where a mask is true; elements where indices, all different, say."""
    target = g.any(lambda x: x.dim() > 0)
    x = g.get(target)
    if g.program.gradients and target.startswith("x"):
        raise _Rejected
    if g.chance(2):
        rows = g.choose(x.shape[0]) + 1 if x.shape[0] else 0
        return f"!{target}[torch.arange({rows})] = 1"
    mask = g.any(lambda m: m.dtype is torch.bool and x.shape[: m.dim()] == m.shape and m.dim() > 0)
    if _share(g.get(mask), x):
        raise _Rejected
    return f"!{target}[{mask}] = 2"


def _complex(g: _Grower) -> tuple[str, bool]:
    if g.chance(3):
        a = g.any(lambda x: x.dtype in (torch.float32, torch.float64))
        x = g.get(a)
        b = g.any(lambda y: y.shape == x.shape and y.dtype is x.dtype)
        return f"torch.complex({a}, {b})", False
    z = g.any(lambda x: x.is_complex())
    w = _partner(g, z)
    return g.pick(
        (
            *(f"{z} * {w}", f"{z} + {w}", f"{z} - 1j", f"{z}.conj()", f"{z}.abs()", f"{z}.real"),
            *(f"{z}.imag * 2", f"torch.view_as_real({z})", f"{z}.sum()", f"torch.exp({z} * 0.1)"),
            *(f"({z} * 0.1).sin()", f"{z}.conj() * {w}", f"{z} / ({w}.abs() + 1)", f"{z} ** 2"),
            *(f"torch.tanh({z})", f"torch.sqrt({z} + 40)", f"torch.log({z} + 40)"),
        )
    ), False


def _opaque(g: _Grower) -> str:
    name = g.any(lambda x: x.dtype in (torch.float32, torch.float64))
    return (
        g.pick(
            (
                f"ops.affine({name}, 2.0)",
                f"ops.both({name}, {name})",
                f"ops.both({name}, {_partner(g, name)})",
                f"ops.halves({name})",
                f"ops.affine({name}, 0.5)",
            )
        )
        if not g.program.gradients
        else (f"ops.affine({name}, 2.0)")
    )


def _opaque_inplace(g: _Grower) -> str:
    name = g.any(lambda x: x.dtype in (torch.float32, torch.float64))
    if g.program.gradients:
        raise _Rejected
    shape, dtype = g.get(name).shape, g.get(name).dtype
    source = g.any(lambda x: x.shape == shape and x.dtype is dtype)
    return g.pick(
        (
            f"!ops.double_({name})",
            f"!ops.add_to_(y={name}, x={source})",
            f"!ops.add_to_(y={name}, x={name})",
        )
    )


KINDS: tuple[Callable[[_Grower], Any], ...] = (
    *(_unary_exact, _binary, _view, _reduce, _unary_math, _normalise, _view, _binary),
    *(_cast, _where, _jump, _cat, _index, _factory, _inplace, _opaque, _compare),
    *(_argmax, _pad, _opaque_inplace, _view, _binary, _reduce, _inplace),
    *(_move, _run_along, _image, _loss, _more_binary, _one_hot, _put, _complex, _move, _complex),
)


def generate(choose: Callable[[int], int], statements: int = 12) -> Program:
    """A random program; ``choose(n)`` draws a number below n."""
    torch.manual_seed(0)
    grower = _Grower(choose)
    # Eager's warnings are of no interest here.
    grower.inputs()
    with torch.no_grad():
        for _ in range(1 + choose(statements)):
            # Most kinds fit; what doesn't is drawn again, a few times.
            for _ in range(4):
                if grower.add(KINDS[choose(len(KINDS))]):
                    break
    return grower.finish()


# --- Comparing ----------------------------------------------------------------------


class Mismatch(AssertionError):
    """A compiled program did not do what eager does."""


class Discarded(Exception):
    """Not a program: PyTorch refuses it before any backend is called."""


def trace_only(program: Program) -> Callable[..., Any]:
    """What AOTAutograd alone makes of it, with eager operators."""
    from functorch.compile import aot_function, nop

    return aot_function(
        program.function(),
        fw_compiler=nop,
        keep_inference_input_mutations=True,
        dynamic=program.dynamic,
    )


def compile_program(program: Program, fuse: bool) -> Callable[..., Any]:
    """Through AOTAutograd, without Dynamo, whose tracing takes most of the time."""
    from functorch.compile import aot_function
    from torch._functorch.partitioners import (
        default_partition,
        min_cut_rematerialization_partition,
    )

    import intarsia.backend as backend
    from intarsia.options import Options

    settings = Options.resolve(None, {"fuse": fuse})

    def compiler(kind: str) -> Callable[..., Any]:
        return functools.partial(
            backend._compile_graph, kind=kind, stem="program", settings=settings, user_names=[]
        )

    return aot_function(
        program.function(),
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition if fuse else default_partition,
        keep_inference_input_mutations=True,
        dynamic=program.dynamic,
    )


@dataclass
class _Run:
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def _run(program: Program, function: Callable[..., Any]) -> _Run:
    inputs = program.make_inputs()
    outputs = list(function(*inputs))
    gradients: list[torch.Tensor | None] = []
    if program.gradients:
        loss: Any = 0
        for y in outputs:
            if isinstance(y, torch.Tensor) and y.requires_grad and y.is_floating_point():
                weight = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape)
                loss = loss + (y.double() * weight).sum()
        if isinstance(loss, torch.Tensor):
            loss.backward()
        gradients = [x.grad for x in inputs]
    return _Run(outputs, inputs, gradients)


def _tolerance(program: Program, want: _Run) -> float:
    """That of the least precise dtype that a value has gone through."""
    text = program.text() + " ".join(program.inputs)
    used = [t for t in TOLERANCES if str(t).removeprefix("torch.") in text]
    dtypes = [x.dtype.to_real() if x.is_complex() else x.dtype for x in want.outputs + want.inputs]
    return max(TOLERANCES.get(t, 0.0) for t in (*used, *dtypes, torch.float64))


def _difference(got: Any, want: Any, tolerance: float) -> str | None:
    """`tolerance` 0: bit for bit."""
    if (got is None) != (want is None):
        return f"{got}, eager {want}"
    if want is None:
        return None
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {list(got.shape)}, eager {want.dtype} {list(want.shape)}"
    if want.numel() == 0:
        return None
    a, b = got.detach(), want.detach()
    if b.is_complex():
        a, b = (torch.view_as_real(x.resolve_conj().resolve_neg()) for x in (a, b))
    if tolerance == 0 or not b.is_floating_point():
        if torch.equal(a, b):
            return None
    else:
        scale = float(b.abs().nan_to_num(0, 0, 0).max())
        if torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1.0), equal_nan=True):
            return None
    wrong = int(((a != b) & ~((a != a) & (b != b))).sum())
    return f"{wrong} of {b.numel()} elements differ: {_short(a)}, eager {_short(b)}"


def _strides(x: torch.Tensor) -> list[int]:
    """Those that mean something."""
    return [x.stride(i) for i, n in enumerate(x.shape) if n != 1] if x.numel() else []


def _fake_strides(program: Program) -> list[list[int]]:
    """What PyTorch's fake implementations say, which is not always what eager does."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = program.make_inputs()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        outputs = program.function()(*(mode.from_tensor(x.detach()) for x in inputs))
    return [_strides(y) for y in outputs]


def _short(x: torch.Tensor) -> str:
    return str(x.flatten()[:8].tolist())


def check(program: Program) -> None:
    """Raises Mismatch where compiled and eager differ."""
    try:
        want = _run(program, program.function())
    except Exception as error:
        raise Discarded(str(error)) from error
    for fuse in (False, True):
        problem = _problem(program, want, lambda p, fuse=fuse: compile_program(p, fuse))
        if not problem:
            continue
        if theirs := _problem(program, want, trace_only):
            raise Discarded(f"tracing already: {theirs}")
        raise Mismatch(f"{'fused' if fuse else 'unfused'}: {problem}")


def _problem(
    program: Program, want: _Run, compile: Callable[[Program], Callable[..., Any]]
) -> str | None:
    """The first difference from eager."""
    try:
        got = _run(program, compile(program))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    tolerance = _tolerance(program, want)
    for name, a, b in zip(program.outputs, got.outputs, want.outputs, strict=True):
        if problem := _difference(a, b, 0 if name in program.exact else tolerance):
            return f"{name}: {problem}"
    strides = [_strides(x) for x in got.outputs]
    if strides != [_strides(x) for x in want.outputs] and strides != _fake_strides(program):
        return (
            f"strides {[x.stride() for x in got.outputs]}, "
            f"eager {[x.stride() for x in want.outputs]}"
        )
    for i, (a, b) in enumerate(zip(got.inputs, want.inputs, strict=True)):
        if problem := _difference(a, b, 0 if f"x{i}" in program.exact else tolerance):
            return f"x{i} afterwards: {problem}"
    for i, (a, b) in enumerate(zip(got.gradients, want.gradients, strict=True)):
        if problem := _difference(a, b, tolerance):
            return f"gradient of x{i}: {problem}"
    return None


# --- Shrinking ----------------------------------------------------------------------


def _fails(program: Program) -> bool:
    try:
        return fails(program) is not None
    except Discarded:
        return False


def _smaller(program: Program) -> Iterator[Program]:
    fields = vars(program)
    if program.gradients:
        yield Program(**{**fields, "gradients": False})
    if program.dynamic:
        yield Program(**{**fields, "dynamic": False})
    for i in range(len(program.outputs)):
        if len(program.outputs) > 1:
            rest = program.outputs[:i] + program.outputs[i + 1 :]
            yield Program(**{**fields, "outputs": rest})
    for i in range(len(program.statements))[::-1]:
        rest = program.statements[:i] + program.statements[i + 1 :]
        yield Program(**{**fields, "statements": rest})
        # What it makes may also be returned in place of what is made from it.
        if "=" in program.statements[i]:
            made = program.statements[i].split(" = ")[0].split(", ")[0]
            if made not in program.outputs:
                yield Program(
                    **{**fields, "statements": program.statements[: i + 1], "outputs": [made]}
                )
    for i, made in enumerate(program.inputs):
        if made.startswith("lay_out("):
            plain = made[len("lay_out(") :].rsplit(", ", 1)[0]
            yield Program(
                **{**fields, "inputs": [*program.inputs[:i], plain, *program.inputs[i + 1 :]]}
            )


def shrink(program: Program, budget: int = 200) -> Program:
    """A smaller program that fails too."""
    progress = True
    while progress and budget > 0:
        progress = False
        for candidate in _smaller(program):
            budget -= 1
            if budget <= 0:
                break
            if _fails(candidate):
                program, progress = candidate, True
                break
    return program


def fails(program: Program, seconds: int = 60) -> str | None:
    """What is wrong with the compiled program, found out in a process of its own.

    A crash or an endless loop of the compiler is a finding like any other.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        try:
            check(program)
            text = ""
        except Discarded as error:
            text = f"discarded: {error}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text[:2000].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    if text.startswith("discarded: "):
        raise Discarded(text.removeprefix("discarded: "))
    return text or None


def from_seed(seed: int, statements: int = 12) -> Program:
    """The program of a number."""
    return generate(random.Random(seed).randrange, statements)
