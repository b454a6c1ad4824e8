# ===- _triton.py - Kernels of Triton, compiled ahead of time -----------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Launches of the user's Triton kernels as data: cubins, and what they take.

PyTorch traces a ``triton_op``, or a kernel launched in a compiled function, to a node
that refers to Python objects. Here Triton compiles such a kernel for given GPUs, of which
the machine needs none, and the node becomes a call of ``intarsia::launch_kernel``
(``include/intarsia/Import/ImportGraph.h``), of which the compiler makes a launch without
Python.

``python -m intarsia._triton MODEL OUTPUT ARCHS MODULE...`` is what ``intarsia-compile
--target cuda --import MODULE`` starts. It writes OUTPUT only if the program has such
kernels, and OUTPUT.notes if there is something to say.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.util
import json
import operator
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from intarsia import _hooks
from intarsia._process import run

__all__ = ["compiled", "is_available", "lower", "target"]

#: Numbers that Triton passes as they are, by its names.
_NUMBERS = {"fp32": "f32", "fp64": "f64", "i1": "u1"} | {
    kind + width: kind + width for kind in "iu" for width in ("1", "8", "16", "32", "64")
}
_INT32 = 2**31 - 1


class Unsupported(Exception):
    """Why a launch stays Python's."""


@functools.cache
def is_available() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _launch_kernel() -> Any:
    """The operator, which exists to be written to files and is never called."""
    library = torch.library.Library("intarsia", "FRAGMENT")
    _launch_kernel.library = library  # type: ignore[attr-defined]  # keeps it registered
    library.define(
        "launch_kernel(str kernel, SymInt[] grid, Tensor[] written, Tensor[] read, "
        "SymInt[] integers, float[] floats) -> Tensor[]"
    )
    return torch.ops.intarsia.launch_kernel.default


@contextlib.contextmanager
def target(archs: Sequence[str]) -> Iterator[None]:
    """While it is entered, Triton analyses kernels for a GPU where there is none.

    PyTorch asks it which arguments a kernel writes; without an answer it takes all.
    """
    if torch.cuda.is_available() or not is_available():
        yield
        return
    from triton.runtime.driver import driver

    class Absent:
        def get_current_target(self) -> Any:
            return _gpu(archs[0])

    before = driver._active
    driver.set_active(Absent())
    try:
        yield
    finally:
        driver._active = before


def _gpu(arch: str) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", int(re.sub(r"\D", "", arch)), 32)


# --- One launch -------------------------------------------------------------------


@dataclass
class _Launch:
    """What is known of a launch before anything is compiled."""

    kernel: Any  # triton.JITFunction
    options: dict[str, Any]
    grid: Sequence[Any]
    #: Of how many configurations the first was taken.
    configurations: int = 1
    constants: dict[tuple[int], Any] = field(default_factory=dict)
    #: Of what is passed: the parameter, and the forms in which Triton may compile it.
    passed: list[tuple[Any, _Forms]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)
    read: list[Any] = field(default_factory=list)
    integers: list[Any] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)


@dataclass
class _Forms:
    """A parameter's Triton type, and whether it is compiled as a multiple of 16: in the
    best case, and without an assumption about a pointer's or a symbol's value."""

    type: str
    multiple: bool = False
    is_pointer: bool = False
    is_symbol: bool = False
    #: A symbol that may not fit 32 bits, or never does.
    wide: bool = False
    always_wide: bool = False


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def _specialised(value: Any, parameter: Any) -> tuple[str, Any]:
    """Triton's own decision: the type, and "D" for a multiple of 16."""
    from triton.backends import BaseBackend
    from triton.runtime.jit import native_specialize_impl

    kind, key = native_specialize_impl(
        BaseBackend,
        value,
        parameter.is_const,
        not parameter.do_not_specialize,
        not parameter.do_not_specialize_on_alignment,
    )
    annotated = parameter.annotation_type
    if isinstance(annotated, str) and annotated and kind != "constexpr":
        is_plain = annotated == "u1" or annotated[:2] in ("fp", "bf")
        return annotated, None if is_plain else key
    return kind, key


def _range(value: torch.SymInt) -> tuple[Any, Any]:
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    return bounds.lower, bounds.upper


def _read(node: fx.Node, may_choose: bool) -> _Launch:
    """The launch of a ``triton_kernel_wrapper_functional`` node."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    if node.kwargs["tma_descriptor_metadata"]:
        raise Unsupported("it takes tensor descriptors")
    config: dict[str, Any] = {}
    options: dict[str, Any] = {}
    configurations = len(getattr(kernel, "configs", ())) or 1
    if isinstance(kernel, Autotuner):
        if configurations > 1 and not may_choose:
            raise Unsupported("it is autotuned, which takes a GPU")
        chosen = kernel.configs[0]
        if chosen.pre_hook is not None:
            raise Unsupported("its configuration has a pre_hook")
        config = dict(chosen.kwargs)
        options = {k: v for k, v in chosen.all_kwargs().items() if k not in config}
        kernel = kernel.fn
    if not isinstance(kernel, JITFunction):
        raise Unsupported(f"it is a {type(kernel).__name__}")
    if kernel.pre_run_hooks:
        raise Unsupported("it has hooks that run before it")
    constants = kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])
    given = {**constants, **node.kwargs["kwargs"]}
    options |= {k: v for k, v in given.items() if k not in kernel.arg_names}
    launch = _Launch(kernel, options, node.kwargs["grid"][0], configurations)
    writes = node.kwargs["tensors_to_clone"]
    for number, parameter in enumerate(kernel.params):
        name = parameter.name
        if name not in given and name not in config and not parameter.has_default:
            raise Unsupported(f"its parameter {name} has no value")
        argument = given.get(name, config.get(name, parameter.default))
        if parameter.is_constexpr:
            launch.constants[(number,)] = argument
        else:
            _pass(launch, number, parameter, argument, name in writes)
    return launch


def _pass(launch: _Launch, number: int, parameter: Any, argument: Any, is_written: bool) -> None:
    value = _value(argument)

    def add(members: list[Any], name: str, member: Any, forms: _Forms) -> None:
        launch.passed.append((parameter, forms))
        launch.order.append(f"{name}:{len(members)}")
        members.append(member)

    if isinstance(value, torch.Tensor):
        from triton.runtime.jit import MockTensor

        kind, key = _specialised(MockTensor(value.dtype), parameter)
        forms = _Forms(kind, key == "D", is_pointer=True)
        if is_written:
            add(launch.written, "written", argument, forms)
        else:
            add(launch.read, "read", argument, forms)
        return
    if isinstance(value, torch.SymInt) and value.node.maybe_as_int() is None:
        # 16 stands for a multiple of it.
        kind, key = _specialised(16, parameter)
        lower, upper = _range(value)
        forms = _Forms(kind, key == "D", is_symbol=True)
        if kind == "i32":
            forms.wide = not upper <= _INT32
            forms.always_wide = bool(lower > _INT32)
        add(launch.integers, "integers", argument, forms)
        return
    if isinstance(value, torch.SymInt):
        value = int(value)
    if value is not None and not isinstance(value, (bool, int, float)):
        raise Unsupported(f"its argument {parameter.name} is a {type(value).__name__}")
    kind, key = _specialised(value, parameter)
    if kind == "constexpr":
        launch.constants[(number,)] = value
    elif isinstance(value, float):
        add(launch.floats, "floats", value, _Forms(kind))
    elif kind.startswith("fp"):
        add(launch.floats, "floats", float(value), _Forms(kind))
    else:
        add(launch.integers, "integers", int(value), _Forms(kind, key == "D"))


# --- Its code ---------------------------------------------------------------------


def _variants(launch: _Launch) -> Iterator[list[tuple[str, bool]]]:
    """For each variant, what Triton compiles the passed parameters as: type, and whether
    it may rely on multiples of 16. The first that fits a launch is taken, and one does."""
    seen = []
    may_be_wide = any(forms.wide for _, forms in launch.passed)
    is_wide = any(forms.always_wide for _, forms in launch.passed)
    for wide in (False, True):
        if (wide and not may_be_wide) or (is_wide and not wide):
            continue
        for aligned, multiple in ((True, True), (True, False), (False, False)):
            form = [
                (
                    "i64" if wide and forms.wide else forms.type,
                    forms.multiple
                    and (aligned or not forms.is_pointer)
                    and (multiple or not forms.is_symbol),
                )
                for _, forms in launch.passed
            ]
            if form not in seen:
                seen.append(form)
                yield form


def _parameter(kind: str, multiple: bool) -> str:
    """As ``plan::Kernel::Variant`` names it."""
    known = "*" if kind.startswith("*") else _NUMBERS.get(kind)
    if known is None:
        raise Unsupported(f"it takes a parameter of type {kind}")
    return known + ("/16" if multiple else "")


def _compile(launch: _Launch, form: list[tuple[str, bool]], archs: Sequence[str]) -> dict[str, Any]:
    import triton
    from triton.compiler import ASTSource

    signature = dict.fromkeys(launch.kernel.arg_names, "constexpr")
    attributes = {}
    for (parameter, _), (kind, multiple) in zip(launch.passed, form, strict=True):
        signature[parameter.name] = kind
        if multiple:
            attributes[(parameter.num,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, launch.constants, attributes)
    images, hashes, geometry = [], [], set()
    latest = max(archs, key=lambda arch: int(re.sub(r"\D", "", arch)))
    for arch in archs:
        code = triton.compile(source, target=_gpu(arch), options=dict(launch.options))
        metadata, ptx = code.metadata, code.asm["ptx"]
        for name in ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid",
                     "launch_pdl", "tensordesc_meta"):  # fmt: skip
            if getattr(metadata, name, None):
                raise Unsupported(f"it needs {name}")
        if metadata.num_ctas != 1:
            raise Unsupported("its blocks form clusters (num_ctas)")
        exact = re.search(r"^\.target (\w+)", ptx, re.M)[1]  # type: ignore[index]
        # Data of the module may stand before it, in braces, too.
        count = ptx.partition(".entry")[2].partition("{")[0].count(".param")
        geometry.add((metadata.name, metadata.num_warps * metadata.warp_size, count))
        hashes.append(metadata.hash)
        codes = [(False, code.asm["cubin"])]
        if arch == latest and exact[-1].isdigit():
            codes.append((True, ptx.encode()))
        for is_ptx, content in codes:
            text = base64.b64encode(content).decode()
            images.append({"arch": exact, "shared": metadata.shared, "ptx": is_ptx, "code": text})
    if len(geometry) != 1:
        raise Unsupported("its blocks differ from GPU to GPU")
    ((symbol, threads, count),) = geometry
    digest = hashlib.sha256("".join(hashes).encode()).hexdigest()[:12]
    return {
        "module": re.sub(r"\W", "_", launch.kernel.__name__) + "_" + digest,
        "symbol": symbol,
        "threads": threads,
        "parameters": [_parameter(*entry) for entry in form],
        "scratch": count - len(form),
        "images": images,
    }


def _description(launch: _Launch, archs: Sequence[str]) -> str:
    variants = []
    for form in _variants(launch):
        try:
            variants.append(_compile(launch, form, archs))
        except Unsupported:
            raise
        except Exception as error:
            if variants and any(kind == "i64" for kind, _ in form):
                continue  # types of the kernel's own do not allow it
            line = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise Unsupported(f"Triton cannot compile it: {line[0]}") from error
    code = launch.kernel.fn.__code__
    return json.dumps(
        {
            "name": launch.kernel.__name__,
            "source": f"Triton, {Path(code.co_filename).name}:{code.co_firstlineno}",
            "order": launch.order,
            "variants": variants,
        }
    )


# --- Graphs -----------------------------------------------------------------------


def lower(
    module: fx.GraphModule, archs: Sequence[str], *, may_choose: bool
) -> tuple[list[str], list[str]]:
    """Makes calls of ``intarsia::launch_kernel`` of a graph's launches of Triton's kernels.

    Parameters
    ----------
    module
        A functional graph, whose nodes have their fake values; it is changed.
    archs
        GPUs to compile for: ``"sm_90"``.
    may_choose
        Take the first configuration of an autotuned kernel; else it stays Python's.

    Returns
    -------
    tuple of two lists of str
        For each launch that stays as it is, which and why; and what was chosen for others.
    """
    remaining: list[str] = []
    chosen: list[str] = []
    if not is_available():
        return remaining, chosen
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional

    for graph_module in module.modules():
        if not isinstance(graph_module, fx.GraphModule):
            continue
        nodes = graph_module.graph.find_nodes(
            op="call_function", target=triton_kernel_wrapper_functional
        )
        for node in nodes:
            try:
                launch = _read(node, may_choose)
                name, description = _name(node), _description(launch, archs)
                _replace(node, launch, description)
            except Unsupported as reason:
                remaining.append(f"{_name(node)} is launched by Python: {reason}")
                continue
            if launch.configurations > 1:
                chosen.append(
                    f"{name} is autotuned, which takes a GPU: the first of its "
                    f"{launch.configurations} configurations is taken"
                )
        if nodes:
            graph_module.recompile()
    return remaining, chosen


def _name(node: fx.Node) -> str:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    while hasattr(kernel, "fn") and not hasattr(kernel, "arg_names"):
        kernel = kernel.fn
    name = getattr(getattr(kernel, "fn", kernel), "__name__", "a kernel")
    return f"Triton's kernel {name}"


def _replace(node: fx.Node, launch: _Launch, description: str) -> None:
    graph = node.graph
    names = [p.name for (p, _), o in zip(launch.passed, launch.order, strict=True)
             if o.startswith("written:")]  # fmt: skip
    lists = (launch.written, launch.read, launch.integers, launch.floats)
    with graph.inserting_before(node):
        new = graph.call_function(_launch_kernel(), (description, list(launch.grid), *lists))
    new.meta = {k: v for k, v in node.meta.items() if k != "eager_input_vals"}
    new.meta["val"] = [node.meta["val"][name] for name in names]
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise Unsupported("its results are used as a whole")
        user.args = (new, names.index(user.args[1]))
    graph.erase_node(node)


# --- Files ------------------------------------------------------------------------


def _operators() -> Iterator[str]:
    """Operators of ``torch.library.triton_op``: "mylib::op"."""
    from torch._library.triton import triton_ops_to_kernels

    return iter(triton_ops_to_kernels)


def _has_kernels(source: str) -> bool:
    """Whether a saved program calls such an operator."""
    wanted = [f"torch.ops.{name.replace('::', '.')}." for name in _operators()]
    try:
        with zipfile.ZipFile(source) as archive:
            names = [n for n in archive.namelist() if re.search(r"(^|/)models/[^/]*\.json$", n)]
            text = "".join(archive.read(name).decode() for name in names)
    except Exception:  # the compiler will say what is wrong with it
        return False
    return any(name in text for name in wanted)


def _write(source: str, path: str, archs: Sequence[str]) -> list[str] | None:
    """Writes the program with its kernels as data; None: it has none. Else notes."""
    if not is_available() or not _has_kernels(source):
        return None
    program = torch.export.load(source)
    with target(archs), _hooks.advised(), _hooks.keep_exported_effects():
        program = program.run_decompositions({}, decompose_custom_triton_ops=True)
    remaining, chosen = lower(program.graph_module, archs, may_choose=True)
    if remaining:
        # A file cannot hold what remains: all stay operators, which Python registers.
        return remaining
    torch.export.save(program, path)
    return chosen


def compiled(source: str, folder: str, archs: Sequence[str]) -> tuple[str, list[str]]:
    """The path of the saved program, or of one in `folder` whose Triton kernels are data, and
    what the user should know."""
    path = os.path.join(folder, f"{Path(source).stem}.triton.pt2")
    notes = _write(source, path, archs)
    return (path if os.path.exists(path) else source), notes or []


def main() -> None:
    source, path, archs, *modules = sys.argv[1:]

    def work() -> None:
        if notes := _write(source, path, archs.split(",")):
            Path(f"{path}.notes").write_text("\n".join(notes))

    run(modules, work)


if __name__ == "__main__":
    main()
