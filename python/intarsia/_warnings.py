# ===- _warnings.py - Warnings that point at the user's line ------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Warnings whose place is a line of the user's, not one of PyTorch's or of ours."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from types import FrameType

import torch

__all__ = ["warn"]

_OTHERS = (
    *(os.path.dirname(path) + os.sep for path in (torch.__file__, __file__)),
    contextlib.__file__,
)


def warn(message: str) -> None:
    """A ``UserWarning`` at the innermost frame that is the user's."""
    frame: FrameType | None = sys._getframe().f_back
    level = 2
    while frame is not None and not _is_users(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level if frame is not None else 2)


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith("<"):  # generated, or typed in
        return frame.f_globals.get("__name__") == "__main__"
    return not file.startswith(_OTHERS)
