# ===- exported-programs.py - What torch.export's programs become -----------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Programs that the installed PyTorch exports, through reader A.

RUN: rm -rf %t && mkdir %t && %python %s %t
RUN: intarsia-compile --no-fuse --emit=imported %t/guards.pt2 | FileCheck %s -check-prefix GUARDS
RUN: intarsia-compile --no-fuse --emit=imported %t/derived.pt2 | FileCheck %s -check-prefix DERIVED
RUN: intarsia-compile --no-fuse --emit=imported %t/nested.pt2 | FileCheck %s -check-prefix NESTED
RUN: intarsia-compile --no-fuse --emit=imported %t/inplace.pt2 | FileCheck %s -check-prefix INPLACE
RUN: intarsia-compile --no-fuse --emit=imported %t/written.pt2 | FileCheck %s -check-prefix WRITTEN
RUN: intarsia-compile --no-fuse --emit=imported %t/cond.pt2 | FileCheck %s -check-prefix COND
RUN: intarsia-compile --no-fuse --emit=imported %t/scalar.pt2 | FileCheck %s -check-prefix SCALAR
RUN: intarsia-compile --no-fuse --emit=imported %t/no_grad.pt2 | FileCheck %s -check-prefix NOGRAD
RUN: intarsia-compile --no-fuse --emit=imported %t/autocast.pt2 | FileCheck %s -check-prefix AUTO
RUN: intarsia-compile --no-fuse --emit=imported %t/casts.pt2 | FileCheck %s -check-prefix CASTS
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, export


def program(forward: Callable, args: tuple, **options: Any) -> ExportedProgram:
    module = type("Model", (torch.nn.Module,), {"forward": forward})()
    return export(module, args, **options)


X = torch.randn(16, 4)


# A condition that is nowhere but in the guards.
# GUARDS: intarsia.guards = ["{{.*}}mod(s{{[0-9]+}}, 8){{.*}}"
def guards(self, x):
    return x.view(8, -1).sum(0)


# A dimension that is 8 times a symbol: the symbol's value comes from it.
# DERIVED: %{{.+}}: !intarsia.tensor<["8*[[K:s[0-9]+]]", 4]xf32>
# DERIVED-SAME: "8*[[K]] >= 16"
# DERIVED: intarsia.size [[K]] : index
def derived(self, x):
    return x.view(x.shape[0] // 8, 8, 4).sum(1)


# Guards name inputs by their path.
# NESTED: intarsia.name = "d_a"
# NESTED-SAME: intarsia.kind = "constant_input"
# NESTED-SAME: intarsia.guard_texts = ["{{.*}}L['d']['a'].size()[0] % 8{{.*}}"
def nested(self, d, flag, *, scale):
    return d["a"].view(8, -1).sum(0).sum() * scale[0]


# Not functionalised: writes work on shared storage, and keep their order.
# INPLACE: %arg0: {{.+}} {intarsia.kind = "user", intarsia.mutated, intarsia.name = "x"}
# INPLACE-SAME: intarsia.aliasing
# INPLACE: "aten::select.int"(self = %arg0{{.*}}aliasing, {{.*}}views = array<i64: 0>
# INPLACE: "aten::add_.Tensor"(self = %select{{.*}}mutates(%select) returns(tied) {aliasing
# INPLACE: "aten::mul.Tensor"(self = %arg0{{.*}}aliasing
def inplace(self, x):
    x[0].add_(1)
    return x * 2


# Functionalised: the new value of the input is a result.
# WRITTEN: intarsia.output = "input_mutation", intarsia.target = "x"
# WRITTEN-NOT: aliasing
written = inplace


# Subgraphs are functions; their symbols are bound by their own arguments.
# COND: true_fn = @true_graph_0, false_fn = @false_graph_0, operands = [%arg1])
# COND: func.func private @true_graph_0(%{{.+}}: !intarsia.tensor<[s{{[0-9]+}}, 4]xf32>
# COND: func.func private @true_graph_0.true_graph_0(
# COND: func.func private @false_graph_0(
def cond(self, p, x):
    def inner(x):
        return torch.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x + 1, (x,))

    return torch.cond(p, inner, lambda x: x - 1, (x,))


# A value read from a tensor is a symbol from there on.
# SCALAR: binds = [#intarsia.bind<"[[U:u[0-9]+]]" = 0, "value">]
# SCALAR: intarsia.assert "le(0, [[U]])"
# SCALAR: %[[SIZE:.+]] = intarsia.size [[U]] : index
# SCALAR: "aten::full"(size = [%[[SIZE]]]
def scalar(self, x):
    n = x.max().abs().int().item()
    torch._check(n >= 0)
    return torch.zeros(n)


# NOGRAD: "higher_order::wrap_with_set_grad_enabled"(enable_grad = false, subgraph = @
def no_grad(self, x):
    y = x * 2
    with torch.no_grad():
        z = y.sin()
    return y + z


# AUTO: "higher_order::wrap_with_autocast"(device_type = "cpu", dtype = dtype<bf16>, enabled = true
# AUTO: func.func private @{{.*}} attributes {intarsia.autocast
# CASTS: "aten::_to_copy"(self = %arg0, dtype = dtype<bf16>
def autocast(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


AUTO = {0: Dim.AUTO}
NESTED = ({"a": X}, True)
PROGRAMS = {
    "guards": program(guards, (X,), dynamic_shapes={"x": AUTO}),
    "derived": program(derived, (X,), dynamic_shapes={"x": {0: 8 * Dim("k", min=2)}}),
    "nested": program(
        nested,
        NESTED,
        kwargs={"scale": [X[0]]},
        dynamic_shapes={"d": {"a": AUTO}, "flag": None, "scale": [None]},
    ),
    "inplace": program(inplace, (X.clone(),)),
    "written": program(inplace, (X.clone(),)).run_decompositions(),
    "cond": program(cond, (torch.tensor(True), X), dynamic_shapes={"p": None, "x": AUTO}),
    "scalar": program(scalar, (X,)).run_decompositions(),
    "no_grad": program(no_grad, (X,)),
    "autocast": program(autocast, (X,)),
    "casts": program(autocast, (X,)).run_decompositions(),
}

for name, exported in PROGRAMS.items():
    torch.export.save(exported, f"{sys.argv[1]}/{name}.pt2")
