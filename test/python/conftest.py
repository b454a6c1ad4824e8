"""What the Python tests share: eager against compiled, fused and not."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

# A worker inherits it from below; PyTorch would let it win over every setting.
os.environ.pop("TORCHINDUCTOR_AUTOGRAD_CACHE", None)

import pytest
import torch
from torch._functorch import config as functorch_config
from torch.utils import _pytree as pytree

import intarsia

# Graphs are numbered in a process.
if {"INTARSIA_DEBUG", "PYTEST_XDIST_WORKER"} <= set(os.environ):
    os.environ["INTARSIA_DEBUG"] += f"/{os.environ['PYTEST_XDIST_WORKER']}"

# What was compiled before must not hide what is compiled now, here or in a subprocess.
os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
functorch_config.enable_autograd_cache = False

#: Dtypes of which PyTorch compares no values.
BYTES = re.compile(r"bits8|int[1-7]$")

TOLERANCES = {
    torch.float64: (1e-7, 1e-8),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.complex64: (1e-5, 1e-5),
    torch.complex128: (1e-7, 1e-8),
}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Every test compiles from nothing, with one thread."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield


@pytest.fixture(params=[False, True], ids=["unfused", "fused"])
def fuse(request) -> bool:
    """Both ways to compile: every node a call, and with kernels."""
    return request.param


@pytest.fixture
def compile_with(fuse) -> Callable[..., Any]:
    """``torch.compile`` with this test's way to compile."""

    def compile_function(function: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("fullgraph", True)
        options = {"fuse": fuse, **kwargs.pop("options", {})}
        return torch.compile(function, backend="intarsia", options=options, **kwargs)

    return compile_function


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.fixture(params=["compile", "artifact"])
def through(request, tmp_path) -> Callable[..., Any]:
    """A function through either door: ``torch.compile``, or a compiled file.

    Takes the function, example inputs and options; `dynamic` makes all sizes symbolic.
    """

    def compile_function(
        function: Any, *example: Any, dynamic: bool | None = None, **options: Any
    ) -> Any:
        if request.param == "compile":
            return torch.compile(
                function,
                backend="intarsia",
                fullgraph=True,
                dynamic=dynamic,
                options=options or None,
            )
        shapes = None
        if dynamic:
            auto = torch.export.Dim.AUTO
            shapes = (tuple((auto,) * x.dim() if _is_tensor(x) else None for x in example),)
        program = torch.export.export(_Module(function), example, dynamic_shapes=shapes)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt2"
        return intarsia.load(intarsia.aot_compile(program.run_decompositions({}), path, **options))

    return compile_function


def assert_same(got: Any, want: Any, *, exact: bool = False, strides: bool = True) -> None:
    """`got` is what eager gave: structure, types, dtypes, sizes, strides, values."""
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert got_spec == want_spec
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            same = (
                torch.tensor(b).isclose(torch.tensor(a), equal_nan=True)
                if isinstance(b, float)
                else a == b
            )
            assert type(a) is type(b) and same
            continue
        assert a.dtype == b.dtype and a.shape == b.shape and a.device == b.device
        assert a.requires_grad == b.requires_grad
        if strides and b.numel() > 1:
            sizes = [n != 1 for n in b.shape]
            assert [s for s, n in zip(a.stride(), sizes, strict=True) if n] == [
                s for s, n in zip(b.stride(), sizes, strict=True) if n
            ]
        if BYTES.search(str(b.dtype)):
            a, b = a.view(torch.uint8), b.view(torch.uint8)
        rtol, atol = (0, 0) if exact else TOLERANCES.get(b.dtype, (0, 0))
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def clone_inputs(inputs: Any) -> Any:
    """Fresh copies that keep strides, sharing among themselves, and requires_grad."""
    memo: dict[int, Any] = {}
    leaves, spec = pytree.tree_flatten(inputs)
    clones = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            grad = leaf.requires_grad and leaf.is_leaf
            copied = copy.deepcopy(leaf.detach(), memo).requires_grad_(grad)
            # The same tensor twice must stay the same tensor twice.
            leaf = memo.setdefault(-id(leaf), copied)
        clones.append(leaf)
    return pytree.tree_unflatten(clones, spec)


@pytest.fixture
def check(compile_with) -> Callable[..., Any]:
    """Runs a function eagerly and compiled on equal inputs and compares everything."""

    def run_check(
        function: Any,
        *calls: Iterable[Any],
        training: bool = False,
        exact: bool = False,
        strides: bool = True,
        **compile_kwargs: Any,
    ) -> Any:
        compiled = compile_with(function, **compile_kwargs)
        for call in calls:
            results = []
            for f in (function, compiled):
                arguments = clone_inputs(tuple(call))
                torch.manual_seed(1)
                output = f(*arguments)
                grads = None
                if training:
                    tensors = [t for t in pytree.tree_leaves(output) if _wants_grad(t)]
                    loss = sum((t * t).sum() for t in tensors)
                    loss.backward()
                    grads = [t.grad for t in pytree.tree_leaves(arguments) if _is_tensor(t)]
                    if isinstance(function, torch.nn.Module):
                        grads += [p.grad for p in function.parameters()]
                        function.zero_grad()
                state = _state(function)
                results.append((output, arguments, grads, state, torch.rand(1)))
            (want, want_args, want_grads, _, want_random) = results[0]
            (got, got_args, got_grads, _, got_random) = results[1]
            assert_same(got, want, exact=exact, strides=strides)
            assert_same(got_args, want_args, exact=exact)
            assert_same(got_grads, want_grads, exact=exact, strides=False)
            assert torch.equal(got_random, want_random), "the random stream differs"
        return compiled

    return run_check


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _wants_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _state(function: Any) -> list[torch.Tensor]:
    return list(function.buffers()) if isinstance(function, torch.nn.Module) else []
