# ===- _complete.py - What torch.export.save does not write -------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Exported programs made such that a file of them says all that is needed to compile it.

``python -m intarsia._complete MODEL OUTPUT [MODULE | LIBRARY.so]...`` is what
``intarsia-compile`` starts for a program that only Python can complete.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from intarsia import _fx, _hooks
from intarsia._namespaces import is_custom
from intarsia._process import run

__all__ = ["completed", "lacking_numbers", "note_numbers", "without_transforms"]

#: Where export finds what it writes for functorch's transforms.
_TRANSFORMS = "torch._functorch.predispatch"


def without_transforms(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with what ``torch.vmap`` does written out.

    Export records its beginning and its end, Python functions that no file can call, and
    the batching rules of the operators between them, custom ones' too, are PyTorch's.
    """
    targets = (node.target for graph in _graphs(program) for node in graph.nodes)
    if all(getattr(target, "__module__", "") != _TRANSFORMS for target in targets):
        return program
    with _hooks.advised(), _hooks.keep_exported_effects():
        return program.run_decompositions({})


def _graphs(program: torch.export.ExportedProgram) -> Iterator[fx.Graph]:
    modules = program.graph_module.modules()
    return (module.graph for module in modules if isinstance(module, fx.GraphModule))


def _custom_calls(graph: fx.Graph) -> Iterator[fx.Node]:
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and is_custom(node.target):
            yield node


def note_numbers(program: torch.export.ExportedProgram) -> None:
    """Notes in the program which numbers fake implementations promised.

    An operator that returns a number alone has no result in an exported program: the
    number stands where it was used. Without it nobody could tell whether the kernel
    returns another.
    """
    for node in (n for graph in _graphs(program) for n in _custom_calls(graph)):
        number = _fx.fake_number(node)
        if number is None:
            continue
        kind = f"as_{type(number).__name__}"
        if isinstance(number, float) and not math.isfinite(number):
            number = str(number)  # which JSON cannot hold
        custom = {**node.meta.get("custom", {}), "intarsia_number": {kind: number}}
        node.meta["custom"] = custom


def numbers(source: str) -> dict[str, dict[str, list[Any]]]:
    """For each graph of the saved program, and each operator that returns a number alone,
    what its fake returns for each call: a boolean, an integer, a float as text, or None
    where that cannot be told. The main graph's name is empty."""
    result: dict[str, dict[str, list[Any]]] = {}
    for name, module in torch.export.load(source).graph_module.named_modules():
        for node in _custom_calls(module.graph) if isinstance(module, fx.GraphModule) else ():
            if _fx.returns_number(node.target):
                number = _fx.fake_number(node)
                told = repr(number) if isinstance(number, float) else number
                calls = result.setdefault(name, {}).setdefault(node.target.name(), [])
                calls.append(told)
    return result


def lacking_numbers(source: str) -> str:
    """`numbers` as JSON, if the file lacks some that it should have; else an empty text."""
    if not _lacks_numbers(_text_of(source)):
        return ""
    try:
        return json.dumps(numbers(source))
    except Exception:  # what PyTorch cannot read, we may
        return ""


def completed(source: str, folder: str) -> str:
    """The path of the saved program with such numbers noted and without transforms."""
    text = _text_of(source)
    if not _lacks_numbers(text) and _TRANSFORMS not in text:
        return source
    target = os.path.join(folder, f"{Path(source).stem}.pt2")
    try:
        program = torch.export.load(source)
    except Exception:  # what it cannot read, we may
        return source
    _write(program, target)
    return target


def _write(program: torch.export.ExportedProgram, target: str) -> None:
    program = without_transforms(program)
    note_numbers(program)
    torch.export.save(program, target)


def _text_of(source: str) -> str:
    """The graphs of a saved program; empty when the compiler will say what is wrong with it."""
    try:
        with zipfile.ZipFile(source) as archive:
            graphs = [n for n in archive.namelist() if re.search(r"(^|/)models/[^/]*\.json$", n)]
            return "".join(archive.read(name).decode() for name in graphs)
    except Exception:
        return ""


def _lacks_numbers(text: str) -> bool:
    """Whether it calls custom operators that return a number alone, and does not say what."""
    if "intarsia_number" in text:
        return False
    for namespace, name, overload in set(_CALLED.findall(text)):
        op = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
        if op is not None and is_custom(op) and _fx.returns_number(op):
            return True
    return False


_CALLED = re.compile(r'"target": *"torch\.ops\.(\w+)\.(\w+)\.(\w+)"')


def main() -> None:
    source, target, *modules = sys.argv[1:]
    run(modules, lambda: _write(torch.export.load(source), target))


if __name__ == "__main__":
    main()
