# ===- core_operators.py - What becomes of PyTorch's core operators ----------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The page docs/operators.md, made of the lowering table and of PyTorch's own tags.

    ./dev exec python test/python/core_operators.py > docs/operators.md

The dtypes of an operator are those in which `test_lowerings.py` compares its kernel
with eager.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import test_lowerings
import torch
import torch._prims
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia import decompositions

SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def name_of(op: torch._ops.OpOverload) -> str:
    overload = op._overloadname
    return op._schema.name + ("" if overload == "default" else f".{overload}")


def is_composite(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch takes the operator apart wherever it is called."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def core_operators() -> dict[str, torch._ops.OpOverload]:
    """Everything with the tag `core`, and PyTorch's public prims, by name."""
    public = {f"prims::{name}" for name in torch._prims.__all__}
    found = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        if space not in ("aten", "prims"):
            continue
        base, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, space), base, None)
        op = getattr(packet, overload or "default", None)
        if op is not None and (torch.Tag.core in op.tags or name in public):
            found[name] = op
    return found


@dataclass
class Table:
    """The compiler's own table.

    Attributes
    ----------
    text : str
        As ``intarsia-opt --list-lowerings`` prints it.
    kernels, views : dict of str to str
        Operator to the title of its section.
    calls : dict of str to str
        Operators that are calls on purpose, with the section and the reason.
    """

    text: str
    kernels: dict[str, str] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)


def lowering_table() -> Table:
    command = ["intarsia-opt", "--list-lowerings"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    table = Table(text)
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        names = re.findall(r"^- `([^`]+)`", body, re.MULTILINE)
        reason = re.search(r"^Calls on purpose: (.*)\.$", body, re.MULTILINE)
        if reason:
            table.calls.update((name, f"{title}: {reason[1]}") for name in names)
        elif title.startswith("Views"):
            table.views.update((name, title) for name in names)
        else:
            table.kernels.update((name, title) for name in names)
    return table


class Recorder(TorchDispatchMode):
    """Notes the dtype of the first tensor of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, set[torch.dtype]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = torch.utils._pytree.tree_leaves((args, kwargs, result))
        first = next((x for x in leaves if isinstance(x, torch.Tensor)), None)
        if first is not None:
            self.dtypes.setdefault(name_of(func), set()).add(first.dtype)
        return result


def tested_dtypes() -> dict[str, set[torch.dtype]]:
    """The dtypes of each operator's cases, all of which must be in kernels."""
    with Recorder() as recorder:
        for cases in test_lowerings.GROUPS.values():
            for case in cases:
                for operands in case.operands:
                    case.call(*operands)
    return recorder.dtypes


def rows(table: Table, tested: dict[str, set[torch.dtype]]) -> Iterator[tuple[str, str]]:
    """(operator, what becomes of it); empty when nobody has decided."""
    apart = {name_of(op) for op in decompositions.table()}
    for name, op in core_operators().items():
        if name in table.kernels:
            dtypes = ", ".join(
                short for dtype, short in SHORT.items() if dtype in tested.get(name, ())
            )
            what = f"kernel ({dtypes})" if dtypes else "kernel"
            if table.kernels[name].startswith("Running"):
                what += "; on CUDA a call: its scans are parallel"
            elif name in table.calls:
                what += f"; some a call: {table.calls[name]}"
            yield name, what
        elif name in table.views:
            yield name, "view"
        elif name in apart:
            yield name, "taken apart (`python/intarsia/decompositions.py`)"
        elif name in table.calls:
            yield name, f"call: {table.calls[name]}"
        elif is_composite(op):
            yield name, "taken apart by PyTorch; a call where a file holds it"
        else:
            yield name, ""


def page() -> str:
    table = lowering_table()
    title, _, rest = table.text.partition("\n## ")
    lines = [title.rstrip(), "", "## PyTorch's core operators", ""]
    lines += [
        "Everything with PyTorch's tag `core`, and its prims. *Kernel*: fused into",
        "vectorised code for the CPU, and into PTX by the CUDA route, from one body;",
        "in brackets the dtypes in which a test compares it with eager. *View*: costs",
        "nothing, kernels read through it. *Call*: runs through the dispatcher, and why.",
        "",
        "| operator | here |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {what} |" for name, what in rows(table, tested_dtypes())]
    return "\n".join(lines) + "\n\n## " + rest


if __name__ == "__main__":
    print(page(), end="")
