# ===- _convert.py - An exported program in another precision ------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``python -m intarsia._convert MODEL OUTPUT DTYPE [MODULE | LIBRARY.so]...``.

What ``intarsia-compile --dtype`` starts, and ``intarsia.aot_compile(dtype=)`` calls: every
float32, float16 and bfloat16 tensor of an exported program becomes one of DTYPE, weights
and inputs too. Dtypes that the program names are converted likewise: PyTorch records
``x.float()`` and ``x.to(y.dtype)`` in the same way, with the dtype that it saw. What
operators return is asked of their fake implementations.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import py_sym_types
from torch.utils import _pytree as pytree

from intarsia._process import run
from intarsia.errors import CompileError, OptionError

DTYPES = {str(d).removeprefix("torch."): d for d in (torch.float32, torch.bfloat16, torch.float16)}


class _Converter:
    def __init__(self, program: torch.export.ExportedProgram, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.storages: dict[int, torch.Tensor] = {}

    def run(self) -> None:
        program = self.program
        for table in (program._state_dict, program._constants):
            for name, value in table.items():
                if isinstance(value, torch.Tensor):
                    table[name] = self.weight(value)
        if program._example_inputs is not None:
            program._example_inputs = pytree.tree_map_only(
                torch.Tensor, self.cast, program._example_inputs
            )
        self.graph(program.graph_module)

    def converts(self, dtype: Any) -> bool:
        return dtype in DTYPES.values() and dtype is not self.dtype

    def cast(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype) if self.converts(value.dtype) else value

    def weight(self, value: torch.Tensor) -> torch.Tensor:
        """The weight in the new dtype; what shared memory still does."""
        if not self.converts(value.dtype) or value.numel() == 0:
            return self.cast(value)
        storage = value.untyped_storage()
        if storage.data_ptr() not in self.storages:
            flat = torch.empty(0, dtype=value.dtype).set_(storage)
            self.storages[storage.data_ptr()] = flat.to(self.dtype)
        flat = self.storages[storage.data_ptr()]
        result = flat.as_strided(value.size(), value.stride(), value.storage_offset())
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(result, value.requires_grad)
        return result

    def graph(self, module: torch.fx.GraphModule) -> None:
        values = [n.meta.get("val") for n in module.graph.nodes]
        fakes = [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]
        if not fakes:
            return
        changed: set[torch.fx.Node] = set()
        with fakes[0].fake_mode, torch.no_grad():
            for node in module.graph.nodes:
                before = node.meta.get("val")
                if node.op == "placeholder":
                    node.meta["val"] = pytree.tree_map_only(torch.Tensor, self.cast, before)
                elif node.op == "call_function":
                    self.call(node, changed)
                elif node.op == "get_attr" and hasattr(module, node.target):
                    if isinstance(getattr(module, node.target), torch.fx.GraphModule):
                        raise CompileError(
                            f"{node.target}: the dtype of control flow's branches is not converted"
                        )
                if _dtypes(node.meta.get("val")) != _dtypes(before):
                    changed.add(node)

    def call(self, node: torch.fx.Node, changed: set[torch.fx.Node]) -> None:
        args, kwargs = pytree.tree_map(self.constant, (node.args, dict(node.kwargs)))
        if isinstance(node.target, torch._ops.OpOverload):
            self.name_dtype(node, kwargs)
            if node.target is torch.ops.aten._assert_tensor_metadata.default:
                args, kwargs = _checked_metadata(node, args, kwargs)
        touched = (args, kwargs) != (node.args, node.kwargs)
        node.args, node.kwargs = args, kwargs
        if not touched and not changed.intersection(node.all_input_nodes):
            return
        if node.meta.get("unbacked_bindings"):
            # Another run would make other symbols.
            node.meta["val"] = pytree.tree_map_only(torch.Tensor, self.cast, node.meta.get("val"))
            return
        values = torch.fx.map_arg((args, kwargs), lambda x: x.meta.get("val"))
        try:
            node.meta["val"] = node.target(*values[0], **values[1])
        except Exception as error:
            line = (node.meta.get("stack_trace") or "").strip().splitlines()
            raise CompileError(
                f"'{node.target}' is not defined for {self.dtype}: {error}"
                + (f"\n  at {' '.join(x.strip() for x in line[-2:])}" if line else "")
                + "\nExport the module in this dtype instead"
            ) from error

    def constant(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return self.dtype if self.converts(value) else value
        if isinstance(value, float) and not isinstance(value, py_sym_types):
            # torch.finfo(torch.float32).min was the least number there is.
            limits = torch.finfo(self.dtype)
            is_finite = abs(value) <= torch.finfo(torch.float32).max
            return min(max(value, limits.min), limits.max) if is_finite else value
        return value

    def name_dtype(self, node: torch.fx.Node, kwargs: dict[str, Any]) -> None:
        """A factory whose result has the default dtype is told it."""
        names = [argument.name for argument in node.target._schema.arguments]
        value = node.meta.get("val")
        takes_tensor = any(
            isinstance(x.meta.get("val"), torch.Tensor) for x in node.all_input_nodes
        )
        if (
            "dtype" in names
            and not takes_tensor
            and isinstance(value, torch.Tensor)
            and self.converts(value.dtype)
        ):
            kwargs["dtype"] = self.dtype


def _dtypes(value: Any) -> list[torch.dtype]:
    return [x.dtype for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def _checked_metadata(node: torch.fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What export asserts of a tensor, with the dtype that the tensor has now."""
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if given.get("dtype") is not None:
        given["dtype"] = given[names[0]].meta["val"].dtype
    return (given.pop(names[0]),), given


def convert(source: str, target: str, dtype: str) -> None:
    """Writes the program in `source` to `target`, in another dtype.

    Raises
    ------
    OptionError
        For a dtype that is none of float32, bfloat16 and float16.
    CompileError
        When an operator of the program is not defined for the dtype; the message names
        it and its source line.
    """
    if dtype not in DTYPES:
        raise OptionError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    program = torch.export.load(source)
    _Converter(program, DTYPES[dtype]).run()
    torch.export.save(program, target)


def main() -> None:
    source, target, dtype, *modules = sys.argv[1:]
    run(modules, lambda: convert(source, target, dtype))


if __name__ == "__main__":
    main()
