# ===- errors.py - What Intarsia raises -------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The exceptions of Intarsia, all under `IntarsiaError`.

An exception that a kernel raises while a compiled program runs keeps its own type
and text; a note (PEP 678) names the operator and the user's source line.
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "ContractError",
    "GuardError",
    "IndexOutOfRangeError",
    "IntarsiaError",
    "LoadError",
    "OptionError",
    "OverlapError",
]


class IntarsiaError(RuntimeError):
    """Base of everything that Intarsia itself raises."""


class OptionError(IntarsiaError, ValueError):
    """An option or mode of ``torch.compile`` that does not exist or does not fit."""


class CompileError(IntarsiaError):
    """A graph cannot be compiled; the message names the operator and source line."""


class ContractError(IntarsiaError):
    """A kernel did not do what its registration promises.

    Its result has another dtype, device, rank or size than its fake
    implementation says, or aliases an input that the schema does not name.
    """


class GuardError(IntarsiaError, ValueError):
    """An input does not fit what the program was compiled for."""


class OverlapError(GuardError):
    """Inputs share memory, one is written, and the program was compiled for others."""


class IndexOutOfRangeError(IntarsiaError, IndexError):
    """An index inside a compiled kernel is out of range, as eager's IndexError."""


class LoadError(IntarsiaError):
    """A file cannot be loaded: cut short, damaged, or an operator is missing."""
