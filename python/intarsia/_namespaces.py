# ===- _namespaces.py - Which operators are PyTorch's -------------------- ===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The namespaces of PyTorch's own operators, and what may be said of those in them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

__all__ = ["SHIPPED", "STRIDED", "TRACED", "custom_operators"]

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


def custom_operators() -> Iterator[str]:
    """The names of all registered operators that do not come with PyTorch."""
    for name in torch._C._dispatch_get_all_op_names():
        if name.partition("::")[0] not in SHIPPED and _is_defined(name):
            yield name


def _is_defined(name: str) -> bool:
    """Whether there is a schema: a kernel may be registered for a name that never gets one."""
    base, _, overload = name.partition(".")
    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
