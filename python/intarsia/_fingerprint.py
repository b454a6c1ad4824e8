# ===- _fingerprint.py - When a compiled graph may be used again --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""A hash of everything that a compiled graph depends on beside the graph itself.

PyTorch's cache of AOTAutograd results hashes the graph, its inputs and PyTorch's
settings. Operators appear there by their names alone, but what AOTAutograd makes of
them also depends on how they are registered: another schema, fake or backward formula
gives another compiled graph. And it depends on this compiler, its options and the
processor. `fingerprint` covers those.

Python functions count by their bytecode, constants, defaults, and, transitively, by
the globals and closure cells that they name and the modules that they import when they
run; objects by their class and their contents. What cannot be compared between processes
(an object without a stable representation) keeps all graphs out of the cache whose tracing
calls the operator: too few hits are slow, one too many is wrong. Where a graph can reach
nobody's code but PyTorch's (`may_call_custom_code`), no custom operator counts.
"""

from __future__ import annotations

import abc
import copyreg
import dis
import functools
import gc
import hashlib
import inspect
import json
import logging
import os
import re
import struct
import sys
import types
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from intarsia._extension import extension
from intarsia._namespaces import SHIPPED, custom_operators, is_pytorchs

__all__ = ["Hasher", "fingerprint", "may_call_custom_code"]

log = logging.getLogger("intarsia")

# Modules whose functions change only with their version, which is hashed.
_VERSIONED = ("torch", "numpy", "sympy", "triton", "builtins", "intarsia")


def fingerprint(options: Mapping[str, Any], custom_code: bool = True) -> tuple[str, frozenset[str]]:
    """Hexadecimal digits for this compiler, `options`, and all custom operators.

    All operators count, not those of one graph: a backward formula, an autocast rule
    or a decomposition may call others that the graph does not show. None does, without
    `custom_code`; then only what Python code has put in the place of PyTorch's kernels.

    Returns
    -------
    digest : str
    incomparable : frozenset of str
        Operators ("ns::op") that are not in the digest. Tracing is determined by what is,
        up to the first call of one of these: a graph whose tracing calls none of them is
        the same in each process with this digest, and no other graph may be kept.
    """
    hasher = Hasher()
    incomparable = set()
    hasher.add(_compiler(), torch.__version__, torch.version.git_version)
    hasher.add(json.dumps(dict(options), sort_keys=True))
    for name in sorted(custom_operators()) if custom_code else ():
        # Its own: what two operators share is to be seen with each.
        own = Hasher(hasher)
        try:
            own.add_operator(name)
        except RecursionError:
            own.make_unique(f"what {name} refers to")
        if own.is_unique:
            incomparable.add(name.partition(".")[0])
        else:
            hasher.add(own.digest())
    hasher.add(sorted(incomparable))
    for override in _overrides():
        hasher.make_unique(override)
    for path in sorted({*torch.ops.loaded_libraries, *_extension_modules()}):
        hasher.add(path, *_file_identity(path))
    return hasher.digest(), frozenset(incomparable)


def may_call_custom_code(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether tracing Dynamo's graph can reach code that is not PyTorch's own.

    An operator of PyTorch's calls only such, in its formulas and decompositions too. A
    higher-order operator may be given any function, and a tensor subclass is one.
    """
    for module in gm.modules():
        if not isinstance(module, fx.GraphModule):
            return True
        attributes = vars(module).values()
        if any(isinstance(a, torch.Tensor) and not _is_plain(a) for a in attributes):
            return True
        tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if not all(map(_is_plain, tensors)):
            return True
        if any(n.op == "call_function" and not _is_pytorchs(n.target) for n in module.graph.nodes):
            return True
    return not all(map(_is_plain, inputs))


def _is_pytorchs(function: Any) -> bool:
    if isinstance(function, torch._ops.OpOverload):
        return is_pytorchs(function.name(), SHIPPED)
    if isinstance(function, torch._ops.OpOverloadPacket):
        return all(_is_pytorchs(getattr(function, name)) for name in function.overloads())
    if isinstance(function, torch._ops.OperatorBase):
        return False
    module = getattr(function, "__module__", None)
    if module is None:  # a method of a builtin class
        module = type(getattr(function, "__self__", function)).__module__
    return _is_versioned(module)


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return value is None or isinstance(value, (bool, int, float, *_SYMBOLIC))
    own = type(value).__module__.partition(".")[0] == "torch"
    return own and not is_traceable_wrapper_subclass(value)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _overrides() -> Iterator[str]:
    """What Python code outside PyTorch has registered for PyTorch's own operators, of what
    is traced. Only the dispatcher refers to such a function."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        alive = finalizer.peek()
        library = alive[0] if alive else None
        if not isinstance(library, torch.library.Library) or library.ns != "aten":
            continue
        if library.m is None:  # destroyed
            continue
        traced = sorted(i for i in library._op_impls if i.rpartition("/")[2] not in _CALLED)
        if not traced or library in _own_libraries:
            continue
        _, name, key = traced[0].split("/")
        places = _REGISTRATION.findall(torch._C._dispatch_dump(f"aten::{name}"))
        # PyTorch's functions that register for a caller are not the place of its own.
        own = [
            Path(file).is_relative_to(_TORCH) and Path(file) != _TORCH / "library.py"
            for other, file in places
            if other == key
        ]
        if own and all(own):
            _own_libraries.add(library)
        else:
            yield f"the {key} registration of aten::{name}"


_TORCH = Path(torch.__file__).parent

_own_libraries: weakref.WeakSet[torch.library.Library] = weakref.WeakSet()


@functools.cache
def _compiler() -> str:
    """This build of the compiler on this machine."""
    here = Path(__file__).resolve().parent
    # In a build folder the Python files are links to the sources, the extension is not.
    binary = Path(extension().__file__).resolve()
    binaries = [binary, *binary.parents[2].glob("lib/libIntarsia*.so")]
    files = sorted({*here.glob("*.py"), *binaries})
    return repr([(file.name, *_file_identity(str(file))) for file in files]) + (
        extension().host_description()
    )


def _file_identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (-1, -1)
    return (status.st_size, status.st_mtime_ns)


@functools.cache
def _links_torch(path: str, size: int, time: int) -> bool:
    """Whether a shared object may register operators: it names PyTorch's libraries or
    symbols."""
    try:
        names = _dynamic_names(path)
    except (OSError, struct.error, IndexError):
        return True
    return any(name in names for name in (b"libtorch", b"libc10", b"N3c10", b"N5torch"))


def _dynamic_names(path: str) -> bytes:
    """The strings of a 64-bit ELF file's dynamic section: what it needs and the names of
    its symbols. The file itself may be half a gigabyte."""
    with open(path, "rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise IndexError("not a 64-bit little-endian ELF file")
        (start,) = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        file.seek(start)
        table = file.read(size * count)
        sections = [struct.unpack_from("<IIQQQQIIQQ", table, i * size) for i in range(count)]
        link = next((s[6] for s in sections if s[1] == _SHT_DYNAMIC), count)
        _, _, _, _, offset, length, *_ = sections[link]
        file.seek(offset)
        return file.read(length)


_SHT_DYNAMIC = 6


def _extension_modules() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if (
            isinstance(path, str)
            and path.endswith(".so")
            and not _is_versioned(name)
            and _links_torch(path, *_file_identity(path))
        ):
            yield path


# --- Operators ------------------------------------------------------------------

# "Autograd[alias]: registered at FILE:LINE :: ..." in the dispatcher's own listing.
_REGISTRATION = re.compile(r"^(\w+)(?:\[alias\])?: registered at (.+):\d+ ::", re.MULTILINE)

# Kernels that are called, never traced: what they do is no part of a graph.
_CALLED = frozenset({"CPU", "CUDA", "CompositeExplicitAutograd"})


def _autograd_formulas() -> dict[str, list[Any]]:
    """What `torch.library.register_autograd` was given, by operator's name. For one that is not
    a `custom_op` only the dispatcher refers to it, by a closure of PyTorch's."""
    result: dict[str, list[Any]] = {}
    for function in gc.get_objects():
        # Not isinstance, which asks a weak proxy's referent.
        if (
            type(function) is types.FunctionType
            and function.__qualname__ == "make_autograd_impl.<locals>.autograd_impl"
        ):
            cells = inspect.getclosurevars(function).nonlocals
            op = inspect.getclosurevars(cells["redispatch_no_grad"]).nonlocals.get("op")
            if isinstance(op, torch._ops.OpOverload):
                result.setdefault(op.name(), []).append(cells["Generated"].backward)
    return result


# --- Python values --------------------------------------------------------------


class Hasher:
    """Hashes values so that equal digests in two processes mean equal behaviour.

    Attributes
    ----------
    is_unique : bool
        Whether something cannot be compared.
    """

    def __init__(self, parent: Hasher | None = None) -> None:
        self.is_unique = False
        self._parent = parent
        self._hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._keep: list[Any] = []
        self._visits: set[tuple[int, tuple[str, ...]]] = set()

    @functools.cached_property
    def _formulas(self) -> dict[Any, list[Any]]:
        # Walks all objects: once for all operators.
        return _autograd_formulas() if self._parent is None else self._parent._formulas

    def digest(self) -> str:
        return self._hash.hexdigest()

    def make_unique(self, reason: str) -> None:
        """No other process, nor this one again, gets this digest."""
        log.info("%s can't be compared: graphs that depend on it are not cached", reason)
        self.is_unique = True
        self._write("unique", uuid.uuid4().hex)

    def add(self, *values: Any) -> None:
        for value in values:
            self._add(value)

    def add_operator(self, name: str) -> None:
        """Everything about an operator that decides how it is traced."""
        from torch._library.custom_ops import OPDEFS
        from torch._library.simple_registry import singleton

        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        self.add(name, str(op._schema), sorted(map(str, op.tags)))
        definition = OPDEFS.get(name)
        if definition is not None:
            self.add(
                definition._abstract_fn,
                definition._setup_context_fn,
                definition._backward_fn,
                definition._vmap_fn,
                definition._autocast_dtype,
                definition._torch_dispatch_fns,
            )
        entry = singleton.get(name)
        fakes = entry.fake_impl.kernels if entry is not None else []
        if entry is not None:
            self.add([kernel.func for kernel in fakes], entry.torch_dispatch_rules._data)
            self.add(str(entry.effect.effect))
        self.add({str(key): kernel for key, kernel in op.py_kernels.items()})
        for key, file in _REGISTRATION.findall(torch._C._dispatch_dump(name)):
            self.add(key)
            if key in _CALLED or not file.endswith(".py") or definition is not None:
                continue  # C++ counts with its library's file
            if key == "Meta" and fakes:
                continue
            if key == "Autograd" and op.name() in self._formulas:
                self.add(*self._formulas[op.name()])
                continue
            self.make_unique(f"the {key} registration of {name}")

    def _write(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def _add(self, value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._write(type(value).__name__, repr(value))
            return
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            self._write("torch", repr(value))
            return
        if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            self._write("operator", str(value))
            return
        number = self._seen.get(id(value))
        if number is not None:
            self._write("again", str(number))
            return
        self._seen[id(value)] = len(self._seen)
        self._keep.append(value)  # so that no other object gets this id
        self._write(type(value).__qualname__)
        self._add_object(value)

    def _add_object(self, value: Any) -> None:
        if type(value) in (tuple, list):
            self._write(str(len(value)))
            self.add(*value)
        elif type(value) in (dict, types.MappingProxyType):
            self._write(str(len(value)))
            for key, item in sorted(value.items(), key=lambda pair: repr(pair[0])):
                self.add(key, item)
        elif type(value) in (set, frozenset):
            self.add(*sorted(value, key=repr))
        elif isinstance(value, types.CodeType):
            self._write(value.co_code, str(value.co_flags))
            self.add(value.co_consts, value.co_names, value.co_varnames, value.co_freevars)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, (types.MethodType, classmethod, staticmethod)):
            self.add(value.__func__, getattr(value, "__self__", None))
        elif isinstance(value, property):
            self.add(value.fget, value.fset, value.fdel)
        elif isinstance(value, types.ModuleType):
            self._write(value.__name__)
            if not _is_versioned(value.__name__) and (file := getattr(value, "__file__", None)):
                self._write(repr(_file_identity(file)))
        elif isinstance(value, type):
            self._write(value.__module__, value.__qualname__)
            if not _is_versioned(value.__module__):
                self.add(list(value.__bases__))
                self.add({k: v for k, v in vars(value).items() if _is_behaviour(v)})
        elif isinstance(value, types.BuiltinFunctionType):
            self._write(str(value.__module__), value.__qualname__)
            self.add(value.__self__)
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, torch._library.custom_ops.CustomOpDef):
            self._write(value._qualname)  # hashed by itself
        elif isinstance(value, torch.library.Library):
            self._write(value.ns, value.kind)
        elif type(value).__module__ == "triton.runtime.jit" and hasattr(value, "cache_key"):
            self._add_triton(value)
        elif type(value).__module__.partition(".")[0] == "torch" and callable(value):
            # Wrappers of PyTorch's around functions of the user's.
            self.add(vars(value) if hasattr(value, "__dict__") else None)
        else:
            self._add_instance(value)

    def _add_instance(self, value: Any) -> None:
        """An object by its class, and by what would make it anew. Pickled bytes have the
        names of classes and functions, and not what these do."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            parts = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:
            self.make_unique(f"an object of type {type(value).__qualname__}")
            return
        self.add(type(value))
        if not isinstance(parts, str):
            # The last two, if there, are iterators over what a container holds.
            self.add(*parts[:3], *(list(part) for part in parts[3:5] if part is not None))
        elif hasattr(value, "__wrapped__"):  # functools.cache
            self.add(parts, value.__wrapped__)
        elif _is_versioned(type(value).__module__):
            self.add(parts)
        else:
            self.make_unique(f"the object {parts}")

    def _add_function(self, function: types.FunctionType) -> None:
        self._write(function.__module__ or "", function.__qualname__)
        names: list[str] = []
        if not _is_versioned(function.__module__ or ""):
            self.add(function.__code__)
            names = sorted(_names(function.__code__))
            for name in names:
                if name in function.__globals__:
                    self._write(name)
                    self._add_named(function.__globals__[name], names)
            for name, attributes in _imports(function):
                self._write(name)
                if not _is_versioned(name):
                    module = sys.modules.get(name)
                    if not all(hasattr(module, attribute) for attribute in attributes):
                        self.make_unique(f"the module {name}, which is not imported yet,")
                    self._add_named(module, names)
        self.add(function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self._add_named(cell.cell_contents, names)
            except ValueError:  # not filled yet
                self._write("empty")

    def _add_named(self, value: Any, names: Sequence[str]) -> None:
        """What a function names; of a module, also what its names may be in that."""
        self._add(value)
        if not isinstance(value, types.ModuleType) or _is_versioned(value.__name__):
            return
        inner = [name for name in names if name in vars(value)]
        if not inner or (visit := (id(value), tuple(inner))) in self._visits:
            return
        self._visits.add(visit)
        for name in inner:
            self._write(name)
            self._add_named(vars(value)[name], names)

    def _add_triton(self, function: Any) -> None:
        """A kernel, or what kernels call, as Triton's own cache knows it: by its source, that
        of the functions that it calls, and the globals that it names."""
        import triton
        from triton._C.libtriton import get_cache_invalidating_env_vars

        self._write(triton.__version__, function.fn.__module__, function.fn.__qualname__)
        self.add(get_cache_invalidating_env_vars())
        self.add({k: v for k, v in os.environ.items() if k in _TRITON_SETTINGS})
        if _is_versioned(function.fn.__module__):
            return
        self._write(function.cache_key)
        self.add(function.fn.__defaults__, function.fn.__kwdefaults__)
        self.add([value for value, _ in function.used_global_vals.values()])
        for name in ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline"):
            self.add(getattr(function, name, None))
        self.add(getattr(function, "pre_run_hooks", None))

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        self.add(tensor.dtype, tuple(tensor.shape))
        if tensor.device.type != "cpu" or tensor.numel() > 1 << 20:
            self.make_unique("a large tensor")
            return
        self._write(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())


#: What changes the code that Triton makes, beside what it says itself.
_TRITON_SETTINGS = ("TRITON_DEFAULT_FP_FUSION", "TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH")


def _is_versioned(module: str) -> bool:
    root = module.partition(".")[0]
    return root in _VERSIONED or root in sys.stdlib_module_names


def _is_behaviour(value: Any) -> bool:
    """Of a class's attributes, those that are not the interpreter's own."""
    return not isinstance(value, _INTERPRETERS)


_INTERPRETERS = (
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType),
    type(vars(abc.ABC)["_abc_impl"]),
)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    return {name for each in _codes(code) for name in each.co_names}


def _imports(function: types.FunctionType) -> list[tuple[str, list[str]]]:
    """The modules that a function imports when it runs, and what it takes from each."""
    package = (function.__globals__.get("__package__") or "").split(".")
    found = []
    for code in _codes(function.__code__):
        # The level and the names are the two constants before.
        steps = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                parents = package[: len(package) - level.argval + 1] if level.argval else []
                name = ".".join([*parents, *filter(None, [step.argval])])
                found.append((name, [n for n in names.argval or () if n != "*"] or ["__name__"]))
    return found
