# ===- logs/__init__.py - What TORCH_LOGS can show ---------------------- ===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What a compilation leaves behind, in PyTorch's log.

``TORCH_LOGS="intarsia"`` writes a line a graph. By name, one can see

- ``intarsia.logs.graph``: the graph that AOTAutograd hands over;
- ``intarsia.logs.fused``: the graph with its kernels;
- ``intarsia.logs.plan``: what will run, one line a step;
- ``intarsia.logs.kernels``: the code of the kernels;
- ``intarsia.logs.perf``: what each stage of the compilation took;

``TORCH_LOGS="intarsia.logs.plan"`` or ``torch._logging.set_logs(modules=
{"intarsia.logs.plan": logging.INFO})`` shows one of them, ``"+intarsia"`` all.

Each is a module and its logger: PyTorch reads the variable before any backend can
register artefacts of its own, and takes the names of modules.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["show", "stages", "stages_wanted"]

#: The files of a folder of stages that have a logger.
_STAGES = {"graph": "imported.mlir", "fused": "fused.mlir", "kernels": "kernels.mlir"}


_all = logging.getLogger(__name__)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(f"{__name__}.{name}")


def _is_wanted(name: str) -> bool:
    """Whether it was named itself, or everything is to be shown."""
    logger = _logger(name)
    if logger.isEnabledFor(logging.DEBUG):
        return True
    # Beside "intarsia", which gives its level to all below, it takes a +.
    return logger.isEnabledFor(logging.INFO) and not _all.isEnabledFor(logging.INFO)


def _write(name: str, *message: Any) -> None:
    logger = _logger(name)
    level = logging.DEBUG if logger.isEnabledFor(logging.DEBUG) else logging.INFO
    logger.log(level, *message)


def stages_wanted() -> bool:
    """Whether something is to be shown that only compiling makes."""
    return any(map(_is_wanted, _STAGES))


@contextlib.contextmanager
def stages(options: Mapping[str, Any]) -> Iterator[str]:
    """The folder for the stages of a compilation: the user's, or one to read from."""
    if options["dump_dir"] or not stages_wanted():
        yield options["dump_dir"]
        return
    with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
        yield folder


def show(name: str, program: Any, folder: str = "") -> None:
    """Writes what is wanted of the graph `name` to the log."""
    for stage, file in _STAGES.items():
        path = Path(folder, file)
        if folder and _is_wanted(stage) and path.exists():
            _write(stage, "%s: %s\n%s", name, stage, path.read_text())
    if _is_wanted("plan"):
        _write("plan", "%s: plan\n%s", name, program.plan_text)
    if _is_wanted("perf"):
        times = ", ".join(f"{stage} {1e3 * s:.1f} ms" for stage, s in program.timings.items())
        _write("perf", "%s: %s", name, times)
