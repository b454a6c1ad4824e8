# ===- artifact.py - Exported programs as one file ----------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Compiling an exported program to one file, and running that file.

The same files come from ``intarsia-compile`` and run in ``intarsia-run`` and the C++
API, without Python. Compiling here, in a process that has imported the modules that
register the operators, is the way for operators that are registered from Python.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intarsia import _complete, _convert, _hooks, _triton
from intarsia._extension import extension
from intarsia.errors import GuardError, LoadError, OptionError
from intarsia.options import Options

__all__ = ["LoadedProgram", "aot_compile", "export", "load"]

log = logging.getLogger("intarsia")

_Path = str | os.PathLike[str]


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> torch.export.ExportedProgram:
    """``torch.export.export`` that says how to write a fake that is missing.

    It keeps calls of custom operators whose result is unused in branches and loops, too,
    which PyTorch would leave out. A program with ``torch.vmap`` is decomposed: what PyTorch
    records of it no file could call.

    Parameters
    ----------
    module, args, kwargs, **options
        As ``torch.export.export`` takes them.

    Raises
    ------
    Exception
        What PyTorch raises. When an operator has no fake implementation, a note
        (PEP 678) names it, its schema and library, and has one to paste.
    """
    with _hooks.advised(), _hooks.keep_exported_effects():
        program = _complete.without_transforms(torch.export.export(module, args, kwargs, **options))
    _complete.note_numbers(program)
    return program


def aot_compile(
    program: torch.export.ExportedProgram | _Path,
    output: _Path,
    *,
    op_libraries: Sequence[_Path] = (),
    bundle_op_libraries: bool = False,
    cpus: Sequence[str] = (),
    code_only: bool = False,
    freeze: bool = False,
    dtype: str | torch.dtype | None = None,
    target: str = "cpu",
    archs: Sequence[str] = (),
    retarget: str = "",
    **options: Any,
) -> str:
    """Compiles an exported program to a file.

    Parameters
    ----------
    program
        An ``ExportedProgram``, or the path of one that ``torch.export.save`` wrote.
    output
        The file to write; it appears under this name only when it is complete.
    op_libraries
        Shared libraries that register operators, loaded first.
    bundle_op_libraries
        Put `op_libraries` into the file, which loads them where an operator is missing.
    cpus
        Processors to compile for, as LLVM names them (``"x86-64-v3"``); the best that
        the machine is gets chosen when the file is loaded. Default: the option `cpu`.
    code_only
        Write a small file without the weights: they stay in `program`, which must be
        a path in the same folder.
    freeze
        Compute now what depends on weights alone, and put it into the file. Where
        `LoadedProgram.instance` replaces such a weight, it is computed again.
    dtype
        Convert the program first: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        Weights, inputs and what is computed of them change from one of these to it, and
        so do the dtypes that the program names.
    target, archs
        ``"cuda"``: make kernels of what is on CUDA, too, for these GPUs (``"sm_90"``;
        default ``"sm_80"``). No GPU is needed to compile.
    retarget
        Move the program to another device first: ``"cpu=cuda:0"``.
    **options
        The fields of `intarsia.options.Options`.

    Returns
    -------
    str
        `output`.

    Raises
    ------
    OptionError
        For an option that does not exist.
    LoadError
        When `program` cannot be read, or a library cannot be loaded.
    CompileError
        When the program cannot be compiled; the message names the operator.
    """
    for name, value in (("op_libraries", op_libraries), ("cpus", cpus), ("archs", archs)):
        if isinstance(value, str):
            raise OptionError(f"{name} must be a list of strings, not {value!r}")
    if archs and target != "cuda":
        raise OptionError('archs needs target="cuda"')
    if cpus and "cpu" in options:
        raise OptionError("cpus and cpu both name processors: give one of them")
    settings = Options.resolve(None, options)
    if settings.cudagraphs:
        raise OptionError("cudagraphs is for torch.compile: the calls of a file are not captured")
    if settings.products == "fastest":
        raise OptionError(
            "products='fastest' times products on this machine, for torch.compile; a file takes "
            "'auto', which tries both libraries on the machine that runs it, 'eager' or 'onednn'"
        )
    resolved = settings.for_graph(Path(output).name)
    libraries = [os.fspath(library) for library in op_libraries]
    rest = (
        libraries, resolved, list(cpus), bundle_op_libraries, code_only, freeze,
        target, list(archs), retarget,
    )  # fmt: skip
    if isinstance(program, torch.nn.Module):
        raise TypeError(
            "a module is exported first: aot_compile(intarsia.export(module, inputs), output)"
        )
    is_path = not isinstance(program, torch.export.ExportedProgram)
    if code_only and (not is_path or dtype is not None):
        raise OptionError(
            "code_only needs the path of a saved program, which keeps the weights as they are"
        )
    with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
        name = Path(output).stem
        source = os.fspath(program) if is_path else os.path.join(folder, f"{name}.pt2")
        if not is_path:
            program = _complete.without_transforms(program)
            _complete.note_numbers(program)
            with _hooks.advised():
                torch.export.save(program, source)
        for library in libraries:
            try:
                torch.ops.load_library(library)
            except OSError as error:
                raise LoadError(f"the operator library '{library}': {error}") from error
        numbers = ""
        is_file = os.path.isfile(source)  # a FIFO would wait
        if is_path and is_file:
            if code_only:
                numbers = _complete.lacking_numbers(source)
            else:
                source = _complete.completed(source, folder)
        if dtype is not None:
            converted = os.path.join(folder, f"{name}.{dtype}.pt2")
            _convert.convert(source, converted, str(dtype).removeprefix("torch."))
            source = converted
        if target == "cuda" and is_file and not code_only:
            source, notes = _triton.compiled(source, folder, list(archs) or ["sm_80"])
            for note in notes:
                log.warning("%s", note)
        extension().aot_compile(source, os.fspath(output), *rest, numbers)
    return os.fspath(output)


def load(path: _Path, *, op_libraries: Sequence[_Path] = (), verify: bool = False) -> LoadedProgram:
    """Loads a file that `aot_compile` or ``intarsia-compile`` wrote.

    Parameters
    ----------
    path
        The file. Its weights are mapped, not read.
    op_libraries
        Shared libraries that register operators, loaded first. Operators that are
        registered from Python need their module to be imported instead.
    verify
        Compare the checksums of the weights, too, which reads the whole file.

    Raises
    ------
    LoadError
        When the file is cut short or damaged, or an operator is not registered or
        has another schema; the message names it. Likewise a class of the program's
        inputs or outputs that is no registered pytree node in this process.
    """
    if isinstance(op_libraries, str):
        raise OptionError(f"op_libraries must be a list of paths, not {op_libraries!r}")
    program = extension().load(os.fspath(path), [os.fspath(x) for x in op_libraries], verify=verify)
    try:
        return LoadedProgram(program)
    except NotImplementedError as error:  # a structure that nobody has registered here
        raise LoadError(f"'{os.fspath(path)}': {error}") from error
    except Exception as error:
        raise LoadError(
            f"'{os.fspath(path)}': the structure of its inputs or outputs is damaged: {error}"
        ) from error


class LoadedProgram:
    """A compiled program, called like the module that was exported.

    Takes and returns the exported module's own structure of tuples, lists and
    dictionaries. Inference only. Threads may call it at the same time, except when
    the program writes a buffer.

    Attributes
    ----------
    plan_text : str
        The plan as a readable listing.
    call_count, kernel_count : int
        Operator calls and kernel launches in the plan.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self._in_spec = _read_spec(program.in_spec)
        self._out_spec = _read_spec(program.out_spec)
        # The usual structures, which need no pytree: tensors in, a tensor or a tuple out.
        self._plain_inputs = _plain_inputs(self._in_spec)
        self._single_output = self._out_spec is not None and self._out_spec.is_leaf()
        self._plain_output = (
            self._out_spec is not None and self._out_spec.type is tuple and _is_flat(self._out_spec)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program.

        Raises
        ------
        GuardError
            When an argument is missing or does not fit what was exported (structure,
            dtype, size, device, a constant); the message names it.
        ContractError
            When an operator's kernel breaks the promise of its fake implementation.
        """
        if len(args) == self._plain_inputs and not kwargs and all(map(_is_tensor, args)):
            inputs = list(args)
        else:
            inputs = self._flatten(args, kwargs)
        # Nothing is recorded for a backward; otherwise kernels see the grad mode that
        # the module would show them.
        if torch.is_grad_enabled() and any(map(_wants_gradient, inputs)):
            with torch.no_grad():
                outputs = self._program.run(inputs)
        else:
            outputs = self._program.run(inputs)
        if self._single_output:
            return outputs[0]
        if self._plain_output:
            return tuple(outputs)
        if self._out_spec is None:
            return outputs
        return pytree.tree_unflatten(outputs, self._out_spec)

    def instance(self, weights: Mapping[str, torch.Tensor] | None = None) -> LoadedProgram:
        """Another program on the same file: kernels and weights are shared.

        The weights are this program's, also those that were replaced in it.

        What the program writes (its buffers) starts as it is in the file.

        Parameters
        ----------
        weights
            Weights to replace, by their fully qualified names. A tensor's memory is
            shared when it has the strides that the program was compiled for.

        Raises
        ------
        GuardError
            For a name that does not exist, or a tensor of another dtype, size or device.
        """
        return LoadedProgram(self._program.instance(dict(weights or {})))

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters, buffers and constants by their fully qualified names."""
        return self._program.weights()

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if self._in_spec is None:
            return pytree.tree_leaves((args, kwargs))
        arguments_spec, keywords_spec = self._in_spec.children()
        expected = [] if keywords_spec.is_leaf() else list(keywords_spec.context or ())
        if set(expected) != set(kwargs):
            raise GuardError(
                f"the program was exported with keyword arguments {expected or 'none'}, "
                f"it was called with {list(kwargs) or 'none'}"
            )
        # Their order at export is that of the flat inputs.
        ordered = {name: kwargs[name] for name in expected}
        leaves, spec = pytree.tree_flatten((args, ordered))
        if spec == self._in_spec:
            return leaves
        if not _is_alike(spec, self._in_spec):
            count = arguments_spec.num_children
            hint = (
                f"it takes {count} positional argument{'s' * (count != 1)}, {len(args)} were given"
                if count != len(args)
                else f"it takes {_describe(self._in_spec)}, it was given {_describe(spec)}"
            )
            raise GuardError(f"the arguments do not have the structure that was exported: {hint}")
        # Dictionaries with their keys in another order.
        return self._in_spec.flatten_up_to((args, ordered))

    @property
    def plan_text(self) -> str:
        return self._program.plan_text

    @property
    def call_count(self) -> int:
        return self._program.call_count

    @property
    def kernel_count(self) -> int:
        return self._program.kernel_count

    def __repr__(self) -> str:
        return (
            f"<intarsia.LoadedProgram: {self.call_count} calls, {self.kernel_count} kernels, "
            f"inputs {', '.join(self._program.input_names) or 'none'}>"
        )


def _describe(spec: pytree.TreeSpec) -> str:
    """A structure as a user would write it: ``(*, {'a': *})``, an ``*`` for a leaf."""
    if spec.is_leaf():
        return "*"
    children = [_describe(child) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(children)}{',' if len(children) == 1 else ''})"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is dict:
        members = zip(spec.context, children, strict=True)
        return f"{{{', '.join(f'{key!r}: {child}' for key, child in members)}}}"
    return f"{spec.type.__name__}({', '.join(children)})"


def _is_alike(given: pytree.TreeSpec, expected: pytree.TreeSpec) -> bool:
    """Whether structures are equal, but for the order of the keys of a ``dict``."""
    ours, theirs = expected.children(), given.children()
    if len(ours) != len(theirs) or given.type is not expected.type:
        return False
    if expected.type is dict:
        members = dict(zip(given.context, theirs, strict=True))
        if set(members) != set(expected.context):
            return False
        theirs = [members[key] for key in expected.context]
    elif given.context != expected.context:
        return False
    return all(map(_is_alike, theirs, ours))


def _is_flat(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and all(child.is_leaf() for child in spec.children())


def _plain_inputs(spec: pytree.TreeSpec | None) -> int:
    """How many positional arguments there are, if all are leaves; else -1."""
    if spec is None:
        return -1
    arguments, keywords = spec.children()
    flat = _is_flat(arguments) and keywords.num_children == 0
    return arguments.num_children if flat else -1


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _read_spec(text: str) -> pytree.TreeSpec | None:
    return pytree.treespec_loads(text) if text else None
