# ===- opaque_kinds.py - Every kind of operator that can be registered -------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Every kind of argument, result, mutation, effect and layout, one entry each.

`KINDS` is data: the tests compare each kind with eager through each door, and the
table in ``docs/`` says who refuses what. Operators are registered in the library
``kinds`` when a kind is first used.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from conftest import BYTES
from functorch.experimental.control_flow import map as functorch_map
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.switch import switch
from torch.nn.attention.flex_attention import flex_attention
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

#: What the kernels (never the fakes) saw, in order: the kind's name, then data.
SEEN: list[tuple[str, Any]] = []

_library = torch.library.Library("kinds", "FRAGMENT")

# What is registered goes when its library does.
_kept: list[Any] = []


def _keep(value: Any) -> Any:
    _kept.append(value)
    return value


#: The doors, in the order of the table: ``torch.compile`` under ``no_grad``, the
#: same with a backward, `torch.export` to a compiled file, and the same after
#: ``run_decompositions``.
DOORS = ("compile", "training", "export", "functional")

WORKS = "works"

#: Nobody refuses, but the graph that PyTorch traces computes something else.
WRONG = "PyTorch traces another program"

#: Nobody refuses, but PyTorch leaves the call out of the graph.
DROPPED = "PyTorch drops the call"

#: The same, because the result is known already: it is an expression of sizes.
COMPUTED = "PyTorch computes the result"

# What PyTorch says where it refuses.
DYNAMO_ARGUMENT = "Dynamo: Failed to convert args/kwargs to proxy"
DYNAMO_OUT = "Dynamo: Attempted to call op with non-contiguous"
DYNAMO_RESULT = "Dynamo: returned non-Tensor"
AOT_DICT = "AOTAutograd: Please convert all Tensors to FakeTensors first"
AOT_OPTIONAL = "AOTAutograd: 'dict' object has no attribute 'append'"
AOT_ALIAS = "AOTAutograd: output has alias annotations"
EXPORT_RESULT = "export: Expected code to be unreachable"
EXPORT_ALIAS = "export: expected compiled_fn to be GraphModule"
SERIALISER = "serialiser: Failed serializing node"
HIGHER_ORDER = "serialiser: Failed serializing node.*target=torch.ops.higher_order."


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of operator.

    Attributes
    ----------
    name
        What the table calls it.
    group
        ``arguments``, ``returns``, ``mutation``, ``effects``, ``layout``,
        ``registrations`` or ``surroundings``.
    schema
        The operator's schema without its name.
    make
        Registers the operator; returns a function of `inputs` that calls it between
        computations that fuse.
    inputs
        Makes the inputs, equal ones at each call.
    doors
        For each door "works", `WRONG`, `DROPPED`, or "<who>: <regex>": who refuses it (Dynamo,
        AOTAutograd, export, serialiser, intarsia), and what the message matches. A door
        that is left out makes no sense for the kind, or is the same as another.
    dynamic
        Whether sizes are symbolic: ``torch.compile(dynamic=True)``, and every
        dimension of every tensor ``Dim.AUTO`` in export.
    promise
        Makes of what a kernel saw in eager (`SEEN`) what it sees when compiled.
    alone
        Whether the kind needs a graph of its own, because its inputs share memory.
    """

    name: str
    group: str
    schema: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], tuple[Any, ...]]
    doors: dict[str, str] = field(default_factory=dict)
    dynamic: bool = False
    promise: Callable[[Any], Any] = lambda seen: seen
    alone: bool = False

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        return self.make()

    def refusal(self, door: str) -> tuple[str, str] | None:
        """Who refuses the kind at this door, and what the message matches."""
        who, separator, pattern = self.doors[door].partition(": ")
        return (who, pattern) if separator else None

    def __str__(self) -> str:
        return self.name


KINDS: list[Kind] = []


def sizes_of(values: Any) -> list[Tensor]:
    """Numbers of wide dtypes, which PyTorch can add, for all tensors that may have a gradient."""
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, Tensor)]
    reals = [t.to(torch.float32).square().sum() for t in tensors if t.is_floating_point()]
    return reals + [t.to(torch.complex64).abs().square().sum() for t in tensors if t.is_complex()]


def describe(value: Any) -> Any:
    """A value as data that can be compared: kind, dtype, strides, contents."""
    if isinstance(value, Tensor):
        if BYTES.search(str(value.dtype)):
            return (str(value.dtype), describe(value.view(torch.uint8)))
        contents = value.detach().clone().contiguous().view(-1)
        if contents.dtype.itemsize:
            contents = contents.view(torch.uint8)
        return (
            str(value.dtype),
            str(value.device),
            tuple(value.shape),
            value.stride(),
            tuple(contents.tolist()),
        )
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, dict):
        return {k: describe(v) for k, v in value.items()}
    if isinstance(value, torch.Generator):
        return ("generator", value.device.type)
    return (type(value).__name__, repr(value))


def register(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any] | None = None,
    *,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    """Registers ``kinds::<schema>`` once; `fake` defaults to `kernel`."""
    name = "kinds::" + schema.partition("(")[0]
    _library.define(schema, tags=tuple(tags))
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake or kernel, lib=_library)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=_library)
    packet, _, overload = name.partition("::")[2].partition(".")
    return getattr(getattr(torch.ops.kinds, packet), overload or "default")


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else {"?": "q", "[": "l"}.get(c, "_") for c in name)


def _no_grads(values: Sequence[Any], schema: str) -> list[Any]:
    """What a backward returns for arguments that have no gradient."""
    # Lists of tensors take lists of gradients, where the schema has one.
    return [
        [None] * len(value)
        if ("Tensor[]" in schema or "Tensor?[]" in schema)
        and isinstance(value, (list, tuple))
        and all(isinstance(member, Tensor) for member in value)
        else None
        for value in values
    ]


def _doors(given: dict[str, str | None], omit: Sequence[str] = ()) -> dict[str, str]:
    """What happens at each door; `all` is for those that are not named, None omits."""
    rest = given.pop("all", WORKS)
    doors = {door: rest for door in DOORS if door not in omit} | given
    return {door: doors[door] for door in DOORS if doors.get(door) is not None}


# --- Arguments -------------------------------------------------------------------


@torch.library.custom_op("kinds::count", mutates_args=())
def count(x: Tensor) -> int:
    return int((x > 0).sum())


count.register_fake(lambda x: torch.library.get_ctx().new_dynamic_size())


def argument(
    name: str,
    declared: str,
    *values: Any,
    computed: Callable[[Tensor], tuple[Any, ...]] | None = None,
    keywords: Callable[[Tensor], dict[str, Any]] | dict[str, Any] | None = None,
    dynamic: bool = False,
    overload: str = "",
    **doors: str | None,
) -> None:
    """A kind of argument: an operator with it behind a tensor, and values for it.

    `computed` makes the values from the tensor where they cannot be constants.
    """
    schema = f"(Tensor x{', ' if declared else ''}{declared}) -> Tensor"
    keyword_only = "Tensor" in declared.partition("*")[2]

    def make() -> Callable[..., Any]:
        def kernel(x, *args, **kwargs):
            SEEN.append((name, [describe(x), describe(args), describe(kwargs)]))
            return x * 2

        op = register(
            f"argument_{_identifier(name)}{'.' if overload else ''}{overload}{schema}",
            kernel,
            lambda x, *args, **kwargs: torch.empty_like(x),
            # PyTorch has no formulas for tensors that are keyword-only.
            backward=None if keyword_only else lambda ctx, grad: (grad * 2, *ctx.no_grads),
            setup_context=lambda ctx, inputs, output, **_: setattr(
                ctx, "no_grads", _no_grads(inputs[1:], schema)
            ),
        )

        def function(x):
            more = values if computed is None else computed(x)
            named = (keywords(x) if callable(keywords) else keywords) or {}
            return op(x + 1, *more, **named) * 3

        return function

    KINDS.append(
        Kind(
            name,
            "arguments",
            schema,
            make,
            lambda: (torch.linspace(-1, 1, 6).view(2, 3),),
            _doors(doors, omit=("functional",)),
            dynamic,
        )
    )


TEXT = 'a "quoted"\n\\ text\t{}%s é\0!'

argument("Tensor", "")
argument("Tensor?, given", "Tensor? a", computed=lambda x: (x * 2,))
argument("Tensor?, None", "Tensor? a", None)
argument("Tensor[]", "Tensor[] a", computed=lambda x: ([x * 2, x.sum()],))
argument("Tensor[], empty", "Tensor[] a", [])
argument("Tensor[], the same twice", "Tensor[] a", computed=lambda x: ([x, x * 2, x],))
argument("Tensor[]?, given", "Tensor[]? a", computed=lambda x: ([x * 2],))
argument("Tensor[]?, None", "Tensor[]? a", None)
argument("Tensor?[]", "Tensor?[] a", computed=lambda x: ([None, x * 2, None],))
argument("Tensor?[], all None", "Tensor?[] a", [None, None])
argument("Tensor?[], empty", "Tensor?[] a", [])
argument("Tensor?[]?", "Tensor?[]? a", computed=lambda x: ([x, None],))
argument("int", "int n", 2**62)
argument("int?, given", "int? n", -3)
argument("int?, None", "int? n", None)
argument("int[]", "int[] n", [1, -2, 3])
argument("int[], empty", "int[] n", [])
argument("int[2], one number for all", "int[2] n", 4)
argument("int[]?", "int[]? n", [1])
argument("int[][]", "int[][] n", [[1, 2], [], [3]])
argument("int?[]", "int?[] n", [None, 3], export=SERIALISER)
argument("SymInt, static", "SymInt n", 3)
argument("SymInt, dynamic", "SymInt n", computed=lambda x: (x.shape[0] * 2 + 1,), dynamic=True)
argument("SymInt?, dynamic", "SymInt? n", computed=lambda x: (x.shape[0],), dynamic=True)
argument("SymInt[], static", "SymInt[] n", [3, 4])
argument("SymInt[], dynamic", "SymInt[] n", computed=lambda x: ([x.shape[0], 7],), dynamic=True)
argument("SymInt[]?, dynamic", "SymInt[]? n", computed=lambda x: (x.shape,), dynamic=True)
argument("SymInt, unbacked", "SymInt n", computed=lambda x: (count(x),))
argument("int, dynamic", "int n", computed=lambda x: (x.shape[0],), dynamic=True)
argument("float", "float a", 0.1)
argument("float, inf", "float a", -math.inf)
argument("float, nan", "float a", math.nan)
argument("float, -0.0", "float a", -0.0)
argument("float, extremes", "float[] a", [5e-324, 1.7976931348623157e308, 1e22, 2**-1074])
argument("float, from an int", "float a", 3)
argument("float?, given", "float? a", 2.5)
argument("float?, None", "float? a", None)
argument("float[]", "float[] a", [0.5, math.inf, -math.inf, math.nan, -0.0])
argument("float[], empty", "float[] a", [])
argument("float[]?", "float[]? a", [1.5])
argument("float[][]", "float[][] a", [[1.5], [math.inf, 2.0]])
argument("float, symbolic", "float a", computed=lambda x: (x.shape[0] / 3,), dynamic=True)
argument("bool", "bool a", True)
argument("bool?", "bool? a", False)
argument("bool[]", "bool[] a", [True, False])
argument("bool[]?", "bool[]? a", [True])
argument("str", "str a", TEXT)
argument("str, empty", "str a", "")
argument("str?, given", "str? a", "x")
argument("str?, None", "str? a", None)
argument("str[]", "str[] a", ["a", "", TEXT])
argument("str[]?", "str[]? a", ["a"])
argument("ScalarType", "ScalarType t", torch.float8_e4m3fn)
argument("ScalarType, of 4 bits", "ScalarType t", torch.uint4, export="serialiser: torch.uint4")
argument("ScalarType?, given", "ScalarType? t", torch.bfloat16)
argument("ScalarType?, None", "ScalarType? t", None)
argument(
    "ScalarType[]", "ScalarType[] t", [torch.bool, torch.complex64, torch.uint16], export=SERIALISER
)
argument("Device", "Device d", torch.device("cpu"))
argument("Device, not the model's", "Device d", torch.device("cuda", 1))
argument("Device, meta", "Device d", torch.device("meta"))
argument("Device?, given", "Device? d", torch.device("cuda"))
argument("Device?, None", "Device? d", None)
argument(
    "Device[]", "Device[] d", [torch.device("cpu"), torch.device("cuda", 0)], export=SERIALISER
)
argument("Layout", "Layout l", torch.sparse_csr)
argument("Layout?", "Layout? l", torch.strided)
argument("Layout[]", "Layout[] l", [torch.strided, torch.sparse_csr], export=SERIALISER)
argument("MemoryFormat", "MemoryFormat m", torch.channels_last)
argument("MemoryFormat?, None", "MemoryFormat? m", None)
argument("MemoryFormat?, given", "MemoryFormat? m", torch.channels_last_3d)
argument("MemoryFormat[]", "MemoryFormat[] m", [torch.channels_last], export=SERIALISER)
argument("Scalar, int", "Scalar a", 2**40)
argument("Scalar, float", "Scalar a", 0.1)
argument("Scalar, bool", "Scalar a", True)
argument("Scalar, nan", "Scalar a", math.nan)
argument("Scalar, complex", "Scalar a", 3 - 4j)
argument("Scalar, complex inf", "Scalar a", complex(-math.inf, math.nan))
argument("Scalar, symbolic", "Scalar a", computed=lambda x: (x.shape[0],), dynamic=True)
argument("Scalar?, given", "Scalar? a", 2.5)
argument("Scalar?, None", "Scalar? a", None)
argument("Scalar[]", "Scalar[] a", [2.5, 1.0])
argument("Scalar[], mixed", "Scalar[] a", [2.5, 1, True], export=SERIALISER)
argument("Scalar[], complex", "Scalar[] a", [2.5, 1j], export=SERIALISER)
argument("complex", "complex a", 1 + 2j)
argument("complex[]", "complex[] a", [1j, 2 + 0j], export=SERIALISER)
argument("Generator?, None", "Generator? g", None)
argument(
    "Generator?, given",
    "Generator? g",
    torch.Generator(),
    compile=DYNAMO_ARGUMENT,
    training=DYNAMO_ARGUMENT,
    export="intarsia: custom object of class torch._C.Generator",
)
argument(
    "Generator",
    "Generator g",
    torch.Generator(),
    compile=DYNAMO_ARGUMENT,
    training=DYNAMO_ARGUMENT,
    export="intarsia: custom object of class torch._C.Generator",
)
argument(
    "Dict(str, Tensor)",
    "Dict(str, Tensor) d",
    computed=lambda x: ({"a": x, "b": x * 2},),
    compile=AOT_DICT,
    training=AOT_DICT,
)
# Neither alphabetical nor the order of a hash table.
argument("Dict(str, int)", "Dict(str, int) d", {"m": 1, "a": 2, "z": 3, "b": 4})
argument("Dict(str, int[])", "Dict(str, int[]) d", {"b": [1, 2], "a": []})
argument("Dict(str, int), empty", "Dict(str, int) d", {})
argument(
    "Dict(str, SymInt)", "Dict(str, int) d", computed=lambda x: ({"n": x.shape[0]},), dynamic=True
)
argument("Dict(str, Tensor)?, None", "Dict(str, Tensor)? d", None)
argument("Dict(int, float)", "Dict(int, float) d", {3: 0.5, 1: 2.5}, export=SERIALISER)
argument("tuple", "(int, float) p", (1, 2.5), export=SERIALISER)
argument(
    "tuple with a tensor",
    "(Tensor, int) p",
    computed=lambda x: ((x * 2, 3),),
    compile=AOT_DICT,
    training=AOT_DICT,
    export=SERIALISER,
)
argument("Any", "Any a", 3)
argument("Tensor[][]", "Tensor[][] a", computed=lambda x: ([[x], [x * 2, x]],))
argument("default", "int n=3, float a=1e-05, str s='x', int[2] p=1, bool b=True, Tensor? t=None")
argument("default, overridden", "int n=3, float a=1e-05, str s='x'", 4, 0.5)
argument("default, dtype and device", "ScalarType t=float, Device d='cpu', Layout? l=None")
argument(
    "keyword-only", "*, int n, Tensor? t, float a=2", keywords={"n": 3, "t": None}, training=None
)
argument("keyword-only tensor", "*, Tensor t", keywords=lambda x: {"t": x * 2}, training=None)
argument("keywords for positional", "int n, float a", keywords={"a": 1.5, "n": 3})
argument("named self", "Tensor self, int input", keywords=lambda x: {"self": x * 2, "input": 1})
argument("named out", "Tensor out, int n", keywords=lambda x: {"out": x * 2, "n": 1})
argument("named like Python", "int from, int lambda", 1, 2)
argument("overload", "Scalar a", 2, overload="Tensor_Scalar")
argument("overload named out", "int n", 2, overload="out")
argument(
    "many",
    ", ".join(f"int a{i}, Tensor? t{i}" for i in range(20)),
    computed=lambda x: tuple(v for i in range(20) for v in (i, x if i % 3 else None)),
)


def _quantized() -> Callable[..., Any]:
    op = register(
        "argument_quantized(Tensor x) -> Tensor",
        lambda x: x.dequantize(),
        lambda x: torch.empty(x.shape),
    )
    return lambda x: op(x) + 1


KINDS.append(
    Kind(
        "quantized tensor",
        "arguments",
        "(Tensor x) -> Tensor",
        _quantized,
        lambda: (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),),
        {"compile": "Dynamo: quantized nyi in meta tensors"},
    )
)


def _underscores() -> Callable[..., Any]:
    for name in ("_name_2_", "_name_2_.Int_"):

        def kernel(x, n, name=name):
            SEEN.append(("names with underscores", [name, n]))
            return x * n

        keyword = "*, " if "." in name else ""
        register(f"{name}(Tensor x, {keyword}int n) -> Tensor", kernel, _like)
    packet = torch.ops.kinds._name_2_
    return lambda x: packet(x + 1, 2) + packet.Int_(x, n=3)


def _like(x: Tensor, n: int) -> Tensor:
    return torch.empty_like(x)


KINDS.append(
    Kind(
        "names with underscores",
        "arguments",
        "(Tensor x, *, int n) -> Tensor",
        _underscores,
        lambda: (torch.linspace(-1, 1, 6).view(2, 3),),
        _doors({}, omit=("training", "functional")),
    )
)


# --- Returns ---------------------------------------------------------------------


def _use(value: Any) -> Any:
    """Computes with every tensor and number among an operator's results."""
    if isinstance(value, (tuple, list)):
        return [_use(v) for v in value]
    if isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64):
        return value * 2 + 1
    return value


def returns(
    name: str,
    declared: str,
    kernel: Callable[[Tensor], Any],
    fake: Callable[[Tensor], Any] | None = None,
    *,
    use: Callable[[Any], Any] = _use,
    inputs: Callable[[], tuple[Any, ...]] | None = None,
    dynamic: bool = False,
    **doors: str | None,
) -> None:
    """A kind of result: what an operator makes of one tensor."""
    schema = f"({'Tensor(a)' if '(a)' in declared else 'Tensor'} x) -> {declared}"

    def make() -> Callable[..., Any]:
        def run(x):
            SEEN.append((name, describe(x)))
            return kernel(x)

        op = register(
            f"returns_{_identifier(name)}{schema}",
            run,
            fake or kernel,
            # PyTorch takes no formula for what returns its argument.
            backward=None if "(a)" in declared else _backward_of_results,
            setup_context=lambda ctx, inputs, output: setattr(ctx, "shape", inputs[0].shape),
        )

        def function(x):
            result = op(x + 1)
            return result, use(result)

        return function

    KINDS.append(
        Kind(
            name,
            "returns",
            schema,
            make,
            inputs or (lambda: (torch.linspace(-1.5, 1, 6).view(2, 3),)),
            _doors({"training": doors.get("compile", WORKS), **doors}),
            dynamic,
        )
    )


def _backward_of_results(ctx: Any, *grads: Any) -> Tensor:
    """A gradient that tells whether that of each result arrived."""
    return torch.ones(ctx.shape) * sum(sizes_of(grads), torch.zeros(()))


def _new_size(**bounds: int) -> Any:
    return torch.library.get_ctx().new_dynamic_size(**bounds)


def _rows(x: Tensor) -> Tensor:
    return x[x.sum(dim=1) > 0].clone()


returns("one tensor", "Tensor", lambda x: x * 2)
returns("two tensors", "(Tensor, Tensor)", lambda x: (x * 2, x.sum(0)))
returns(
    "one tensor twice",
    "(Tensor, Tensor)",
    lambda x: (x * 2,) * 2,
    lambda x: (x * 2, x * 2),
    **dict.fromkeys(DOORS, "intarsia: shares memory with output 0"),
)
returns("named results", "(Tensor values, Tensor indices)", lambda x: (x * 2, x.argsort()))
returns("Tensor[]", "Tensor[]", lambda x: [x * 2, x.sum(0)])
returns(
    "Tensor[], empty",
    "Tensor[]",
    lambda x: [],
    functional="serialiser: not enough values to unpack",
)
returns("Tensor[], Tensor[]", "(Tensor[], Tensor[])", lambda x: ([x * 2], [x.sum(0), x + 1]))
returns("Tensor, Tensor[]", "(Tensor, Tensor[])", lambda x: (x * 2, [x.sum(0)]))
returns("Tensor[], Tensor", "(Tensor[], Tensor)", lambda x: ([x.sum(0)], x * 2))
returns("Tensor?, given", "Tensor?", lambda x: x * 2)
returns("Tensor?, None", "Tensor?", lambda x: None, functional=DROPPED)
returns("Tensor, Tensor?, Tensor", "(Tensor, Tensor?, Tensor)", lambda x: (x * 2, None, x + 1))
returns("Tensor?[]", "Tensor?[]", lambda x: [x * 2, None], export=SERIALISER, functional=SERIALISER)
returns("int", "int", lambda x: 7, compile=DYNAMO_RESULT, functional=DROPPED)
returns("float", "float", lambda x: 2.5, functional=DROPPED)
returns("float, inf", "(Tensor, float)", lambda x: (x * 2, math.inf))
returns(
    "float, nan",
    "(Tensor, float)",
    lambda x: (x * 2, math.nan),
    export="export: User output nan",
    functional="export: User output nan",
)
returns("bool", "bool", lambda x: True, compile=DYNAMO_RESULT, functional=DROPPED)
returns("str", "str", lambda x: TEXT, compile=DYNAMO_RESULT, functional=DROPPED)
returns(
    "Tensor, str",
    "(Tensor, str)",
    lambda x: (x * 2, TEXT),
    compile=DYNAMO_RESULT,
    export=EXPORT_RESULT,
    functional=EXPORT_RESULT,
)
returns("Scalar", "(Tensor, Scalar)", lambda x: (x * 2, 2.5))
returns(
    "complex",
    "(Tensor, complex)",
    lambda x: (x * 2, 2.5 + 1j),
    compile=DYNAMO_RESULT,
    export=EXPORT_RESULT,
    functional=EXPORT_RESULT,
)
returns("ScalarType", "(Tensor, ScalarType)", lambda x: (x * 2, torch.bfloat16))
returns(
    "Device",
    "(Tensor, Device)",
    lambda x: (x * 2, torch.device("cuda:1")),
    compile=DYNAMO_RESULT,
    export=EXPORT_RESULT,
    functional=EXPORT_RESULT,
)
returns(
    "int[]", "(Tensor, int[])", lambda x: (x * 2, [1, 2]), export=SERIALISER, functional=SERIALISER
)
returns(
    "float[]",
    "(Tensor, float[])",
    lambda x: (x * 2, [1.5, math.inf]),
    export=SERIALISER,
    functional=SERIALISER,
)
returns("SymInt, static", "SymInt", lambda x: x.shape[1], compile=DYNAMO_RESULT, functional=DROPPED)
returns(
    "SymInt, dynamic",
    "SymInt",
    lambda x: x.shape[1] * 2,
    dynamic=True,
    export=COMPUTED,
    functional=COMPUTED,
    compile=COMPUTED,
)
returns(
    "Tensor, SymInt",
    "(Tensor, SymInt)",
    lambda x: (x * 2, x.shape[1] + 1),
    dynamic=True,
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "SymInt, Tensor",
    "(SymInt, Tensor)",
    lambda x: (x.shape[1] + 1, x * 2),
    dynamic=True,
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "SymInt[]",
    "(Tensor, SymInt[])",
    lambda x: (x * 2, [x.shape[1], 3]),
    dynamic=True,
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "SymInt, unbacked",
    "(Tensor, SymInt)",
    lambda x: (x * 2, int((x > 0).sum())),
    lambda x: (torch.empty_like(x), _new_size()),
    use=lambda r: r[0] * r[1] + r[1],
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "everything at once",
    "(Tensor, SymInt, float, bool, Tensor[], Tensor?)",
    lambda x: (x * 2, x.shape[0], 0.1, True, [x + 1], None),
    dynamic=True,
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "forty tensors",
    "(" + ", ".join(["Tensor"] * 40) + ")",
    lambda x: tuple(x * i for i in range(40)),
)
returns("size known at run time", "Tensor", _rows, lambda x: x.new_empty(_new_size(), x.shape[1]))
returns(
    "size known at run time, none",
    "Tensor",
    lambda x: x[:0].clone(),
    lambda x: x.new_empty(_new_size(), x.shape[1]),
)
returns(
    "size known at run time, bounded",
    "Tensor",
    _rows,
    lambda x: x.new_empty(_new_size(min=1, max=8), x.shape[1]),
)
returns(
    "two tensors of one such size",
    "(Tensor, Tensor)",
    lambda x: (_rows(x), _rows(x)[:, 0].clone()),
    lambda x: (lambda n: (x.new_empty(n, x.shape[1]), x.new_empty(n)))(_new_size()),
    use=lambda r: r[0] + r[1][:, None],
)
returns(
    "Tensor[] of such sizes",
    "Tensor[]",
    lambda x: [_rows(x), x.flatten()[:1].clone()],
    lambda x: [x.new_empty(_new_size(), x.shape[1]), x.new_empty(_new_size())],
)
returns(
    "such a size and its number",
    "(Tensor, SymInt)",
    lambda x: (_rows(x), len(_rows(x))),
    lambda x: (lambda n: (x.new_empty(n, x.shape[1]), n))(_new_size()),
    use=lambda r: r[0].sum(0) * r[1],
    export=SERIALISER,
    functional=SERIALISER,
)
returns("0-d", "Tensor", lambda x: x.sum())
returns("zero size", "Tensor", lambda x: x.new_empty(0, 3))
for _dtype in (
    *(torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
):
    returns(
        f"Tensor of {str(_dtype)[6:]}",
        "Tensor",
        functools.partial(lambda t, x: x.abs().to(t), _dtype),
        # Eager adds no gradients of 8 bits.
        **({"training": None} if "float8" in str(_dtype) else {}),
    )
returns(
    "Tensor of bcomplex32",
    "Tensor",
    lambda x: x.to(torch.bcomplex32),
    training=None,  # PyTorch adds none
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "float4_e2m1fn_x2",
    "Tensor",
    lambda x: x.to(torch.uint8).view(torch.float4_e2m1fn_x2),
    training=None,
    export=SERIALISER,
    functional=SERIALISER,
)
returns(
    "Tensor of bits8",
    "Tensor",
    lambda x: x.to(torch.uint8).view(torch.bits8),
    use=lambda t: t.view(torch.uint8) + 1,
    training=None,
    export=SERIALISER,
    functional=SERIALISER,
)
returns("transposed", "Tensor", lambda x: (x * 2).t().contiguous().t())
returns("expanded", "Tensor", lambda x: x.sum(0).expand(4, 3))
returns("padded", "Tensor", lambda x: x.new_ones(2, 8)[:, :3])
returns("with an offset", "Tensor", lambda x: (x.repeat(2, 1) * 2)[1:3])
returns("overlapping", "Tensor", lambda x: x.flatten().clone().as_strided((4, 3), (1, 1)))
returns("conjugate view", "Tensor", lambda x: (x * 1j).conj())
returns("negative view", "Tensor", lambda x: (x * (1 + 1j)).conj().imag)
returns(
    "sparse",
    "Tensor",
    lambda x: x.to_sparse(),
    use=lambda r: r.to_dense() + 1,
    compile="Dynamo: Attempted to wrap sparse Tensor",
)
returns("view of its input", "Tensor(a)", lambda x: x[1:], functional=AOT_ALIAS)


# --- Mutation --------------------------------------------------------------------


def mutation(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    function: Callable[[Any], Callable[..., Any]],
    inputs: Callable[[], tuple[Tensor, ...]] = lambda: (_table(), _table()),
    fake: Callable[..., Any] = lambda *args, **kwargs: None,
    tags: Sequence[torch.Tag] = (),
    overload: str = "",
    dynamic: bool = False,
    looks: bool = True,
    alone: bool = False,
    **doors: str | None,
) -> None:
    """A way to write arguments: `function` makes a program of the operator."""

    def make() -> Callable[..., Any]:
        def run(*args, **kwargs):
            SEEN.append((name, [describe(args), describe(kwargs) if looks else None]))
            return kernel(*args, **kwargs)

        label = f"mutation_{_identifier(name)}{'.' if overload else ''}{overload}"
        program = function(register(label + schema, run, fake, tags=tags))

        def weighted(weight, *inputs):
            result = program(*inputs)
            # In training, what was written has a part in the gradient.
            return result, weight * _total(result)

        return weighted

    KINDS.append(
        Kind(
            name,
            "mutation",
            schema,
            make,
            lambda: (torch.linspace(-1, 1, 3), *inputs()),
            _doors(doors),
            dynamic,
            alone=alone,
        )
    )


def _table() -> Tensor:
    # Integers: no gradient reaches what is written.
    return torch.arange(12).view(4, 3)


def _total(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.sum().to(torch.float32)
    return sum(_total(r) for r in result if r is not None)


def _add(target: Tensor, value: Tensor) -> None:
    target.add_(value.clone())  # the two may share memory


def _add_all(targets: list[Tensor | None], value: Tensor) -> None:
    for target in targets:
        if target is not None:
            target.add_(value.clone())


ADD = "(Tensor(a!) target, Tensor value) -> ()"
ADD_ALL = "(Tensor(a!)[] targets, Tensor value) -> ()"


def _written(view: Callable[[Tensor], Tensor]) -> Callable[[Any], Callable[..., Any]]:
    """Writes a view of an input, then one of an intermediate value; reads all."""

    def program(op):
        def function(x, value):
            before = x * 2
            op(view(x), value.sum())
            y = x * 3
            op(view(y), value.sum())
            return before, y, x.sum(), view(x) * 1

        return function

    return program


mutation("an input", ADD, _add, lambda op: lambda x, v: (op(x, v * 2), x * 2)[1])
mutation(
    "an intermediate value", ADD, _add, lambda op: lambda x, v: (lambda y: (op(y, v), y))(x * 2)
)
mutation(
    "read, written, read",
    ADD,
    _add,
    lambda op: lambda x, v: (x * 2, op(x, v), x * 2, op(x, v * 2), x * 2)[::2],
)
mutation(
    "the old value is returned",
    ADD,
    _add,
    lambda op: lambda x, v: (lambda y: (y.clone(), op(y, v), y))(x + 1),
)
for _name, _view in {
    "whole": lambda x: x[:],
    "row": lambda x: x[1],
    "rows": lambda x: x[1:3],
    "column": lambda x: x[:, 2],
    "steps": lambda x: x[::2, 1:],
    "transposed": lambda x: x.t(),
    "view of a view": lambda x: x.view(2, 6)[1].view(2, 3)[:, :2],
    "diagonal": lambda x: x.diagonal(),
    "flattened": lambda x: x.view(-1),
    "unsqueezed": lambda x: x[None, :, None],
    "as_strided": lambda x: x.as_strided((2, 2), (5, 1), 1),
    "detached": lambda x: x.detach(),
    "member of split": lambda x: x.split(2)[1],
    "member of unbind": lambda x: x.unbind(1)[1],
    "bits": lambda x: x.view(torch.float32),
    "unfolded": lambda x: x.unfold(0, 2, 2),
    "empty": lambda x: x[:0],
}.items():
    mutation(f"a view: {_name}", ADD, _add, _written(_view))
mutation(
    "a view of symbolic size",
    ADD,
    _add,
    lambda op: (
        lambda x, v: (op(x[1 : x.shape[0] - 1], v[0]), op(x[:, x.shape[1] - 1], v.sum()), x * 2)[2]
    ),
    dynamic=True,
)
mutation(
    "Tensor(a!)?, given",
    "(Tensor(a!)? target, Tensor value) -> ()",
    _add,
    lambda op: lambda x, v: (op(x, v), op(x[1], v[0]), x * 2)[2],
)
mutation(
    "Tensor(a!)?, None",
    "(Tensor(a!)? target, Tensor value, Tensor(b!)? other=None) -> ()",
    lambda t, v, other=None: None if t is None else _add(t, v),
    lambda op: lambda x, v: (op(None, v), op(x, v), x * 2)[2],
    functional=DROPPED,
)
mutation(
    "Tensor(a!)[]",
    ADD_ALL,
    _add_all,
    lambda op: lambda x, v: (lambda y: (op([x, y], v), x * 2, y * 2)[1:])(x + 1),
)
mutation(
    "Tensor(a!)[], empty",
    ADD_ALL,
    _add_all,
    lambda op: lambda x, v: (op([], v), x * 2)[1],
    functional=DROPPED,
)
mutation(
    "Tensor(a!)[], views of one base",
    ADD_ALL,
    _add_all,
    lambda op: lambda x, v: (op([x[0], x[1], x[1:3, 1:]], v.sum()), x * 2)[1],
)
mutation(
    "Tensor(a!)[], the same twice",
    ADD_ALL,
    _add_all,
    lambda op: lambda x, v: (op([x, x], v), x * 2)[1],
)
mutation(
    "Tensor(a!)?[]",
    "(Tensor(a!)?[] targets, Tensor value) -> ()",
    _add_all,
    lambda op: lambda x, v: (op([None, x, None], v), x * 2)[1],
    functional=AOT_OPTIONAL,
)
mutation(
    "two arguments",
    "(Tensor(a!) target, Tensor(b!) other, Tensor value) -> ()",
    lambda t, o, v: (_add(t, v), o.mul_(2), None)[2],
    lambda op: lambda x, v: (lambda y: (op(x, y, v), x * 2, y * 2)[1:])(x + 1),
)
mutation(
    "two overlapping views",
    "(Tensor(a!) target, Tensor(b!) other, Tensor value) -> ()",
    lambda t, o, v: (_add(t, v), o.mul_(2), None)[2],
    lambda op: lambda x, v: (op(x[:3], x[1:], v.sum()), x * 2)[1],
)
mutation(
    "written and read, the same tensor",
    ADD,
    _add,
    lambda op: lambda x, v: (op(x, x), x * 2)[1],
)
mutation(
    "written and read, views of one base",
    ADD,
    _add,
    lambda op: lambda x, v: (op(x[1:], x[:3]), x * 2)[1],
)
mutation(
    "an argument that overlaps another",
    ADD,
    _add,
    lambda op: lambda x, v: (op(x, v), x + 1, v + 1)[1:],
    inputs=lambda: (lambda base: (base[:4], base[1:]))(torch.arange(15).view(5, 3)),
    alone=True,
    training="AOTAutograd: non-differentiable view input mutations",
    functional=EXPORT_ALIAS,
)
mutation(
    "the same argument twice",
    ADD,
    _add,
    lambda op: lambda x, v: (op(x, v), x + 1, v + 1)[1:],
    inputs=lambda: (lambda same: (same, same))(_table()),
    alone=True,
    functional=EXPORT_ALIAS,
)
mutation(
    "returned, Tensor(a!)",
    "(Tensor(a!) target, Tensor value) -> Tensor(a!)",
    lambda t, v: t.add_(v.clone()),
    lambda op: lambda x, v: (op(x, v) * 2, op(x[1], v[0]) * 2, x),
    fake=lambda t, v: t,
    functional=AOT_ALIAS,
)
mutation(
    "returned, tagged inplace",
    "(Tensor(a!) target, Tensor value) -> Tensor(a!)",
    lambda t, v: t.add_(v.clone()),
    # A write through one name is seen through the other.
    lambda op: (
        lambda x, v: (lambda r: (x.mul_(2), r * 2, op(x[1], r[0]).add_(1), r, x)[1:])(op(x, v))
    ),
    fake=lambda t, v: t,
    tags=[torch.Tag.inplace],
    functional=WRONG,
)
mutation(
    "tagged out",
    "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    lambda x, *, out: out.copy_(x * 2),
    lambda op: (
        lambda x, v: (lambda y: (lambda r: (y.add_(1), r * 2, r.mul_(3), y + 1)[1:])(op(v, out=y)))(
            torch.empty_like(v)
        )
    ),
    fake=lambda x, *, out: out,
    tags=[torch.Tag.out],
    overload="out",
    looks=False,  # an out argument holds nothing yet
)
mutation(
    "tagged out, not contiguous",
    "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    lambda x, *, out: out.copy_(x * 2),
    lambda op: lambda x, v: (lambda y: (op(v, out=y), y + 1))(v.new_empty(v.t().shape).t()),
    fake=lambda x, *, out: out,
    tags=[torch.Tag.out],
    overload="out",
    looks=False,
    compile=DYNAMO_OUT,
    training=DYNAMO_OUT,
)
mutation(
    "returned with others",
    "(Tensor(a!) target, Tensor value) -> (Tensor(a!), Tensor)",
    lambda t, v: (t.add_(v.clone()), v * 2),
    lambda op: lambda x, v: (lambda r: (r[0] * 2, r[1] + 1, x))(op(x, v)),
    fake=lambda t, v: (t, torch.empty_like(v)),
    functional=AOT_ALIAS,
)
mutation(
    "and returns Tensor",
    "(Tensor(a!) target, Tensor value) -> Tensor",
    lambda t, v: t.add_(v.clone()).sum(0),
    lambda op: lambda x, v: (op(x, v) * 2, op(x[1], v[0]) * 2, x * 2),
    fake=lambda t, v: torch.empty_like(t.sum(0)),
)
mutation(
    "and returns Tensor[]",
    "(Tensor(a!) target, Tensor value) -> Tensor[]",
    lambda t, v: [t.add_(v.clone()).sum(0), v * 2],
    lambda op: lambda x, v: (lambda r: (r[0] * 2, r[1] * 2, x))(op(x, v)),
    fake=lambda t, v: [torch.empty_like(t.sum(0)), torch.empty_like(v)],
    functional=AOT_ALIAS,
)
mutation(
    "and returns Tensor, SymInt",
    "(Tensor(a!) target, Tensor value) -> (Tensor, SymInt)",
    lambda t, v: (t.add_(v.clone()).sum(0), t.shape[0]),
    lambda op: lambda x, v: (lambda r: (r[0] * r[1], x))(op(x, v)),
    fake=lambda t, v: (torch.empty_like(t.sum(0)), t.shape[0]),
    dynamic=True,
    export=SERIALISER,
    functional=AOT_ALIAS,
)
mutation(
    "keyword-only",
    "(Tensor value, *, Tensor(a!) target) -> ()",
    lambda value, *, target: _add(target, value),
    lambda op: lambda x, v: (op(v, target=x), op(v[0], target=x[1]), x * 2)[2],
)
mutation(
    "an optional list of arguments",
    "(Tensor(a!)[]? targets, Tensor value) -> ()",
    lambda t, v: None if t is None else _add_all(t, v),
    lambda op: lambda x, v: (op(None, v), op([x], v), x * 2)[2],
    functional=DROPPED,
)
mutation(
    "another dtype by view",
    ADD,
    _add,
    lambda op: lambda x, v: (op(x.view(torch.int32), v), x * 2)[1],
    inputs=lambda: (_table(), torch.ones((), dtype=torch.int32)),
)
mutation(
    "a part of complex numbers",
    ADD,
    _add,
    lambda op: lambda x, v: (op(torch.view_as_real(x)[..., 1], v), x.real, x.imag),
    inputs=lambda: (torch.arange(4).to(torch.complex64), torch.ones((), dtype=torch.int32)),
    compile="intarsia: cannot express this",
    training="intarsia: cannot express this",
    functional="intarsia: does not record whether",
)


def _unknown() -> Callable[..., Any]:
    @torch.library.custom_op("kinds::writes_unknown", mutates_args="unknown")
    def op(x: Tensor, others: list[Tensor], value: Tensor | None, n: int) -> Tensor:
        SEEN.append(("mutates_args unknown", describe([x, others, value, n])))
        _add(x, others[0])
        if value is not None:
            value.mul_(2)
        return x.sum(0)

    op.register_fake(lambda x, others, value, n: torch.empty_like(x.sum(0)))
    _keep(op)

    def function(weight, x, v):
        y = x + 1
        a = op(x, [y, v], None, 1)
        b = op(y[1:], [x[0], v], v[0], 2)
        return a, b, y, weight * (x.sum() + v.sum()).to(torch.float32)

    return function


KINDS.append(
    Kind(
        "mutates_args unknown",
        "mutation",
        "(Tensor(a!) x, Tensor(b!)[] others, Tensor(c!)? value, SymInt n) -> Tensor",
        _unknown,
        lambda: (torch.linspace(-1, 1, 3), _table(), _table()),
        _doors({}),
    )
)


# --- Effects and order -----------------------------------------------------------


def effect(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    function: Callable[[Any], Callable[..., Any]],
    fake: Callable[..., Any] | None = None,
    *,
    tags: Sequence[torch.Tag] = (),
    prepare: Callable[[Any], Any] = lambda op: None,
    **doors: str | None,
) -> None:
    """An operator that does more than return values; `prepare` registers that."""

    def make() -> Callable[..., Any]:
        def run(*args):
            SEEN.append((name, describe(args)))
            return kernel(*args)

        op = register(
            f"effect_{_identifier(name)}{schema}",
            run,
            fake or kernel,
            tags=tags,
            backward=(lambda ctx, grad: grad * 2) if schema == SAME else None,
            setup_context=lambda ctx, inputs, output: None,
        )
        prepare(op)
        return function(op)

    KINDS.append(
        Kind(
            name,
            "effects",
            schema,
            make,
            lambda: (torch.linspace(-1, 1, 6).view(2, 3),),
            _doors(doors),
        )
    )


def _ordered(op: Any) -> None:
    from torch._library.effects import EffectType

    torch.library._register_effectful_op(op.name(), EffectType.ORDERED)


def _checkpointed(op: Any) -> Callable[..., Any]:
    def body(x):
        return op(torch.nn.functional.dropout(x * 2, 0.5)).exp()

    def function(x):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) * op(x)

    return function


NOTHING = "(Tensor x) -> ()"
SAME = "(Tensor x) -> Tensor"
RANDOM = [torch.Tag.nondeterministic_seeded]

effect(
    "returns nothing",
    NOTHING,
    lambda x: None,
    lambda op: lambda x: (op(x + 1), op(x * 2), x.exp())[2],
    functional=DROPPED,
)
effect(
    "no arguments",
    "() -> ()",
    lambda: None,
    lambda op: lambda x: (op(), x.exp())[1],
    functional=DROPPED,
)
effect(
    "no tensor arguments",
    "(int n) -> Tensor",
    torch.ones,
    lambda op: lambda x: op(3) * x + op(3),
)
effect(
    "unused",
    SAME,
    lambda x: x * 2,
    lambda op: lambda x: (op(x + 1), x.exp())[1],
    functional=DROPPED,
)
effect(
    "unused, tagged random",
    SAME,
    lambda x: x + torch.rand(3),
    lambda op: lambda x: (op(x + 1), x.exp() + torch.rand(3))[1],
    torch.empty_like,
    tags=RANDOM,
    functional=DROPPED,
)
effect(
    "unused, has_side_effect",
    SAME,
    lambda x: x * 2,
    lambda op: lambda x: (op(x + 1), x.exp())[1],
    prepare=torch.fx.node.has_side_effect,
)
effect("called twice", SAME, lambda x: x * 2, lambda op: lambda x: op(x) + op(x) + op(x + 0))
effect(
    "in order",
    SAME,
    lambda x: x * 2,
    lambda op: lambda x: (lambda a, b, c: c * a.sum() - b)(op(x), op(x + 1), op(x + 2)),
)
effect(
    "ordered effect",
    SAME,
    lambda x: x * 2,
    lambda op: lambda x: (op(x + 1), x.exp() + op(x + 2))[1],
    prepare=_ordered,
)
effect(
    "ordered effect, returns nothing",
    NOTHING,
    lambda x: None,
    lambda op: lambda x: (op(x + 1), x.exp(), op(x + 2), x * 2)[1::2],
    prepare=_ordered,
)
effect(
    "random",
    SAME,
    lambda x: x * 2 + torch.rand(3),
    lambda op: lambda x: op(x) + torch.rand(3) * op(x) + torch.rand_like(x),
    torch.empty_like,
    tags=RANDOM,
)
effect(
    "random, without the tag",
    SAME,
    lambda x: x * 2 + torch.rand(3),
    lambda op: lambda x: op(x) + torch.rand(3) * op(x) + torch.rand_like(x),
    torch.empty_like,
)
effect(
    "random and recomputed",
    SAME,
    lambda x: x * 2 + torch.rand(3),
    _checkpointed,
    torch.empty_like,
    tags=RANDOM,
)


# --- Layout ----------------------------------------------------------------------


def _image() -> Tensor:
    # Whole numbers, so that sums are exact.
    return torch.arange(48.0).view(2, 3, 2, 4)


#: Ways in which a tensor can lie in memory: made by views, by computation that is
#: fused, and by operators that are not.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x + 1,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) + 1,
    "channels last, an input": lambda x: x,  # which is another one
    "permuted": lambda x: x.permute(3, 1, 0, 2),
    "permuted and computed": lambda x: x.permute(3, 1, 0, 2) * 2,
    "transposed product": lambda x: (x[0, 0] @ x[0, 1].t()).t(),
    "expanded": lambda x: x.sum(0, keepdim=True).expand(2, -1, -1, -1),
    "expanded scalar": lambda x: x.sum().expand(2, 3),
    "padded": lambda x: torch.nn.functional.pad(x, (0, 3))[..., :4],
    "every other": lambda x: (x * 2)[..., ::2],
    "offset": lambda x: (x * 2)[1:, 1:],
    "flipped": lambda x: x.flip(-1),
    "size one": lambda x: (x * 2)[:, :1].transpose(0, 1),
    "concatenated": lambda x: torch.cat([x.permute(0, 2, 3, 1)] * 2),
    "convolved": lambda x: torch.nn.functional.conv2d(
        x.contiguous(memory_format=torch.channels_last), torch.ones(2, 3, 1, 1)
    ),
    "diagonal": lambda x: (x + 1).diagonal(dim1=0, dim2=2),
    "empty": lambda x: (x + 1).permute(3, 1, 0, 2)[:, :0],
}

_ORDERS: dict[str, tuple[Sequence[torch.Tag], Callable[[Tensor], Any]]] = {
    # What the kernel is promised, and what of its argument shows that.
    "default": ((), lambda x: x.stride()),
    "needs_exact_strides": ([torch.Tag.needs_exact_strides], lambda x: x.stride()),
    "needs_fixed_stride_order": (
        [torch.Tag.needs_fixed_stride_order],
        lambda x: sorted(range(x.dim()), key=lambda d: -x.stride(d)),
    ),
    "needs_contiguous_strides": (
        [torch.Tag.needs_contiguous_strides],
        lambda x: x.is_contiguous(),
    ),
    "flexible_layout": ([torch.Tag.flexible_layout], lambda x: None),
    "all tags": (
        [
            *(torch.Tag.flexible_layout, torch.Tag.needs_fixed_stride_order),
            *(torch.Tag.needs_contiguous_strides, torch.Tag.needs_exact_strides),
        ],
        lambda x: x.stride(),
    ),
}


@functools.cache
def _layout_operator(tag: str) -> Any:
    tags, shows = _ORDERS[tag]

    def run(x, others, made):
        SEEN.append((tag, [made, [(shows(t), t.tolist()) for t in (x, *others)]]))
        return x * 2

    return register(
        f"layout_{_identifier(tag)}(Tensor x, Tensor[] others, str made) -> Tensor",
        run,
        lambda x, others, made: torch.empty_like(x),
        tags=tags,
        backward=lambda ctx, grad: (grad * 2, [None] * 2, None),
        setup_context=lambda *_, **__: None,
    )


def _layout(tag: str) -> None:
    def make() -> Callable[..., Any]:
        op = _layout_operator(tag)

        def function(x, last):
            results = {}
            for made, view in LAYOUTS.items():
                given = last if made == "channels last, an input" else x
                t = view(given)
                results[made] = op(t, [t * 2, view(given * 3)], made) + 1
            return results

        return function

    def contiguous(seen):
        made, tensors = seen
        return [made, [(True, values) for _, values in tensors]]

    KINDS.append(
        Kind(
            tag,
            "layout",
            "(Tensor x, Tensor[] others, str made) -> Tensor",
            make,
            lambda: (_image(), _image().contiguous(memory_format=torch.channels_last)),
            _doors({}),
            **({"promise": contiguous} if tag == "needs_contiguous_strides" else {}),
        )
    )


for _tag in _ORDERS:
    _layout(_tag)


# --- Registrations ---------------------------------------------------------------


def _noting(kind: str) -> Callable[[Tensor], Tensor]:
    def kernel(x):
        SEEN.append((kind, describe(x)))
        return x * 2

    return kernel


def _times_two(ctx: Any, grad: Tensor) -> Tensor:
    return grad * 2


def _custom_op(kind: str, label: str, **options: Any) -> Any:
    """A `torch.library.custom_op` with a fake and a formula."""
    op = torch.library.custom_op(
        f"kinds::{label}", _noting(kind), mutates_args=(), schema=SAME, **options
    )
    op.register_fake(torch.empty_like)
    op.register_autograd(_times_two)
    return _keep(op)


def _by_device(kind: str) -> Any:
    op = _custom_op(kind, "by_device", device_types="cpu")
    op.register_kernel("cuda")(lambda x: x * 3)
    return op


def _by_library(kind: str) -> Any:
    _library.define(f"by_library{SAME}")
    _library.impl("by_library", _noting(kind), "CPU")
    _library.impl("by_library", torch.empty_like, "Meta")
    torch.library.register_autograd("kinds::by_library", _times_two, lib=_library)
    return torch.ops.kinds.by_library


def _by_functions(kind: str) -> Any:
    torch.library.define("kinds::by_functions", SAME)
    torch.library.impl("kinds::by_functions", "cpu", _noting(kind))
    torch.library.register_kernel("kinds::by_functions", "cuda", lambda x: x * 3)
    torch.library.register_fake("kinds::by_functions", torch.empty_like)
    torch.library.register_autograd("kinds::by_functions", _times_two)
    return torch.ops.kinds.by_functions.default


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.kinds.autograd_kernel(x)

    backward = staticmethod(_times_two)


def _with_kernels(label: str, **kernels: Callable[..., Any]) -> Callable[[str], Any]:
    """A kernel of ours for the CPU, a fake, and kernels for other keys."""

    def make(kind: str) -> Any:
        op = register(f"{label}{SAME}", _noting(kind), torch.empty_like)
        for key, kernel in kernels.items():
            _library.impl(label, kernel, key)
        return op

    return make


def _implicit(kind: str) -> Any:
    _library.define(f"composite_implicit{SAME}")
    _library.impl("composite_implicit", lambda x: x * 2 + x, "CompositeImplicitAutograd")
    return torch.ops.kinds.composite_implicit


def _autocast(kind: str) -> Any:
    op = _custom_op(kind, "with_autocast")
    op.register_autocast("cpu", torch.bfloat16)

    def function(x):
        with torch.autocast("cpu", dtype=torch.float16):
            return op(x)

    return function


def _vmapped(kind: str) -> Any:
    op = _custom_op(kind, "with_vmap")
    op.register_vmap(lambda info, dims, x: (op(x.movedim(dims[0], 0)), 0))
    return torch.vmap(op, in_dims=1)


def _of_cpp(name: str, *rest: Any) -> Callable[[str], Any]:
    """An operator of test/unit/Runtime/operators/Registrations.cpp."""

    def make(kind: str) -> Any:
        build = os.environ.get("INTARSIA_BUILD_DIR", Path(__file__).parents[2] / "build")
        torch.ops.load_library(Path(build) / "test/unit/RegistrationTestOperators.so")
        import registered_fakes  # noqa: F401

        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.registrations, packet), overload or "default")
        return lambda x: op(x, *rest)

    return make


def registration(name: str, make: Callable[[str], Any], **doors: str | None) -> None:
    """A way to register an operator: `make` does it, and returns what calls it."""

    def function() -> Callable[..., Any]:
        call = make(name)
        return lambda x: call(x + 1) * 3

    KINDS.append(
        Kind(
            name,
            "registrations",
            SAME,
            function,
            lambda: (torch.arange(-3.0, 3.0).view(2, 3),),
            _doors(doors),
        )
    )


registration("custom_op", lambda kind: _custom_op(kind, "by_custom_op"))
registration(
    "custom_op, by its name",
    lambda kind: (_custom_op(kind, "by_name"), torch.ops.kinds.by_name)[1],
)
registration("custom_op, a kernel for each device", _by_device)
registration("Library.define, Library.impl", _by_library)
registration("torch.library.define, impl, register_kernel", _by_functions)
registration("kernel for Autograd", _with_kernels("autograd_kernel", Autograd=_Times.apply))
registration("no formula", _with_kernels("no_formula"))
registration(
    "fallthrough for Autograd",
    _with_kernels("falls_through", Autograd=torch.library.fallthrough_kernel),
)
registration("kernel for CompositeImplicitAutograd", _implicit)
registration("register_autocast", _autocast)
registration("register_vmap", _vmapped)
registration("TORCH_LIBRARY, set_python_module", _of_cpp("scaled", 2.5))
registration("TORCH_LIBRARY_FRAGMENT, impl_abstract_pystub", _of_cpp("scaled_too", 2.5))
registration("TORCH_LIBRARY, a fake in C++", _of_cpp("doubled"))
registration("TORCH_LIBRARY, an overload", _of_cpp("doubled.by", 3))
registration("TORCH_LIBRARY, kernel for Autograd", _of_cpp("cubed"))
registration("TORCH_LIBRARY, CompositeImplicitAutograd", _of_cpp("implicit"))
registration("TORCH_LIBRARY, CompositeExplicitAutograd", _of_cpp("explicit_kernel"))


# --- Surroundings ----------------------------------------------------------------


@functools.cache
def _surrounded() -> Any:
    def kernel(x, kind):
        SEEN.append((kind, describe(x)))
        return x * 2

    op = register(
        "surrounded(Tensor x, str kind) -> Tensor",
        kernel,
        lambda x, kind: torch.empty_like(x),
        backward=lambda ctx, grad: (grad * 2, None),
        setup_context=lambda *_, **__: None,
    )
    torch.library.register_vmap(
        "kinds::surrounded", lambda info, dims, x, kind: (op(x, kind), dims[0]), lib=_library
    )
    return op


def surroundings(
    name: str,
    program: Callable[[Callable[[Tensor], Tensor]], Callable[..., Any]],
    inputs: Callable[[], tuple[Any, ...]] = lambda: (torch.arange(-2.0, 4.0).view(2, 3),),
    **doors: str | None,
) -> None:
    """What an operator may be called inside of; numbers are whole, and sums exact."""

    def make() -> Callable[..., Any]:
        op = _surrounded()
        return program(lambda x: op(x, name))

    KINDS.append(
        Kind(
            name,
            "surroundings",
            "(Tensor x, str kind) -> Tensor",
            make,
            inputs,
            _doors(doors),
        )
    )


def _cond(op: Any) -> Any:
    return lambda x: torch.cond(x.sum() > 0, lambda x: op(x + 1) * 3, lambda x: x - 1, (x,))


def _nested_cond(op: Any) -> Any:
    inner = _cond(op)
    return lambda x: torch.cond(x.sum() < 0, lambda x: x * 5, lambda x: op(inner(x)) + 1, (x,))


def _while_loop(op: Any) -> Any:
    def body(i, x):
        return i + 1, op(x + 1) - x

    return lambda x: torch.while_loop(lambda i, x: i < 3, body, (torch.tensor(0), x))


def _scan(op: Any) -> Any:
    return lambda x: scan(lambda carry, row: (op(carry + row), carry * 2), x[0] * 0, x)


def _associative_scan(op: Any) -> Any:
    def combine(a, b):
        return a + b

    return lambda x: op(associative_scan(combine, op(x), 0, combine_mode="generic"))


def _switch(op: Any) -> Any:
    return lambda x: switch(torch.tensor(1), (lambda x: x - 1, lambda x: op(x * 3) + 1), (x,))


def _checkpoint(op: Any, **options: Any) -> Any:
    def region(x):
        return op(op(x + 1) * x) * 3

    return lambda x: torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False, **options)


def _selective(op: Any) -> Any:
    saved = [torch.ops.aten.mul.Tensor]
    contexts = functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, saved)
    return _checkpoint(op, context_fn=contexts)


def _region(op: Any) -> Any:
    region = torch.compiler.nested_compile_region(lambda x: op(x + 1) * x)
    return lambda x: region(region(x) - 1)


def _within(mode: Callable[[], Any]) -> Callable[[Any], Any]:
    def program(op):
        def function(x):
            with mode():
                y = op(x @ x.t()) * 2
            return y, op(x) * x

        return function

    return program


def _function(op: Any) -> Any:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return op(x + 1) * 3

        @staticmethod
        def backward(ctx, grad):
            return op(grad) + grad

    return lambda x: Function.apply(x) + x


def _flex_attention(op: Any) -> Any:
    return lambda x: flex_attention(op(x), x, x + 1, score_mod=lambda s, b, h, m, n: s + m)


surroundings("torch.cond", _cond)
surroundings("torch.cond, nested", _nested_cond)
surroundings("while_loop", _while_loop)
surroundings("scan", _scan)
surroundings("map", lambda op: lambda x: functorch_map(lambda row: op(row + 1) * 3, x))
surroundings("beside associative_scan", _associative_scan)
surroundings("switch", _switch, export=HIGHER_ORDER, functional=HIGHER_ORDER)
surroundings("activation checkpointing", _checkpoint)
surroundings("selective checkpointing", _selective)
surroundings("nested_compile_region", _region)
surroundings("autocast", _within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)))
surroundings("no_grad", _within(torch.no_grad))
surroundings("enable_grad", _within(torch.enable_grad))
surroundings(
    "inference_mode",
    _within(torch.inference_mode),
    compile="intarsia: inference_mode\\(\\) inside of a compiled function",
    training="intarsia: inference_mode\\(\\) inside of a compiled function",
)
surroundings("vmap", lambda op: torch.vmap(lambda x: op(x + 1) * 3, in_dims=1))
surroundings("autograd.Function", _function)
surroundings(
    "tensor subclass",
    lambda op: lambda x: (lambda y: (y.a, y.b))(op(x * 3) + 1),
    lambda: (TwoTensor(torch.arange(6.0), torch.arange(6.0) * 2),),
    # What is exported is the program of one plain tensor.
    export="intarsia: has no memory that a compiled kernel can read",
    functional=None,
)
surroundings(
    "beside flex_attention",
    _flex_attention,
    lambda: (torch.arange(512.0).view(1, 2, 32, 8) % 7 - 3,),
    training=None,  # PyTorch has no backward of it on the CPU
    export=HIGHER_ORDER,
    functional=HIGHER_ORDER,
)
