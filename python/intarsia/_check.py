# ===- _check.py - A compiled file's outputs beside eager's -------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``python -m intarsia._check MODEL INPUTS OUTPUTS [LIBRARY...]``.

What ``intarsia-run --check-against eager`` starts: runs the exported program that is
in MODEL eagerly on INPUTS and compares with OUTPUTS, both safetensors files. Status 0:
they agree within PyTorch's tolerances; 1: they do not; 2: the program cannot be run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intarsia._extension import extension

# The names that the safetensors format gives to dtypes.
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
    "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
}  # fmt: skip


def read(path: str) -> dict[str, torch.Tensor]:
    """The tensors of a file that intarsia-run wrote."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        begin, end = entry["data_offsets"]
        flat = torch.empty(0, dtype=dtype)
        if begin < end:
            count = (end - begin) // dtype.itemsize
            flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin)
        tensors[name] = flat.reshape(shape)
    return tensors


def load_bundled(model: str) -> None:
    """The operator libraries in the file, as far as their operators are missing."""
    with zipfile.ZipFile(model) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if "/intarsia/libraries/" in name]
        metadata = [name for name in archive.namelist() if name.endswith("/intarsia/metadata.json")]
        operators = json.loads(archive.read(metadata[0]))["operators"]
        for name in names:
            if all(extension().operator_schema(op["name"]) for op in operators):
                return
            torch.ops.load_library(archive.extract(name, folder))


def eager(model: str, inputs: dict[str, torch.Tensor]) -> list[Any]:
    program = torch.export.load(model)
    values = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not torch.export.graph_signature.InputKind.USER_INPUT:
            continue
        name = getattr(spec.arg, "name", "")
        value = inputs.get(name, getattr(spec.arg, "value", None))
        node = next(n for n in program.graph.nodes if n.op == "placeholder" and n.name == name)
        if isinstance(value, torch.Tensor) and not isinstance(node.meta["val"], torch.Tensor):
            value = value.item()
        values.append(value)
    args, kwargs = pytree.tree_unflatten(values, program.call_spec.in_spec)
    with torch.no_grad():
        return pytree.tree_leaves(program.module()(*args, **kwargs))


def main() -> int:
    model, inputs, outputs, *libraries = sys.argv[1:]
    try:
        for library in libraries:
            torch.ops.load_library(library)
        load_bundled(model)
        want = eager(model, read(inputs))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    got = read(outputs)
    status = 0
    for number, value in enumerate(want):
        name = f"output_{number}"
        if not isinstance(value, (torch.Tensor, int, float)):
            continue  # intarsia-run writes no file for it
        is_tensor = isinstance(value, torch.Tensor)
        try:
            torch.testing.assert_close(
                got[name], torch.as_tensor(value), equal_nan=True, check_dtype=is_tensor
            )
            print(f"{name}: agrees with eager")
        except (AssertionError, KeyError) as error:
            print(f"{name}: differs from eager: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
