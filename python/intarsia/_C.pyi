# ===- _C.pyi - Types of the extension module ----------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The compiler and the runtime of Intarsia; see ``_C.cpp``."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

class Program:
    """A compiled graph or a loaded artifact.

    Calling it takes one list of inputs, which it empties, and returns the list of
    outputs. Many threads may call it at once; the GIL is released.
    """

    def __call__(self, args: list[Any]) -> list[Any]: ...
    def run(self, args: list[Any]) -> list[Any]: ...
    def instance(self, weights: dict[str, Any]) -> Program: ...
    def weights(self) -> dict[str, Any]: ...
    def profile(
        self, args: list[Any]
    ) -> tuple[list[Any], list[tuple[str, int, str, str, int, float]]]:
        """Runs once; returns (outputs, steps).

        A step is (function, index, operator or kernel, source line, calls, seconds).
        """

    def set_first_context(self, make: Callable[[], AbstractContextManager[None]]) -> None: ...
    @property
    def plan_text(self) -> str: ...
    def capture_obstacle(self, device: str) -> str: ...
    @property
    def plan_json(self) -> str: ...
    @property
    def timings(self) -> dict[str, float]: ...
    @property
    def call_count(self) -> int: ...
    @property
    def kernel_count(self) -> int: ...
    #: Whether runs turn grad mode on, as kernels saw it in eager.
    grad_enabled: bool
    #: Inputs that must lie apart if one of two is written, else an `OverlapError`: index,
    #: whether it is written, name.
    apart: list[tuple[int, bool, str]]
    #: Inputs that kernels see without their gradient.
    detached: list[int]
    @property
    def input_names(self) -> list[str]: ...
    @property
    def output_count(self) -> int: ...
    @property
    def in_spec(self) -> str: ...
    @property
    def out_spec(self) -> str: ...

class OperatorWatch:
    """Which operators are called, by anybody in this process, while it is there."""

    @property
    def called(self) -> list[str]: ...

def watch_operators(names: list[str]) -> OperatorWatch: ...
def compile(json: str, objects: list[Any], options: dict[str, Any]) -> Program: ...
def aot_compile(
    input: str,
    output: str,
    operator_libraries: list[str],
    options: dict[str, Any],
    cpus: list[str],
    bundle_libraries: bool,
    code_only: bool,
    freeze: bool,
    target: str = "cpu",
    archs: list[str] = ...,
    retarget: str = "",
) -> None: ...
def load(
    path: str, operator_libraries: list[str] = ..., target: str = "", verify: bool = False
) -> Program: ...
def load_operator_library(path: str) -> None: ...
def may_overlap(a: Any, b: Any) -> bool: ...
def check_apart(inputs: list[Any], apart: list[tuple[int, bool, str]]) -> None: ...
def operator_schema(name: str) -> str | None: ...
def operator_facts(name: str) -> dict[str, Any]: ...
def restore(
    plan: str, kernels: bytes, objects: list[Any], cuda: list[tuple[str, bool, bytes]]
) -> Program: ...
def host_description() -> str: ...
