# ===- _extension.py - Loading the compiled half ------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The extension module, or an error that says why it cannot be loaded."""

from __future__ import annotations

from typing import Any

import torch  # noqa: F401  (its libraries must be in the process first)

from intarsia.errors import LoadError


def extension() -> Any:
    """`intarsia._C`.

    Raises
    ------
    LoadError
        When it was not built, or was built for another PyTorch.
    """
    try:
        from intarsia import _C
    except ImportError as error:
        # The reason is beneath nanobind's "error while initializing".
        reason = error.__cause__ or error
        raise LoadError(f"Intarsia's extension module cannot be loaded: {reason}") from error
    return _C


def restore(
    plan: str, kernels: bytes, objects: list[Any], cuda: list[tuple[str, bool, bytes]]
) -> Any:
    """A pickled `intarsia._C.Program`: nanobind's own functions can't be pickled."""
    return extension().restore(plan, kernels, objects, cuda)
