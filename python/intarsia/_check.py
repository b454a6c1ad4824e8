# ===- _check.py - A compiled file's outputs beside eager's -------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``python -m intarsia._check MODEL INPUTS OUTPUTS [LIBRARY...]``.

What ``intarsia-run --check-against eager`` starts: runs the exported program that is
in MODEL eagerly on INPUTS, pairs of name and tensor, and compares with the tensors in
OUTPUTS, both files of torch.save. Status 0: they agree within PyTorch's tolerances;
`DIFFERS`: they do not; `RAISED`: the program raises; `NOT_LOADED`: it or a library of
operators cannot be loaded.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intarsia._extension import extension

# Python's own errors end with 1.
DIFFERS = 10
RAISED = 11
NOT_LOADED = 12


def load(model: str) -> torch.export.ExportedProgram:
    """The program in the file, or beside it where the file has code only.

    The operator libraries in the file are loaded as far as their operators are missing.
    """
    with zipfile.ZipFile(model) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if "/intarsia/libraries/" in name]
        path = next(name for name in archive.namelist() if name.endswith("/intarsia/metadata.json"))
        metadata = json.loads(archive.read(path))
        for name in names:
            if all(extension().operator_schema(op["name"]) for op in metadata["operators"]):
                break
            torch.ops.load_library(archive.extract(name, folder))
    beside = metadata.get("program")
    return torch.export.load(os.path.join(os.path.dirname(model), beside) if beside else model)


def eager(program: torch.export.ExportedProgram, inputs: dict[str, torch.Tensor]) -> list[Any]:
    values = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not torch.export.graph_signature.InputKind.USER_INPUT:
            continue
        name = getattr(spec.arg, "name", "")
        value = inputs.get(name, getattr(spec.arg, "value", None))
        node = next(n for n in program.graph.nodes if n.op == "placeholder" and n.name == name)
        if isinstance(value, torch.Tensor):
            fake = node.meta["val"]
            value = value.to(fake.device) if isinstance(fake, torch.Tensor) else value.item()
        values.append(value)
    args, kwargs = pytree.tree_unflatten(values, program.call_spec.in_spec)
    with torch.no_grad():
        return pytree.tree_leaves(program.module()(*args, **kwargs))


def main() -> int:
    model, inputs, outputs, *libraries = sys.argv[1:]
    status = NOT_LOADED
    try:
        for library in libraries:
            torch.ops.load_library(library)
        program = load(model)
        status = RAISED
        want = eager(program, dict(torch.load(inputs)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return status
    # The file's program may have been moved to another device than the compiled one.
    got = torch.load(outputs, map_location="cpu")
    status = 0
    for number, value in enumerate(want):
        name = f"output_{number}"
        if not isinstance(value, (torch.Tensor, int, float)):
            continue  # intarsia-run writes no file for it
        is_tensor = isinstance(value, torch.Tensor)
        try:
            torch.testing.assert_close(
                got[number], torch.as_tensor(value).cpu(), equal_nan=True, check_dtype=is_tensor
            )
            print(f"{name}: agrees with eager")
        except (AssertionError, TypeError) as error:
            print(f"{name}: differs from eager: {error}")
            status = DIFFERS
    return status


if __name__ == "__main__":
    sys.exit(main())
