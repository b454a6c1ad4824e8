# ===- _namespaces.py - Which operators are PyTorch's -------------------- ===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The namespaces of PyTorch's own operators, and what may be said of those in them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import torch
import torch._library.custom_ops
import torch.library

from intarsia._extension import extension

__all__ = ["SHIPPED", "STRIDED", "TRACED", "custom_operators", "is_custom", "is_pytorchs"]

#: Their kernels accept any strides: those of the traced program need not be kept.
STRIDED = frozenset({"aten", "prims", "prim"})

#: What PyTorch's tracing does with their writes and effects is right. An operator
#: elsewhere is custom.
TRACED = STRIDED | {"_c10d_functional", "higher_order"}

#: Everything that comes with PyTorch, and changes with its version alone.
SHIPPED = TRACED | frozenset(
    """
    _c10d_functional_autograd _dtensor _inductor_test _native _native_aot _quantized _test
    c10d c10d_functional coor debug_mode_ops debugprims export flex_gemm flex_lib fsdp inductor
    inductor_prims mempool mkl mkldnn mkldnn_prepacked onednn onnx onnx_symbolic profiler
    quantization quantized quantized_decomposed rngprims sparse static_runtime streams symm_mem
    """.split()
)


def is_pytorchs(name: str, namespaces: frozenset[str] = TRACED) -> bool:
    """Whether operator `name` is PyTorch's own: in one of its namespaces, of which anybody
    may put operators into, and defined by its code."""
    return name.partition("::")[0] in namespaces and not _is_foreign(name)


def is_custom(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch's tracing knows nothing of an operator's writes and effects."""
    return not is_pytorchs(op.name())


@functools.lru_cache(maxsize=8192)
def _is_foreign(name: str) -> bool:
    schema = extension().operator_schema(name)
    defined = json.loads(schema)["defined"] if schema is not None else "pytorch"
    if defined != "anybody":
        return defined == "others"
    # Through torch.library, or an old interface: PyTorch makes none of aten's that way.
    definition = torch._library.custom_ops.OPDEFS.get(name)
    if definition is None:
        return name.startswith("aten::")
    return (definition._init_fn.__module__ or "").partition(".")[0] != "torch"


def custom_operators() -> Iterator[str]:
    """The names of all registered operators that do not come with PyTorch."""
    # What Python code has put into PyTorch's namespaces; to ask of each of their
    # thousands of operators whose it is takes long.
    put = {name.replace("/", "::", 1) for name in torch.library._defs}
    for name in torch._C._dispatch_get_all_op_names():
        shipped = name.partition("::")[0] in SHIPPED
        if shipped and not (name in put and _is_foreign(name)):
            continue
        if _is_defined(name):
            yield name


def _is_defined(name: str) -> bool:
    """Whether there is a schema: a kernel may be registered for a name that never gets one."""
    base, _, overload = name.partition(".")
    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
