# ===- _recording.py - What was compiled ------------------------------- ===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Tells those who asked what was compiled, or came out of PyTorch's cache."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Compilation", "record", "record_compilations"]


@dataclass(frozen=True)
class Compilation:
    """One compiled graph, as `record_compilations` reports it.

    Attributes
    ----------
    name : str
        ``graph0_inference`` and the like; also the name of its dump folder.
    kind : {"inference", "forward", "backward"}
    seconds : float
        From the graph that AOTAutograd hands over to something callable.
    program : intarsia._C.Program
        The compiled program: ``plan_text``, ``timings``, ``call_count``,
        ``kernel_count``.
    dump_dir : str
        Where the IR of each stage was written; empty when it was not.
    cached : bool
        The program came out of PyTorch's cache: nothing was traced or compiled.
    """

    name: str
    kind: str
    seconds: float
    program: Any
    dump_dir: str
    cached: bool = False


_recorders: list[list[Compilation]] = []
_recorders_lock = threading.Lock()


@contextlib.contextmanager
def record_compilations() -> Iterator[list[Compilation]]:
    """Collects every graph that is compiled while the context is active.

    Yields
    ------
    list of Compilation
        Filled as graphs are compiled, in whichever thread.
    """
    recorder: list[Compilation] = []
    with _recorders_lock:
        _recorders.append(recorder)
    try:
        yield recorder
    finally:
        with _recorders_lock:
            # By identity: two recorders with equal contents are not the same.
            _recorders[:] = [r for r in _recorders if r is not recorder]


def record(compilation: Compilation) -> None:
    """Tells all recorders that are active, in whichever thread."""
    with _recorders_lock:
        for recorder in _recorders:
            recorder.append(compilation)
