# ===- options.py - What the user can choose ---------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The options of ``torch.compile(..., backend="intarsia", options={...})``.

The same names are the keyword arguments of `intarsia.aot_compile` and, with
dashes, the flags of ``intarsia-compile``, which has no `features`, `cudagraphs`
and `emulate`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intarsia.errors import OptionError

__all__ = ["DEBUG_VARIABLE", "Options"]

#: The one environment variable: a folder in which every compiled graph leaves the
#: IR of each stage, and the debug log.
DEBUG_VARIABLE = "INTARSIA_DEBUG"

#: For tests: what `Options.emulate` is by default.
EMULATE_VARIABLE = "INTARSIA_EMULATE"

#: torch.compile's modes, and what each sets (docs/torch-compile.md).
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"products": "fastest"},
    "max-autotune-no-cudagraphs": {"products": "fastest"},
}

_CHOICES = {
    "numerics": ("eager", "fused"),
    "products": ("auto", "eager", "onednn", "fastest"),
    "emulate": ("", "cuda"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to compile.

    Attributes
    ----------
    fuse : bool
        Fuse what surrounds the opaque calls into kernels. Off, every node is one
        call of its operator: slower, and the reference for everything else.
    numerics : {"eager", "fused"}
        ``"eager"`` rounds low-precision values where eager does; ``"fused"`` keeps
        float32 between the implicit casts of one kernel.
    products : {"auto", "eager", "onednn", "fastest"}
        Whose library computes products of float32 matrices on the CPU; their last bits
        differ. ``"eager"``: PyTorch's BLAS, mostly MKL. ``"onednn"``: oneDNN, for all that
        are large enough to be worth its call. ``"auto"``: the same on a processor where a
        trial, once a process, finds oneDNN faster by a quarter; else as eager.
        ``"fastest"``: also times each product of known sizes when it is compiled, and
        results may differ from one compilation to the next; ``mode="max-autotune"`` sets
        it, not for files.
    cudagraphs : bool
        On CUDA, capture graphs and replay them. ``mode="reduce-overhead"`` sets it.
    strict : bool
        A kernel whose result has other strides than its fake implementation says
        is an error instead of a warning and a copy.
    cpu : str
        The CPU to generate code for, as LLVM names it; ``"native"`` is this one.
    features : str
        More LLVM target features, such as ``"+avx2,-avx512f"``.
    emulate : {"", "cuda"}
        For tests: ``"cuda"`` makes the kernels of tensors on the CPU of the code that
        CUDA kernels have, in which every thread of a GPU is emulated. Slow. Default:
        ``$INTARSIA_EMULATE``.
    dump_dir : str or None
        A folder for the IR after each stage. Default: a new folder a graph below
        ``$INTARSIA_DEBUG`` when that is set.
    """

    fuse: bool = True
    numerics: str = "eager"
    products: str = "auto"
    cudagraphs: bool = False
    strict: bool = False
    cpu: str = "native"
    features: str = ""
    emulate: str = dataclasses.field(default_factory=lambda: os.environ.get(EMULATE_VARIABLE, ""))
    dump_dir: str | None = None

    @classmethod
    def resolve(cls, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Options:
        """Checks what the user gave to ``torch.compile``.

        Raises
        ------
        OptionError
            For an unknown mode or option (naming the nearest one that exists) or a
            value of the wrong type.
        """
        if mode is not None and mode not in _MODES:
            raise OptionError(
                f"mode {mode!r} does not exist{_nearest(mode, _MODES)}; "
                f"modes are {', '.join(map(repr, _MODES))}"
            )
        if options is not None and not isinstance(options, Mapping):
            raise OptionError(f"options must be a dict, not {type(options).__name__}")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        chosen = {**_MODES[mode or "default"], **(options or {})}
        for name, value in chosen.items():
            if name not in fields:
                raise OptionError(
                    f"option {name!r} does not exist{_as_mode(name) or _nearest(name, fields)}; "
                    f"options are {', '.join(map(repr, fields))}"
                )
            default = fields[name].default
            if name == "dump_dir":
                if value is not None and not isinstance(value, (str, os.PathLike)):
                    raise _wrong_type(name, "a path", value)
                chosen[name] = None if value is None else os.fspath(value)
            elif isinstance(default, bool):
                if not isinstance(value, bool):
                    raise _wrong_type(name, "True or False", value)
            elif not isinstance(value, str):
                raise _wrong_type(name, "a string", value)
        for name, choices in _CHOICES.items():
            if chosen.get(name, choices[0]) not in choices:
                raise OptionError(
                    f"option {name!r} must be one of {', '.join(map(repr, choices))}, "
                    f"not {chosen[name]!r}"
                )
        return cls(**chosen)

    def dump_root(self) -> str | None:
        """The folder that takes a folder of stages for each graph."""
        return self.dump_dir or os.environ.get(DEBUG_VARIABLE) or None

    def for_graph(self, name: str) -> dict[str, Any]:
        """The options of one graph's compilation, as the extension takes them.

        The dump folder is this graph's own: the folder that the user named itself
        holds one folder a graph.

        Raises
        ------
        OptionError
            When the folder cannot be written.
        """
        result = dataclasses.asdict(self)
        if self.products == "fastest":  # of what was not timed
            result["products"] = "auto"
        root = self.dump_root()
        if root:
            folder = Path(root).expanduser().resolve() / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                given = "option 'dump_dir'" if self.dump_dir else f"variable {DEBUG_VARIABLE}"
                raise OptionError(
                    f"{given}: the folder {root!r} cannot be written: {error.strerror}"
                ) from error
            result["dump_dir"] = str(folder)
        else:
            result["dump_dir"] = ""
        return result


def _as_mode(name: str) -> str:
    mode = str(name).replace("_", "-")
    return f" (it is a mode: mode={mode!r})" if mode in _MODES else ""


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _wrong_type(name: str, wanted: str, value: Any) -> OptionError:
    return OptionError(f"option {name!r} must be {wanted}, not {value!r}")
