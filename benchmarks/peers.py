# ===- peers.py - Other compilers, where they can run a program ---------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""AOTInductor, OpenVINO and ONNX Runtime as candidates of a benchmark.

Each function takes a program and returns what runs one call of it, or raises where the
peer cannot run the program at all. Beside the two that do without Dynamo, as a loaded
file does, stands a file of Intarsia's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from programs import Program

import intarsia


class CannotRun(Exception):
    """The peer has no way to run this program."""


def _exported(program: Program) -> torch.export.ExportedProgram:
    if program.training:
        raise CannotRun("it runs inference only")
    first = program.inputs[0]
    dynamic = None
    if program.dynamic:
        if not all(isinstance(x, torch.Tensor) for x in first):
            raise CannotRun("torch.export makes a constant of the number")
        dynamic = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in first)
    with torch.no_grad():
        return torch.export.export(program.module, first, dynamic_shapes=dynamic)


def intarsia_file(program: Program) -> Callable[..., Any]:
    exported = _exported(program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        return intarsia.load(intarsia.aot_compile(exported, path))


def aot_inductor(program: Program) -> Callable[..., Any]:
    exported = _exported(program)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = str(Path(folder) / "model.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=path)
        return torch._inductor.aoti_load_package(path)


def openvino(program: Program) -> Callable[..., Any]:
    """With float32 kept, and without Inductor, to which it turns on any exception."""
    from openvino.frontend.pytorch.torchdynamo import backend

    precise = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": str(torch.get_num_threads()),
    }
    options = {"device": "CPU", "config": precise, "aot_autograd": program.training}
    run = torch.compile(
        program.module, backend="openvino", options=options, dynamic=program.dynamic
    )
    instead = mock.patch.object(backend, "compile_fx", side_effect=CannotRun("it fell back"))

    def without_inductor(*inputs: Any) -> Any:
        with instead:
            return run(*inputs)

    for inputs in program.inputs:
        without_inductor(*inputs)
    return run


def onnx_runtime(program: Program) -> Callable[..., Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    exported = _exported(program)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        torch.onnx.export(exported, f=path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, options)
    names = [x.name for x in session.get_inputs()]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return [torch.from_numpy(y) for y in session.run(None, feed)]

    return run


FILES = {
    "intarsia-file": intarsia_file,
    "aot-inductor": aot_inductor,
    "onnxruntime": onnx_runtime,
}
PEERS = {**FILES, "openvino": openvino}
