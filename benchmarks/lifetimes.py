# ===- lifetimes.py - The least memory that a training step can hold ---------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""From the plans of a step: the most bytes of tensors that are needed at once.

A tensor is needed from the step that makes it to the last one that names it or a view of
it. What the plans order and what they save for the backward is given; allocators, arenas
and the memory that an operator uses inside are not counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch

import intarsia

__all__ = ["lower_bound"]

#: Of the dtypes that a plan of these programs has.
_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}

#: Which memory a tensor is in, and its bytes.
Memory = tuple[int, int]


def lower_bound(compilations: Iterable[intarsia.Compilation]) -> int:
    """Bytes beyond parameters and inputs, of one step of known sizes.

    `compilations` are its forward and its backward.
    """
    return max(_most(json.loads(c.program.plan_json)["functions"][0]) for c in compilations)


def _most(main: dict) -> int:
    """The most bytes at once in a plan's main function."""
    memory: dict[int, Memory] = {}  # of a slot
    used: dict[Memory, tuple[int, int]] = {}  # by the first and the last step
    fresh = itertools.count()

    def use(slot: int, when: int) -> None:
        if slot in memory:
            first, _ = used.get(memory[slot], (when, when))
            used[memory[slot]] = (first, when)

    for entry in main["inputs"]:
        # AOTAutograd's names for parameters, inputs and the gradients of outputs; the
        # others were saved.
        if "slot" in entry and not entry["name"].startswith(("primals", "tangents")):
            memory[entry["slot"]] = (next(fresh), _bytes(entry["spec"], main["exprs"]))
            use(entry["slot"], 0)
    for when, step in enumerate(main["steps"], 1):
        if step["kind"] == "free":
            continue
        for slot in _slots(step):
            use(slot, when)
        for made in [step, *step.get("results", [])]:
            slot = made.get("slot", -1)
            if slot < 0 or step["kind"] == "copy":
                continue
            # A view's memory is its source's; an allocation may take its source's over.
            if (source := step.get("source", -1)) not in memory:
                if source >= 0:
                    continue  # of a parameter
                memory[slot] = (next(fresh), _bytes(made["spec"], main["exprs"]))
            else:
                memory[slot] = memory[source]
            use(slot, when)
    end = len(main["steps"]) + 1
    for output in main["outputs"]:
        use(output.get("slot", -1), end)
    change = [0] * (end + 2)
    for (_, size), (first, last) in used.items():
        change[first] += size
        change[last + 1] -= size
    return max(itertools.accumulate(change))


def _slots(what: Any) -> Iterator[int]:
    """The slots that a step names."""
    if isinstance(what, dict):
        for key, value in what.items():
            if key in ("slot", "source"):
                yield value
            elif key == "buffers":
                yield from value
            else:
                yield from _slots(value)
    elif isinstance(what, list):
        for value in what:
            yield from _slots(value)


def _bytes(spec: dict, exprs: list[str]) -> int:
    sizes, strides = ([int(exprs[n]) for n in spec[key]] for key in ("sizes", "strides"))
    if 0 in sizes:
        return 0
    extent = 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    return extent * _DTYPES[spec["dtype"]].itemsize
