# ===- _fx.py - Reader B: AOTAutograd graphs as data ------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Turns an fx graph from AOTAutograd into the JSON that the importer reads.

The JSON mirrors the structs of ``include/intarsia/Import/ImportGraph.h`` field by
field. What cannot be data (a ``torch.Generator``, an opaque object, a constant
tensor) goes to a side table, and the JSON holds its index.

PyTorch's own serialiser is not used: it refuses generators, mixed lists,
SymFloats and constant tensors, and it drops the strides of the traced program
(``eager_input_vals``) and where unbacked symbols are bound.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import math
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv

from intarsia._hooks import AUTOCAST
from intarsia._namespaces import STRIDED, is_pytorchs
from intarsia._warnings import warn
from intarsia.errors import CompileError

__all__ = ["DTYPES", "ReadGraph", "read_graph"]

Json = Any

#: What the compiler knows of.
DTYPES: dict[torch.dtype, str] = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.bool: "bool",
    torch.bfloat16: "bf16",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float8_e8m0fnu: "f8e8m0fnu",
    torch.float4_e2m1fn_x2: "f4e2m1x2",
}

_LAYOUTS: dict[torch.layout, str] = {
    torch.strided: "strided",
    torch.sparse_coo: "sparse_coo",
    torch.sparse_csr: "sparse_csr",
    torch.sparse_csc: "sparse_csc",
    torch.sparse_bsr: "sparse_bsr",
    torch.sparse_bsc: "sparse_bsc",
    torch.jagged: "jagged",
}

_MEMORY_FORMATS: dict[torch.memory_format, str] = {
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}

# The higher-order operators that the importer translates; every other one runs
# as a Python callable (see `_GraphReader.python_call`).
_NATIVE_HIGHER_ORDER = frozenset(
    {
        "cond",
        "while_loop",
        "with_effects",
        "auto_functionalized",
        "auto_functionalized_v2",
        "invoke_subgraph",
        "map_impl",
        "scan",
    }
)

_FUNCTIONALISED = frozenset({"auto_functionalized", "auto_functionalized_v2"})

# Of these the importer translates a call whose subgraph mutates its arguments.
_NATIVE_FUNCTIONALISED = frozenset({"cond", "invoke_subgraph"})


@dataclass
class ReadGraph:
    """What `read_graph` returns.

    Attributes
    ----------
    json : str
        The program, as ``include/intarsia/Import/ImportGraph.h`` describes it.
    objects : list
        The side table: Python objects that the program refers to by index.
    """

    json: str
    objects: list[Any] = field(default_factory=list)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Python looks for garbage again and again while a large graph is read, of which all
    stays: with 10,000 nodes two thirds of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_collections()
def read_graph(
    gm: fx.GraphModule,
    *,
    static_inputs: Iterable[int] = (),
    input_names: Sequence[str | None] | None = None,
    visible_outputs: Iterable[int] | None = None,
    compile_subgraph: Callable[[fx.GraphModule], Any] | None = None,
) -> ReadGraph:
    """Reads one AOTAutograd graph (forward, backward or inference).

    Parameters
    ----------
    gm
        The graph; every node carries ``meta["val"]``.
    static_inputs
        Indices of placeholders that keep their address from call to call
        (parameters and buffers).
    input_names
        The user's name for each placeholder (``"x"``, ``"self.fc.weight"``), for
        error messages; None where there is none.
    visible_outputs
        Indices of outputs whose strides the user can see; None means all.
    compile_subgraph
        What to pass, instead of the subgraph itself, to a higher-order operator that
        runs in Python.

    Raises
    ------
    CompileError
        When a node holds something that has no place in the program; the message
        names the operator and the user's source line.
    """
    program = _ProgramReader(compile_subgraph)
    graph = program.read(gm, "main")

    static = set(static_inputs)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    inputs = []
    for i, node in enumerate(placeholders):
        kind = "token" if _is_token(node) else "userinput"
        name = input_names[i] if input_names is not None and i < len(input_names) else None
        spec: Json = {"kind": kind, "name": node.name, "target": name or ""}
        if i in static:
            spec["isStatic"] = True
        inputs.append(spec)
    for name, index, meta in program.constants:
        graph["inputs"].append(name)
        graph["values"][name] = {"kind": "tensor", "tensor": meta}
        inputs.append({"kind": "constant", "name": name, "target": name, "isStatic": True})
        program.weights.append({"target": name, "meta": meta, "object": index})

    visible = None if visible_outputs is None else set(visible_outputs)
    output_node = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    descriptors = output_node.meta.get("desc") or ()
    outputs = []
    for i in range(len(graph["outputs"])):
        token = i < len(descriptors) and "TokenAOTOutput" in type(descriptors[i]).__name__
        spec = {"kind": "token" if token else "useroutput"}
        if visible is not None and i not in visible:
            spec["userVisible"] = False
        outputs.append(spec)

    text = json.dumps(
        {
            "graph": graph,
            "graphs": program.graphs,
            "inputs": inputs,
            "outputs": outputs,
            "weights": program.weights,
            "ranges": program.ranges(),
            "guards": [],
            "functional": True,
            "inSpec": "",
            "outSpec": "",
            "torchVersion": torch.__version__,
        },
        separators=(",", ":"),
        check_circular=False,
    )
    return ReadGraph(text, program.objects)


def _is_token(node: fx.Node) -> bool:
    return "TokenAOTInput" in type(node.meta.get("desc")).__name__


# --- Source locations -----------------------------------------------------------

_FRAME = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')


@functools.lru_cache(maxsize=4096)
def _parse_stack(text: str) -> tuple[Json, ...]:
    """The frames of a formatted traceback, innermost last."""
    frames: list[Json] = []
    for line in text.splitlines():
        if match := _FRAME.match(line):
            frames.append(
                {
                    "file": match["file"],
                    "line": int(match["line"]),
                    "function": match["function"].strip(),
                }
            )
        elif frames and "code" not in frames[-1] and (code := line.strip()):
            frames[-1]["code"] = code
    return tuple(frames)


def source_line(node: fx.Node) -> str:
    """``file.py:12 in forward: y = f(x)``, or an empty string."""
    frames = _parse_stack(node.meta.get("stack_trace") or "")
    if not frames:
        return ""
    last = frames[-1]
    return f"{last['file']}:{last['line']} in {last['function']}: {last.get('code', '')}"


_MODULE_NOISE = re.compile(r"^L\['self'\]|^L__self___?")
_MODULE_PART = re.compile(r"\._modules\['([^']*)'\]|\['([^']*)'\]")


@functools.lru_cache(maxsize=4096)
def readable_module_path(path: str) -> str:
    """``L['self']._modules['layers'][0]`` as ``layers.0``."""
    path = _MODULE_NOISE.sub("", path)
    path = _MODULE_PART.sub(lambda m: "." + (m[1] or m[2] or ""), path)
    return re.sub(r"\[(\d+)\]", r".\1", path).strip(".")


# --- Values ---------------------------------------------------------------------


@functools.lru_cache(maxsize=65536)
def _srepr(expr: sympy.Expr) -> int | str:
    if isinstance(expr, sympy.Integer) or (expr.is_number and expr.is_integer is True):
        return int(expr)
    return sympy.srepr(expr)


class _Quotients:
    """What the guards say that rounded quotients are equal to.

    A program that halves sizes (an associative scan, an image that is halved and doubled)
    holds two expressions for one size, which are equal for those sizes alone that its
    guards admit; in the end that may be a single one.
    """

    def __init__(self, shape_env: Any) -> None:
        self._solved: dict[sympy.Expr, sympy.Expr] = {}
        # A quotient that has no rest: the divisor, and what that many are.
        self._exact: dict[sympy.Expr, tuple[int, sympy.Expr]] = {}
        self._rewritten: dict[sympy.Expr, sympy.Expr] = {}
        for guard in shape_env.guards:
            # A symbol in it may have become a number since.
            equation = shape_env.replace(guard.expr)
            if isinstance(equation, sympy.Eq) and equation.has(FloorDiv):
                self._learn(equation)

    def _learn(self, equation: sympy.Eq) -> None:
        rest = sympy.expand((equation.lhs - equation.rhs).xreplace(self._solved))
        for term in sorted(rest.as_ordered_terms(), key=sympy.count_ops, reverse=True):
            coefficient, unknown = term.as_coeff_Mul()
            others = rest - term
            if abs(coefficient) == 1:
                if others.has(unknown):
                    continue
                if isinstance(unknown, FloorDiv) or (unknown.is_Symbol and others.is_Integer):
                    solved = {unknown: -others * coefficient}
                    known = {key: v.xreplace(solved) for key, v in self._solved.items()}
                    self._solved = known | solved
                    return
            elif isinstance(unknown, FloorDiv) and coefficient.is_Integer:
                if not others.has(FloorDiv):
                    value = -others * sympy.sign(coefficient)
                    self._exact[unknown] = (abs(int(coefficient)), value)
                    return

    def _multiplied(self, product: sympy.Mul) -> sympy.Expr:
        """``2 * (s // 2)`` as ``s``."""
        coefficient, rest = product.as_coeff_Mul()
        if not coefficient.is_Integer:
            return product
        for factor in sympy.Mul.make_args(rest):
            base, power = factor.as_base_exp()
            divisor, value = self._exact.get(base, (0, None))
            while divisor and coefficient % divisor == 0 and power.is_Integer and power > 0:
                coefficient, power = coefficient / divisor, power - 1
                rest = rest / base * value
        return coefficient * rest

    def put_into(self, expr: sympy.Expr, shape_env: Any) -> sympy.Expr:
        if not self._solved and not expr.has(FloorDiv):
            return expr
        if (known := self._rewritten.get(expr)) is not None:
            return known
        result = expr.xreplace(self._solved)
        numbers = {}
        for quotient in result.atoms(FloorDiv):
            bounds = shape_env.bound_sympy(quotient)
            if bounds.is_int and bounds.is_singleton():
                numbers[quotient] = bounds.lower
        result = result.xreplace(numbers)
        if self._exact and result.has(*self._exact):
            result = result.replace(lambda e: e.is_Mul, self._multiplied)
        self._rewritten[expr] = result
        return result


_quotients: weakref.WeakKeyDictionary[Any, tuple[int, _Quotients]] = weakref.WeakKeyDictionary()


def _expr(value: torch.SymInt | torch.SymFloat | torch.SymBool) -> sympy.Expr:
    """The expression of a number, with what is known of it put in."""
    shape_env = value.node.shape_env
    count, quotients = _quotients.get(shape_env, (-1, None))
    if quotients is None or count != len(shape_env.guards):
        count, quotients = len(shape_env.guards), _Quotients(shape_env)
        _quotients[shape_env] = count, quotients
    return quotients.put_into(value.node.expr, shape_env)


def _float_expr(value: torch.SymFloat) -> str:
    text = _srepr(_expr(value))
    return text if isinstance(text, str) else f"Float('{float(text)!r}')"


def _int_expr(value: int | torch.SymInt) -> int | str:
    if type(value) is int:
        return value
    if isinstance(value, torch.SymInt):
        node = value.node
        if node.is_nested_int():
            raise CompileError("jagged (nested) sizes are not supported; use padded tensors")
        if node.is_constant():
            return int(value)
        return _srepr(_expr(value))
    return int(value)


def _float_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _tensor_meta(t: torch.Tensor) -> Json:
    dtype = DTYPES.get(t.dtype)
    if dtype is None:
        raise CompileError(f"tensors of dtype {t.dtype} are not supported")
    return {
        "dtype": dtype,
        "device": str(t.device),
        "sizes": [_int_expr(s) for s in t.shape],
        "strides": [_int_expr(s) for s in t.stride()],
        "storageOffset": _int_expr(t.storage_offset()),
        "requiresGrad": t.requires_grad,
    }


def _value_meta(value: Any) -> Json:
    """The ValueMeta of a traced value that is not a tuple or list."""
    if isinstance(value, torch.Tensor):
        # A sparse tensor has no strides to promise, and of rare dtypes we know nothing: they
        # pass by unchecked.
        if value.layout is not torch.strided or value.dtype not in DTYPES:
            return {"kind": "object", "object": -1}
        return {"kind": "tensor", "tensor": _tensor_meta(value)}
    if value is None:
        return {"kind": "none"}
    if isinstance(value, bool):
        return {"kind": "symbool", "expr": "true" if value else "false"}
    if isinstance(value, int):
        return {"kind": "symint", "expr": value}
    if isinstance(value, float):
        return {"kind": "symfloat", "expr": f"Float('{value!r}')"}
    if isinstance(value, torch.SymInt) and value.node.is_nested_int():
        # The name of a ragged size: not a number. AOTAutograd passes it beside the tensors
        # that a nested tensor is made of.
        return {"kind": "object", "object": -1}
    if isinstance(value, torch.SymInt):
        return {"kind": "symint", "expr": _int_expr(value)}
    if isinstance(value, torch.SymFloat):
        return {"kind": "symfloat", "expr": _float_expr(value)}
    if isinstance(value, torch.SymBool):
        return {"kind": "symbool", "expr": _srepr(_expr(value))}
    return {"kind": "object", "object": -1}


def is_ordered(node: fx.Node) -> bool:
    """Whether it is a call that takes and returns a token."""
    return getattr(node.target, "_name", "") == "with_effects"


def autocast_of(node: fx.Node) -> dict[str, torch.dtype]:
    """The autocast that a custom operator's kernel runs under, by the type of the device."""
    state = node.meta.get("custom", {}).get(AUTOCAST, {})
    # Of the forward only: eager has left the region when it runs the backward.
    if node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward"):
        return {}
    # Also what a higher-order operator calls: auto_functionalized, with_effects.
    operators = [a for a in (node.target, *node.args) if isinstance(a, torch._ops.OpOverload)]
    return {
        device: dtype
        for device, dtype in state.items()
        if operators and not _has_autocast_rule(operators[0], device)
    }


def _has_autocast_rule(op: torch._ops.OpOverload, device: str) -> bool:
    """Whether the operator's own rule ran, below which kernels cast no more."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), f"Autocast{device.upper()}")


# --- Graphs ---------------------------------------------------------------------


class _ProgramReader:
    """What the graphs of one program share: subgraphs, side table, ranges."""

    def __init__(self, compile_subgraph: Callable[[fx.GraphModule], Any] | None = None) -> None:
        self.compile_subgraph = compile_subgraph
        self.graphs: dict[str, Json] = {}
        self.objects: list[Any] = []
        self.weights: list[Json] = []
        # Constant tensors of the main graph: (name, side table index, meta).
        self.constants: list[tuple[str, int, Json]] = []
        self._object_index: dict[int, int] = {}
        self._graph_names: dict[int, str] = {}
        self._shape_env: Any = None

    def object_index(self, value: Any) -> int:
        index = self._object_index.get(id(value))
        if index is None:
            index = self._object_index[id(value)] = len(self.objects)
            self.objects.append(value)
        return index

    def subgraph(self, gm: fx.GraphModule, name: str) -> str:
        """Reads a subgraph once; returns its name in the program."""
        known = self._graph_names.get(id(gm))
        if known is not None:
            return known
        unique, n = name, 1
        while unique in self.graphs or unique == "main":
            unique, n = f"{name}_{n}", n + 1
        self._graph_names[id(gm)] = unique
        self.graphs[unique] = {}  # reserves the name while nested graphs are read
        self.graphs[unique] = self.read(gm, unique)
        return unique

    def read(self, gm: fx.GraphModule, name: str) -> Json:
        return _GraphReader(self, gm, name).read()

    def note_shape_env(self, value: torch.SymInt | torch.SymFloat | torch.SymBool) -> None:
        if self._shape_env is None:
            self._shape_env = value.node.shape_env

    @property
    def shape_env(self) -> Any:
        return self._shape_env

    def ranges(self) -> list[Json]:
        """The known range of each symbol."""
        if self._shape_env is None:
            return []
        result = []
        for symbol, interval in self._shape_env.var_to_range.items():
            entry: Json = {"symbol": symbol.name}
            for key, bound in (("min", interval.lower), ("max", interval.upper)):
                # Bounds that PyTorch means as "any" are left out.
                if isinstance(bound, (int, sympy.Integer)) and abs(int(bound)) < 2**62:
                    entry[key] = int(bound)
            if len(entry) > 1:
                result.append(entry)
        return result


class _GraphReader:
    def __init__(self, program: _ProgramReader, gm: fx.GraphModule, name: str) -> None:
        self.program = program
        self.gm = gm
        self.name = name
        self.values: dict[str, Json] = {}
        self.nodes: list[Json] = []
        # Node -> the Argument that stands for it where it is used.
        self.arguments: dict[fx.Node, Json] = {}
        # Symbols that stand for a storage offset and are not bound yet.
        self.offset_symbols: set[str] = set()

    def read(self) -> Json:
        inputs: list[str] = []
        outputs: list[Json] = []
        for node in self.gm.graph.nodes:
            try:
                if node.op == "placeholder":
                    inputs.append(node.name)
                    self.bind(node.name, node.meta.get("val"))
                    self.arguments[node] = {"kind": "value", "value": node.name}
                elif node.op == "get_attr":
                    continue  # read where it is used
                elif node.op == "call_function":
                    self.call(node)
                elif node.op == "output":
                    flat = node.args[0]
                    if not isinstance(flat, (tuple, list)):
                        flat = (flat,)
                    outputs = [self.argument(a) for a in flat]
                else:
                    raise CompileError(f"a graph node of kind '{node.op}' was not expected")
            except CompileError as error:
                raise _located(error, node) from None
        return {
            "name": self.name,
            "inputs": inputs,
            "nodes": self.nodes,
            "outputs": outputs,
            "values": self.values,
        }

    def bind(self, name: str, value: Any) -> None:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.program.note_shape_env(value)
        elif self.program.shape_env is None and isinstance(value, torch.Tensor):
            for size in value.shape:
                if isinstance(size, torch.SymInt):
                    self.program.note_shape_env(size)
        self.values[name] = _value_meta(value)

    # --- Nodes ---

    def attribute(self, node: fx.Node) -> Json:
        value = functools.reduce(getattr, node.target.split("."), self.gm)
        if isinstance(value, fx.GraphModule):
            return {"kind": "graph", "value": self.program.subgraph(value, node.target)}
        if isinstance(value, torch.Tensor):
            if self.name != "main" or value.layout is not torch.strided:
                # A subgraph has no weights of its own: the tensor itself is the
                # argument.
                return self.object_argument(value)
            meta = _tensor_meta(value)
            self.program.constants.append((node.name, self.program.object_index(value), meta))
            return {"kind": "value", "value": node.name}
        return self.object_argument(value)

    def call(self, node: fx.Node) -> None:
        target = node.target
        if target is operator.getitem and self.getitem(node):
            return
        if isinstance(target, torch._ops.HigherOrderOperator):
            name = f"higher_order::{target.name()}"
            # Control flow that mutates, functionalised.
            inner = node.args[0] if target.name() in _FUNCTIONALISED and node.args else None
            foreign = (
                isinstance(inner, torch._ops.HigherOrderOperator)
                and inner.name() not in _NATIVE_FUNCTIONALISED
            )
            if target.name() not in _NATIVE_HIGHER_ORDER or foreign:
                self.python_call(node, target.name())
                return
            args = [["", self.argument(a)] for a in node.args]
            args += [
                [k, self.argument(v)]
                for k, v in node.kwargs.items()
                # How the operator's schema came about; its arguments have names.
                if not (inner is not None and k == "_op_schema")
            ]
        elif isinstance(target, torch._ops.OpOverload):
            name = _overload_name(target)
            declared = target._schema.arguments
            types = {a.name: a.type for a in declared}
            args = [
                ["", self.typed_argument(a, d.type)]
                for a, d in zip(node.args, declared, strict=False)
            ]
            args += [[k, self.typed_argument(v, types[k])] for k, v in node.kwargs.items()]
        elif _is_number(node.meta.get("val")):
            name = _function_name(target)
            args = [["", self.argument(a)] for a in node.args]
            args += [[k, self.argument(v)] for k, v in node.kwargs.items()]
        else:
            self.python_call(node, getattr(target, "__name__", type(target).__name__))
            return
        self.append(node, name, args)

    def getitem(self, node: fx.Node) -> bool:
        """Resolves `producer[i]` to the producer's output. False: real indexing."""
        producer, index = node.args
        argument = self.arguments.get(producer)
        if argument is None or argument["kind"] != "list" or not isinstance(index, int):
            return False
        self.arguments[node] = argument["value"][index]
        return True

    def python_call(self, node: fx.Node, name: str) -> None:
        """A higher-order operator that runs in Python.

        The callable in the side table takes the flattened tensors and symbolic
        numbers of the arguments, and returns the flat list of results. Subgraphs are
        compiled when they are first called.
        """
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        dynamic = [i for i, leaf in enumerate(leaves) if self.is_dynamic(leaf)]
        constants = [None if self.is_dynamic(leaf) else self.constant(leaf) for leaf in leaves]
        paths = _leaf_paths(_traced_value(node))
        function = _PythonCall(node.target, name, constants, dynamic, spec, paths)
        args = [["callable", self.object_argument(function)]]
        args += [["", self.argument(leaves[i])] for i in dynamic]
        self.append(node, f"higher_order::{name}", args)

    def is_dynamic(self, leaf: Any) -> bool:
        return isinstance(leaf, fx.Node) and leaf.op != "get_attr"

    def constant(self, leaf: Any) -> Any:
        if isinstance(leaf, fx.Node):
            value = functools.reduce(getattr, leaf.target.split("."), self.gm)
            if isinstance(value, fx.GraphModule) and self.program.compile_subgraph:
                return self.program.compile_subgraph(value)
            return value
        return leaf

    def append(self, node: fx.Node, target: str, args: list[Json]) -> None:
        outputs, argument = self.outputs(node)
        self.arguments[node] = argument
        entry: Json = {"name": node.name, "target": target, "args": args, "outputs": outputs}
        if stack := node.meta.get("stack_trace"):
            entry["stack"] = _parse_stack(stack)
        modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if modules:
            entry["module"] = readable_module_path(next(reversed(modules.values()))[0])
        if not is_pytorchs(target, STRIDED):
            if (strides := self.eager_strides(node)) is not None:
                entry["eagerStrides"] = strides
            if autocast := autocast_of(node):
                entry["autocast"] = ",".join(f"{k}={DTYPES[v]}" for k, v in autocast.items())
        if bindings := node.meta.get("unbacked_bindings"):
            entry["unbackedBindings"] = self.unbacked_bindings(node, bindings)
        elif target == "aten::sym_storage_offset":
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and str(value) in self.offset_symbols:
                self.offset_symbols.discard(str(value))
                entry["unbackedBindings"] = [[str(value), 0, "value"]]
        self.nodes.append(entry)

    # --- Outputs ---

    def outputs(self, node: fx.Node) -> tuple[list[Json], Json]:
        """The node's outputs, and the argument that stands for it as a whole."""
        value = _traced_value(node)
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            returns = len(target._schema.returns)
            if returns == 0:
                return [], {"kind": "none"}
            if returns == 1:
                output, argument = self.output(node, value, node.name, (), top=True)
                return [output], argument
            if value is None:
                value = (None,) * returns
        elif not isinstance(value, (tuple, list)):
            output, argument = self.output(node, value, node.name, (), top=True)
            return [output], argument
        names = self.getitem_names(node)
        pairs = [
            self.output(node, v, names.get((i,), f"{node.name}_unused_{i}"), (i,), names=names)
            for i, v in enumerate(value)
        ]
        return [p[0] for p in pairs], {"kind": "list", "value": [p[1] for p in pairs]}

    def output(
        self,
        node: fx.Node,
        value: Any,
        name: str,
        path: tuple[int, ...],
        *,
        top: bool = False,
        names: dict[tuple[int, ...], str] | None = None,
    ) -> tuple[Json, Json]:
        if isinstance(value, (tuple, list)):
            if names is None:
                names = self.getitem_names(node)
            pairs = []
            for i, member in enumerate(value):
                place = (*path, i)
                unused = "_".join(map(str, place))
                pairs.append(
                    self.output(
                        node,
                        member,
                        names.get(place, f"{node.name}_unused_{unused}"),
                        place,
                        names=names,
                    )
                )
            output = {"kind": "list", "list": [p[0] for p in pairs]}
            return output, {"kind": "list", "value": [p[1] for p in pairs]}
        if value is None:
            return {"kind": "none"}, {"kind": "none"}
        self.bind(name, value)
        return {"kind": "value", "name": name}, {"kind": "value", "value": name}

    def getitem_names(self, node: fx.Node) -> dict[tuple[int, ...], str]:
        """The name of the first getitem node for each place in the results."""
        names: dict[tuple[int, ...], str] = {}

        def visit(producer: fx.Node, path: tuple[int, ...]) -> None:
            for user in producer.users:
                if user.target is operator.getitem and user.args[0] is producer:
                    place = (*path, user.args[1])
                    # A member that is a tuple itself may come without a value.
                    if isinstance(user.meta.get("val", ()), (tuple, list)):
                        visit(user, place)
                    else:
                        names.setdefault(place, user.name)

        visit(node, ())
        return names

    # --- Facts that only the traced program knows ---

    def eager_strides(self, node: fx.Node) -> list[Json] | None:
        recorded = node.meta.get("eager_input_vals")
        if recorded is None:
            return None
        return [
            [_int_expr(s) for s in leaf.stride()] if leaf.layout is torch.strided else []
            for leaf in pytree.tree_leaves(recorded)
            if isinstance(leaf, torch.Tensor)
        ]

    def unbacked_bindings(self, node: fx.Node, bindings: dict[Any, Any]) -> list[Json]:
        renamings = self.program.shape_env.unbacked_renamings if self.program.shape_env else {}
        schema = getattr(node.target, "_schema", None)
        several = isinstance(node.meta.get("val"), (tuple, list)) and not (
            schema is not None and len(schema.returns) == 1
        )
        result = []
        for symbol, path in bindings.items():
            keys = list(path)
            name = renamings.get(symbol, symbol).name
            output = keys.pop(0).idx if several and keys else 0
            path = _binding_path(keys)
            if path == "offset":
                # Nothing depends on where a view begins, but for an explicit
                # question: that node's result binds the symbol.
                self.offset_symbols.add(name)
            else:
                result.append([name, output, path])
        return result

    # --- Arguments ---

    def object_argument(self, value: Any) -> Json:
        return {"kind": "object", "value": self.program.object_index(value)}

    def typed_argument(self, value: Any, declared: torch.Type) -> Json:
        if isinstance(value, dict) and str(declared).removeprefix("Optional[").startswith("Dict"):
            # The list of keys and values in turn.
            return self.argument([part for item in value.items() for part in item])
        return self.argument(value)

    def argument(self, value: Any) -> Json:
        if isinstance(value, fx.Node):
            if value.op == "get_attr" and value not in self.arguments:
                self.arguments[value] = self.attribute(value)
            return self.arguments[value]
        if value is None:
            return {"kind": "none"}
        if value is True or value is False:
            return {"kind": "bool", "value": value}
        if isinstance(value, int):
            return {"kind": "int", "value": int(value)}
        if isinstance(value, float):
            return {"kind": "float", "value": _float_json(value)}
        if isinstance(value, str):
            return {"kind": "string", "value": value}
        if isinstance(value, (tuple, list)):
            return {"kind": "list", "value": [self.argument(v) for v in value]}
        if isinstance(value, torch.dtype):
            if value not in DTYPES:
                return self.object_argument(value)
            return {"kind": "dtype", "value": DTYPES[value]}
        if isinstance(value, torch.device):
            return {"kind": "device", "value": str(value)}
        if isinstance(value, torch.layout):
            if value not in _LAYOUTS:
                raise CompileError(f"an argument of layout {value} is not supported")
            return {"kind": "layout", "value": _LAYOUTS[value]}
        if isinstance(value, torch.memory_format):
            return {"kind": "memoryformat", "value": _MEMORY_FORMATS[value]}
        if isinstance(value, complex):
            parts = [_float_json(value.real), _float_json(value.imag)]
            return {"kind": "complex", "value": parts}
        if isinstance(value, torch.SymInt):
            self.program.note_shape_env(value)
            return {"kind": "symint", "value": _int_expr(value)}
        if isinstance(value, torch.SymFloat):
            return {"kind": "symfloat", "value": _float_expr(value)}
        if isinstance(value, torch.SymBool):
            return {"kind": "symbool", "value": _srepr(_expr(value))}
        if isinstance(value, torch._ops.OpOverload):
            return {"kind": "operator", "value": _overload_name(value)}
        if isinstance(value, torch._ops.HigherOrderOperator):
            return {"kind": "operator", "value": f"higher_order::{value.name()}"}
        return self.object_argument(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _traced_value(node: fx.Node) -> Any:
    """What tracing recorded as the node's value.

    The partitioner records none for the random operators that it wraps. Of others that
    have none, only the members that something uses are known; the rest are None here.
    """
    if "val" in node.meta or node.target is operator.getitem:
        return node.meta.get("val")
    members: dict[int, Any] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[0] is not node:
            return _fake_result(node)
        members[user.args[1]] = _traced_value(user)
    if not members:
        return fake_number(node)
    return tuple(members.get(i) for i in range(max(members) + 1))


def returns_number(target: Any) -> bool:
    """Whether it is an operator that returns a number and nothing else."""
    returns = getattr(getattr(target, "_schema", None), "returns", ())
    return len(returns) == 1 and str(returns[0].type) in ("int", "float", "bool", "number")


def fake_number(node: fx.Node) -> Any:
    """What an operator returns that returns a number alone, for which tracing has put
    what the fake returned; None when it is not that number alone.

    Warns when the fake, which has told it while the program was traced, now raises.
    """
    if not returns_number(node.target):
        return None
    try:
        value = _fake_result(node)
    except Exception as error:
        warn(
            f"{node.target}: the number that it returns will not be compared with its fake's, "
            f"which raises {type(error).__name__} when asked once more: {error}"
        )
        return None
    return value if isinstance(value, (int, float)) else None


def _fake_result(node: fx.Node) -> Any:
    """What the node's operator returns for the recorded values of its arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    mode = torch._guards.detect_fake_mode(pytree.tree_leaves((args, kwargs)))
    if mode is None:  # it takes no tensor
        values = [n.meta.get("val") for n in node.graph.nodes]
        mode = torch._guards.detect_fake_mode(pytree.tree_leaves(values))
    with mode if mode is not None else FakeTensorMode():
        return node.target(*args, **kwargs)


def _leaf_paths(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...] | None]:
    """The places of the leaves in nested results; None for a leaf that is None."""
    if isinstance(value, (tuple, list)):
        return [p for i, member in enumerate(value) for p in _leaf_paths(member, (*path, i))]
    return [None if value is None else path]


class _PythonCall:
    """Calls a higher-order operator with its constant arguments filled in.

    Called by the runtime with the GIL held; takes the tensors and numbers that
    vary as one flat list, returns the flat list of results.
    """

    def __init__(
        self,
        target: Any,
        name: str,
        constants: list[Any],
        dynamic: list[int],
        spec: pytree.TreeSpec,
        paths: list[tuple[int, ...] | None],
    ) -> None:
        self.target = target
        self.constants = constants
        self.dynamic = dynamic
        self.spec = spec
        self.paths = paths
        self.__name__ = name

    def __call__(self, *values: Any) -> list[Any]:
        leaves = list(self.constants)
        for place, value in zip(self.dynamic, values, strict=True):
            leaves[place] = value
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.target(*args, **kwargs)
        return [
            None if path is None else functools.reduce(operator.getitem, path, result)
            for path in self.paths
        ]


def _binding_path(keys: Sequence[Any]) -> str:
    """A key path as ``size:0``, ``stride:1``, ``offset`` or ``value``.

    A member of a list comes first (``item:2:size:0``); ``bool`` at the end means
    that the value is a boolean which counts as 0 or 1, and ``/4`` that the size is
    a multiple of the symbol.
    """
    parts: list[str] = []
    suffix = ""
    i = 0
    while i < len(keys):
        key = keys[i]
        kind = type(key).__name__
        if kind == "CallMethodKey":
            if key.name == "storage_offset":
                parts.append("offset")
            else:
                i += 1
                parts += [key.name, str(keys[i].idx)]
        elif kind == "SequenceKey":
            parts += ["item", str(key.idx)]
        elif kind == "ConvertIntKey":
            suffix += ":bool"
        elif kind == "DivideByKey":
            suffix += f"/{_int_expr(key.divisor)}"
        else:
            raise CompileError(f"an unbacked symbol is bound by '{key}', which is not supported")
        i += 1
    if not parts or parts[-2:-1] == ["item"]:
        parts.append("value")
    return ":".join(parts) + suffix


@functools.cache
def _overload_name(op: torch._ops.OpOverload) -> str:
    """``aten::add.Tensor``; the default overload has no suffix."""
    schema = op._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def _function_name(target: Any) -> str:
    module = getattr(target, "__module__", None)
    name = getattr(target, "__name__", None)
    if module is None or name is None:
        raise CompileError(f"a call of {target!r} was not expected in the graph")
    return f"{module}::{name}"


def _located(error: CompileError, node: fx.Node) -> CompileError:
    message = str(error)
    if "\n  operator:" in message:
        return error
    where = source_line(node)
    message += f"\n  operator: {node.target} (node {node.name})"
    if where:
        message += f"\n  source:   {where}"
    return CompileError(message)
