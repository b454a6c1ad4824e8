# ===- prepare.py - Compiled programs for a GPU elsewhere -----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Exports each program on the CPU, moves it to CUDA and compiles it; see run.sh."""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from kernels import CASES, TRITON, Function
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

import intarsia

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from models import MODELS


def for_any_torch(path: Path) -> None:
    """The file without the range of versions: the machine with the GPU has another."""
    with zipfile.ZipFile(path) as archive:
        records = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for info, data in records:
            if info.filename.endswith("data/intarsia/metadata.json"):
                metadata = json.loads(data)
                metadata.pop("torchMin", None)
                metadata.pop("torchEnd", None)
                data = json.dumps(metadata).encode()
            archive.writestr(info.filename, data)


def tensors_of(values: Any) -> tuple[torch.Tensor, ...]:
    return tuple(x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor))


def prepare(
    folder: Path, name: str, module: torch.nn.Module, args: tuple[Any, ...],
    kwargs: dict[str, Any], archs: list[str],
) -> dict[str, Any]:  # fmt: skip
    stem = re.sub(r"\W+", "_", name)
    with torch.no_grad():
        expected = module.eval()(*args, **kwargs)
        program = torch.export.export(module, args, kwargs, strict=False)
    if name in CASES:
        program._example_inputs = None  # the inputs again
    path = folder / f"{stem}.pt2"
    intarsia.aot_compile(program, path, target="cuda", archs=archs, retarget="cpu=cuda:0")
    for_any_torch(path)
    if name not in CASES:  # which are made again where the GPU is
        torch.save(tensors_of((args, kwargs)), folder / f"{stem}.inputs.pt")
        torch.save(tensors_of(expected), folder / f"{stem}.expected.pt")
    return {"name": stem, "title": name}


def prepare_triton(folder: Path, name: str, archs: list[str]) -> dict[str, Any]:
    """Traced with tensors that have a GPU and no memory: Triton has no kernels for the CPU."""
    import triton_cases

    _, inputs = TRITON[name]
    with FakeTensorMode():
        fake = tuple(torch.empty(x.shape, dtype=x.dtype, device="cuda:0") for x in inputs)
        program = torch.export.export(Function(triton_cases.PROGRAMS[name]), fake, strict=False)
    program._example_inputs = None  # fake ones cannot be saved
    stem = re.sub(r"\W+", "_", name)
    path = folder / f"{stem}.pt2"
    intarsia.aot_compile(program, path, target="cuda", archs=archs)
    for_any_torch(path)
    return {"name": stem, "title": name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archs", default="sm_80,sm_90")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    archs = arguments.archs.split(",")
    programs: list[tuple[str, str, torch.nn.Module | None, tuple[Any, ...], dict[str, Any]]] = []
    for name, (function, inputs) in CASES.items():
        programs.append((name, "kernel", Function(function), inputs, {}))
    for name, make in MODELS.items():
        torch.manual_seed(0)
        module, inputs = make()
        for part in module.modules():  # a decoder has a configuration of its own
            if hasattr(part, "config"):
                part.config.use_cache = False
        programs.append((name, "model", module, (), inputs))
    for name in TRITON:
        programs.append((name, "triton", None, (), {}))
    rows = []
    for name, kind, module, args, kwargs in programs:
        try:
            if module is None:
                row = prepare_triton(arguments.folder, name, archs)
            else:
                row = prepare(arguments.folder, name, module, args, kwargs, archs)
        except Exception as error:
            row = {"title": name, "problem": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name}: {row['problem']}", file=sys.stderr)
        rows.append({**row, "kind": kind})
    (arguments.folder / "list.json").write_text(json.dumps(rows, indent=1))
    print(f"{sum('name' in row for row in rows)} of {len(rows)} programs")


if __name__ == "__main__":
    main()
