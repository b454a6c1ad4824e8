# ===- __init__.py - The intarsia package -------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Intarsia compiles PyTorch graphs in which some nodes are other people's kernels.

``torch.compile(model, backend="intarsia")`` needs no import of this package. It
offers, beside the backend:

- `aot_compile`, `load`: an exported program as one file, and back;
- `record_compilations`: what was compiled, how long it took, the plans;
- `IntarsiaError` and its subclasses: what Intarsia raises.

Logging goes to the logger ``intarsia`` (`intarsia.logs`); the environment variable
``INTARSIA_DEBUG`` names a folder in which every compiled graph leaves the IR of each
stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.errors import (
    CompileError,
    ContractError,
    GuardError,
    IndexOutOfRangeError,
    IntarsiaError,
    LoadError,
    OptionError,
)

if TYPE_CHECKING:
    from intarsia._recording import Compilation, record_compilations
    from intarsia.artifact import LoadedProgram, aot_compile, export, load
    from intarsia.options import Options

__all__ = [
    "Compilation",
    "CompileError",
    "ContractError",
    "GuardError",
    "IndexOutOfRangeError",
    "IntarsiaError",
    "LoadError",
    "LoadedProgram",
    "OptionError",
    "Options",
    "aot_compile",
    "export",
    "load",
    "record_compilations",
]

__version__ = "0.1.0"


def _refuse_subinterpreters() -> None:
    """PyTorch's import hangs in a subinterpreter; this says so before anyone waits for it."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "intarsia cannot be imported in a subinterpreter, because PyTorch cannot: "
                "import it in the main interpreter, or start another process"
            )
        return


_refuse_subinterpreters()

# Imported on first use: the errors alone need neither torch nor the compiler.
_LAZY = {
    "Compilation": "intarsia._recording",
    "LoadedProgram": "intarsia.artifact",
    "Options": "intarsia.options",
    "aot_compile": "intarsia.artifact",
    "export": "intarsia.artifact",
    "load": "intarsia.artifact",
    "record_compilations": "intarsia._recording",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'intarsia' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
