# ===- _process.py - Python processes of the offline compiler ----------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What the Python processes that ``intarsia-compile`` starts have in common."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable

import torch

__all__ = ["run"]


def _register(modules: Iterable[str]) -> None:
    """Imports modules, and loads libraries of operators (``.so``)."""
    sys.path.insert(0, os.getcwd())
    for module in modules:
        if module.endswith(".so"):
            torch.ops.load_library(module)
            continue
        if module.endswith(".py"):
            name = os.path.basename(module).removesuffix(".py")
            sys.exit(f"{module} is a file: name the module, {name}, in the folder of this file")
        try:
            importlib.import_module(module)
        except Exception as error:
            sys.exit(_why(module, error))


def _why(module: str, error: Exception) -> str:
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing == module.partition(".")[0]:
        return f"there is no module {module} in the working folder or the interpreter's path"
    text = "".join(traceback.format_exception_only(error)).strip()
    last = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):  # its text has the place
        return f"{module}: {text}"
    return f"{module}: {text} ({last.filename}:{last.lineno} in {last.name})"


def run(modules: Iterable[str], task: Callable[[], None]) -> None:
    """Does it with these modules registered, and exits; an error is its message alone."""
    _register(modules)
    try:
        task()
    except Exception as error:
        sys.exit(str(error))
    sys.exit(0)
