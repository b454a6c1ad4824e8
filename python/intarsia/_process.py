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
from collections.abc import Callable, Iterable

import torch

__all__ = ["register", "run"]


def register(modules: Iterable[str]) -> None:
    """Imports modules, and loads libraries of operators (``.so``)."""
    sys.path.insert(0, os.getcwd())
    for module in modules:
        if module.endswith(".so"):
            torch.ops.load_library(module)
        else:
            importlib.import_module(module)


def run(modules: Iterable[str], task: Callable[[], None]) -> None:
    """Does it with these modules registered, and exits; an error is its message alone."""
    try:
        register(modules)
        task()
    except Exception as error:
        sys.exit(str(error))
    sys.exit(0)
