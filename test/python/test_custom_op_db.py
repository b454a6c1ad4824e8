# ===- test_custom_op_db.py - PyTorch's own custom operators -----------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Every sample of PyTorch's database of custom operators, eager against compiled."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same, clone_inputs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.custom_op_db import custom_op_db
from torch.utils import _pytree as pytree

import intarsia

OPERATORS = [pytest.param(info, id=info.name) for info in custom_op_db]


def run(function, arguments, training: bool):
    arguments = clone_inputs(arguments)
    torch.manual_seed(1)
    output = function(*arguments)
    grads = None
    if training:
        leaves = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
        loss = sum((t * t).sum() for t in leaves if t.requires_grad)
        loss.backward()
        grads = [t.grad for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    return output, arguments, grads


def check(info, dtype: torch.dtype, training: bool, **compile_kwargs) -> None:
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=training))
    assert samples
    for number, sample in enumerate(samples):
        torch._dynamo.reset()

        # Something to fuse before and after; numbers and sizes pass through.
        def function(*leaves, spec=None, op=info.op):
            sample = pytree.tree_unflatten([_scaled(leaf) for leaf in leaves], spec)
            return pytree.tree_map(_scaled, op(sample[0], *sample[1], **sample[2]))

        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        function.__kwdefaults__["spec"] = spec
        try:
            want = run(function, tuple(leaves), training)
        except (RuntimeError, TypeError):
            continue  # NumPy refuses some samples of bool
        compiled = torch.compile(function, backend="intarsia", fullgraph=True, **compile_kwargs)
        try:
            if fake_is_right(info.op, sample, want[0]):
                assert_same(run(compiled, tuple(leaves), training), want)
            else:
                with pytest.raises(intarsia.ContractError, match="has dtype"):
                    run(compiled, tuple(leaves), training)
        except Exception as error:
            error.add_note(f"sample {number} of {info.name}, {dtype}: {sample}")
            raise


def fake_is_right(op, sample, output) -> bool:
    """Whether the operator's fake implementation promises the dtypes of its kernel.

    For numbers that are not floats, some of the database do not.
    """
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
        promised = op(sample.input, *sample.args, **sample.kwargs)
    dtypes = [
        [t.dtype for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        for result in (promised, output)
    ]
    return dtypes[0] == dtypes[1]


def _scaled(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value * 2
    return value


@pytest.mark.parametrize("info", OPERATORS)
def test_inference(info, fuse):
    check(info, torch.float32, False, options={"fuse": fuse})


@pytest.mark.parametrize("info", OPERATORS)
def test_every_dtype(info):
    # Samples of bool cannot be made for this one.
    without = {torch.bool} if info.name == "NumpyNonzeroCustomOp" else set()
    for dtype in sorted(info.dtypes - {torch.float32} - without, key=str):
        check(info, dtype, False)


@pytest.mark.parametrize("info", OPERATORS)
def test_dynamic_sizes(info):
    check(info, torch.float32, False, dynamic=True)


@pytest.mark.parametrize("info", [p for p in OPERATORS if p.values[0].supports_autograd])
def test_training(info, fuse):
    check(info, torch.float32, True, options={"fuse": fuse})


@pytest.mark.parametrize("info", [p for p in OPERATORS if p.values[0].supports_autograd])
def test_training_with_dynamic_sizes(info):
    check(info, torch.float32, True, dynamic=True)
