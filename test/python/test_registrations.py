# ===- test_registrations.py - Every way to register an operator -------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Eager against compiled for each way to register an operator, at both doors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import assert_same, clone_inputs
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import intarsia

BUILD = Path(os.environ.get("INTARSIA_BUILD_DIR", Path(__file__).parents[2] / "build"))
LIBRARY = BUILD / "test" / "unit" / "RegistrationTestOperators.so"


@pytest.fixture(scope="module", autouse=True)
def cpp_library() -> Path:
    torch.ops.load_library(LIBRARY)
    import registered_fakes  # noqa: F401

    return LIBRARY


def compare(through: Callable, function: Callable, *inputs: Any, **kwargs: Any) -> Any:
    compiled = through(function, *clone_inputs(inputs), **kwargs)
    for _ in range(2):
        want_inputs, got_inputs = clone_inputs(inputs), clone_inputs(inputs)
        assert_same(compiled(*got_inputs), function(*want_inputs))
        assert_same(got_inputs, want_inputs)
    return compiled


def calls(compiled: Any, x: Tensor) -> str:
    """The plan that a call of `compiled` runs."""
    if isinstance(compiled, intarsia.LoadedProgram):
        return compiled.plan_text
    torch._dynamo.reset()
    with intarsia.record_compilations() as compilations:
        compiled(x)
    return compilations[0].program.plan_text


# --- C++ --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.registrations.scaled(x + 1, 2.5) * 2,
        lambda x: torch.ops.registrations.scaled_too(x + 1, 2.5) * 2,
        lambda x: torch.ops.registrations.doubled(x + 1) * 2,
        lambda x: torch.ops.registrations.doubled.by(x + 1, 3) * 2,
        lambda x: torch.ops.registrations.implicit(x + 1) * 2,
        lambda x: torch.ops.registrations.explicit_kernel(x + 1) * 2,
        lambda x: torch.ops.registrations.cubed(x + 1) * 2,
    ],
    ids=["python_module", "pystub", "meta", "overload", "implicit", "explicit", "autograd"],
)
def test_cpp(through, function):
    compare(through, function, torch.randn(3, 4))


def test_cpp_that_writes(through):
    def f(x, y):
        z = x * 2
        torch.ops.registrations.add_into_(z, y)
        torch.ops.registrations.add_into_(x, z)
        return z.sin()

    compare(through, f, torch.randn(3), torch.randn(3))


def test_cpp_autograd(check):
    x = torch.randn(3, requires_grad=True)
    check(lambda x: torch.ops.registrations.cubed(x * 2) + 1, [x], training=True)


def test_cpp_fake_that_is_wrong(through):
    f = through(lambda x: torch.ops.registrations.longer(x + 1), torch.ones(3))
    with pytest.raises(intarsia.ContractError, match=r"size \[3\].*promised \[4\]") as caught:
        f(torch.ones(3))
    # Where the Meta kernel was registered.
    assert "Registrations.cpp:" in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["index", "value", "type", "missing", "standard", "range", "number", "check"]
)
def test_cpp_exceptions(through, kind):
    def f(x):
        return torch.ops.registrations.throwing(x * 2, kind) + 1

    x = torch.ones(3)
    g = through(f, x)
    errors = []
    for h in (f, g):
        with pytest.raises(Exception) as caught:
            h(x)
        errors.append(caught.value)
    eager, compiled = errors
    assert type(compiled) is type(eager)
    assert str(compiled).splitlines()[0] == str(eager).splitlines()[0]
    notes = "\n".join(compiled.__notes__)
    assert "registrations::throwing" in notes and ".py:" in notes


# --- Python -----------------------------------------------------------------------

python = torch.library.Library("registrations", "FRAGMENT")

python.define("from_library(Tensor x) -> Tensor")
python.impl("from_library", lambda x: x.sin(), "CPU")
python.impl("from_library", lambda x: torch.empty_like(x), "Meta")

python.define("python_implicit(Tensor x) -> Tensor")
python.impl("python_implicit", lambda x: x.sin() * 2, "CompositeImplicitAutograd")

torch.library.define("registrations::by_function", "(Tensor x, int n) -> Tensor")


@torch.library.impl("registrations::by_function", "cpu")
def _(x, n):
    return x.repeat(n)


@torch.library.register_fake("registrations::by_function")
def _(x, n):
    return x.new_empty(x.shape[0] * n)


torch.library.define("registrations::by_device", "(Tensor x) -> Tensor")


@torch.library.register_kernel("registrations::by_device", "cpu")
def _(x):
    return x + 10


@torch.library.register_kernel("registrations::by_device", "cuda")
def _(x):
    return x + 20


torch.library.register_fake("registrations::by_device", torch.empty_like)


@torch.library.custom_op("registrations::cpu_only", mutates_args=(), device_types="cpu")
def cpu_only(x: Tensor) -> Tensor:
    return x + 1


cpu_only.register_fake(torch.empty_like)


@cpu_only.register_kernel("cuda")
def _(x):
    return x + 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.registrations.from_library(x * 2) + 1,
        lambda x: torch.ops.registrations.python_implicit(x * 2) + 1,
        lambda x: torch.ops.registrations.by_function(x * 2, 3) + 1,
        lambda x: torch.ops.registrations.by_device(x * 2) + 1,
        lambda x: cpu_only(x * 2) + 1,
        lambda x: torch.ops.registrations.cpu_only(x * 2) + 1,
    ],
    ids=["library", "implicit", "function", "device", "custom_op", "custom_op_by_name"],
)
def test_python(through, function):
    compare(through, function, torch.randn(4))


def test_composite_operators_are_looked_into(compile_with):
    """There is no kernel to call: PyTorch traces what they consist of."""
    f = compile_with(lambda x: torch.ops.registrations.python_implicit(x * 2) + 1)
    assert "call registrations::" not in calls(f, torch.ones(4))


@torch.library.custom_op("registrations::differentiated", mutates_args=())
def differentiated(x: Tensor, n: int, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return x**n, x + (0 if y is None else y)


differentiated.register_fake(lambda x, n, y=None: (torch.empty_like(x), torch.empty_like(x)))


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.n, ctx.has_y = inputs[1], inputs[2] is not None


def _backward(ctx, first, second):
    (x,) = ctx.saved_tensors
    return first * ctx.n * x ** (ctx.n - 1) + second, None, second if ctx.has_y else None


differentiated.register_autograd(_backward, setup_context=_setup)

torch.library.define("registrations::autograd_later", "(Tensor x, float factor) -> Tensor")
torch.library.impl("registrations::autograd_later", "cpu", lambda x, factor: x * factor)
torch.library.register_fake("registrations::autograd_later", lambda x, factor: torch.empty_like(x))
torch.library.register_autograd(
    "registrations::autograd_later",
    lambda ctx, grad: (grad * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


def test_register_autograd(check):
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    check(lambda x: differentiated(x * 2, 3)[0] + 1, [x], training=True)
    check(lambda x, y: differentiated(x * 2, 3, y), [x, y], training=True)
    later = torch.ops.registrations.autograd_later
    check(lambda x: later(x * 2, 2.5) + 1, [x], training=True)


AUTOCAST: list[tuple[torch.dtype, ...]] = []


@torch.library.custom_op("registrations::mixed", mutates_args=())
def mixed(x: Tensor, y: Tensor) -> Tensor:
    AUTOCAST.append((x.dtype, y.dtype, (torch.ones(2, 2) @ torch.ones(2, 2)).dtype))
    return x + y


mixed.register_fake(lambda x, y: torch.empty_like(x))
mixed.register_autocast("cpu", torch.bfloat16)


def test_register_autocast(check):
    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mixed(x * 2, x)
        return y, mixed(x, x)

    AUTOCAST.clear()
    check(inside, [torch.randn(3)])
    assert len(AUTOCAST) == 4 and AUTOCAST[:2] == AUTOCAST[2:]

    AUTOCAST.clear()
    torch._dynamo.reset()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(lambda x: mixed(x * 2, x), [torch.randn(3)])
    assert AUTOCAST[0] == AUTOCAST[1]


@torch.library.custom_op("registrations::rows_reversed", mutates_args=())
def rows_reversed(x: Tensor) -> Tensor:
    assert x.dim() == 1
    return x.flip(0)


rows_reversed.register_fake(torch.empty_like)


@torch.library.custom_op("registrations::batch_reversed", mutates_args=())
def batch_reversed(x: Tensor) -> Tensor:
    return x.flip(1)


batch_reversed.register_fake(torch.empty_like)


@rows_reversed.register_vmap
def _(info, in_dims, x):
    return batch_reversed(x.movedim(in_dims[0], 0)), 0


def test_register_vmap(through):
    f = compare(through, torch.func.vmap(lambda x: rows_reversed(x * 2) + 1), torch.randn(5, 3))
    # The rule was applied while it was traced: one call for the whole batch.
    assert calls(f, torch.ones(5, 3)).count("call registrations::batch_reversed") == 1


class Counting(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


torch.library.define("registrations::ruled", "(Tensor x) -> Tensor")
torch.library.impl("registrations::ruled", "cpu", lambda x: x + 1)
torch.library.register_fake("registrations::ruled", torch.empty_like)


@torch.library.register_torch_dispatch("registrations::ruled", Counting)
def _(mode, func, types, args, kwargs):
    Counting.seen += 1
    return func(*args, **(kwargs or {})) * 10


def test_register_torch_dispatch(through):
    def f(x):
        return torch.ops.registrations.ruled(x * 2)

    x = torch.ones(3)
    compiled = compare(through, f, x)
    if not isinstance(compiled, intarsia.LoadedProgram):
        return  # Dynamo compiles nothing while a mode is active
    results = []
    for g in (f, compiled):
        Counting.seen = 0
        with Counting():
            results.append(g(x))
        assert Counting.seen == 1
    assert_same(results[1], results[0])


# --- Triton -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def triton_add():
    triton = pytest.importorskip("triton")
    source = Path(__file__).with_name("triton_kernels.py")
    assert source.exists()
    import triton_kernels

    @torch.library.triton_op("registrations::triton_add", mutates_args=())
    def add(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(triton_kernels.add)[(triton.cdiv(x.numel(), 64),)](
            x, y, out, x.numel(), BLOCK=64
        )
        return out

    return add


def test_triton_op(triton_add, through):
    """Without a GPU it compiles; only the launch fails, and says what it needs."""
    x = torch.randn(100)
    if torch.cuda.is_available():
        x = x.cuda()
    f = through(lambda x: triton_add(x * 2, x) + 1, x)
    if torch.cuda.is_available():
        torch.testing.assert_close(f(x), x * 3 + 1)
        return
    with pytest.raises(Exception) as caught:
        f(x)
    text = f"{caught.value}\n" + "\n".join(caught.value.__notes__)
    assert "Triton" in text or "driver" in text
    assert "triton" in "\n".join(caught.value.__notes__)


# --- No fake ----------------------------------------------------------------------


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def test_no_fake_through_torch_compile(compile_with):
    with pytest.raises(Exception) as caught:
        compile_with(lambda x: torch.ops.registrations.no_fake(x, [1])[0])(torch.ones(3))
    _check_advice(notes_of(caught.value))


def _check_advice(text: str) -> None:
    assert "no_fake(Tensor x, int[] dims, *, Tensor? bias=None) -> Tensor[]" in text
    assert "library: registrations, defined at " in text and "Registrations.cpp:" in text
    assert '@torch.library.register_fake("registrations::no_fake")' in text
    assert "def _(x, dims, *, bias):" in text
    assert "return [torch.empty_like(x)]" in text


class NoFake(torch.nn.Module):
    def forward(self, x):
        return torch.ops.registrations.no_fake(x * 2, [1])[0]


@pytest.mark.parametrize("strict", [False, True])
def test_no_fake_at_export(strict):
    with pytest.raises(Exception) as caught:
        intarsia.export(NoFake(), (torch.ones(3),), strict=strict)
    _check_advice(notes_of(caught.value))


def test_export_is_pytorchs_export(tmp_path):
    program = intarsia.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    assert isinstance(program, torch.export.ExportedProgram)
    with pytest.raises(torch._dynamo.exc.UserError) as caught:
        intarsia.export(torch.nn.Linear(3, 2), torch.ones(1, 3))
    assert not hasattr(caught.value, "__notes__")


def test_skeleton_fits_every_schema():
    """What is to be pasted is Python, and returns what the schema wants."""
    from intarsia._fakes import fake_skeleton

    schemas = [
        "() -> ()",
        "(Tensor x) -> ()",
        "(SymInt n) -> Tensor",
        "(Tensor? a, Tensor b) -> (Tensor, Tensor?)",
        "(Tensor[] xs, *, int n=1) -> Tensor[]",
        "(Tensor(a!) x, Tensor y) -> Tensor(a!)",
        "(Tensor x) -> (Tensor, SymInt, float)",
        "(Tensor self, Tensor input, Tensor out) -> Tensor",
    ]
    for i, schema in enumerate(schemas):
        torch.library.define(f"registrations::skeleton{i}", schema)
        text = fake_skeleton(f"registrations::skeleton{i}")
        code = "\n".join(line[4:] for line in text.split("\n\n", 1)[1].splitlines())
        scope: dict[str, Any] = {"torch": torch}
        exec(code, scope)
        signature = getattr(torch.ops.registrations, f"skeleton{i}").default._schema
        x = torch.empty(2, device="meta")
        kinds = {"Tensor": x, "Optional[Tensor]": x, "List[Tensor]": [x]}
        named = {a.name: kinds.get(str(a.type), 1) for a in signature.arguments}
        if "torch.empty(...)" in code:
            continue  # nothing to derive the sizes from
        result = scope["_"](**named)
        count = len(signature.returns)
        assert result is None if count == 0 else count == 1 or len(result) == count


def test_missing_operators_are_named(tmp_path):
    """From a process that has not loaded the library: the CLI and intarsia.load."""
    import subprocess

    class M(torch.nn.Module):
        def forward(self, x):
            return torch.ops.registrations.doubled(x) + 1

    saved, compiled = tmp_path / "saved.pt2", tmp_path / "compiled.pt2"
    torch.export.save(torch.export.export(M(), (torch.ones(3),)), saved)
    intarsia.aot_compile(saved, compiled)
    tool = BUILD / "bin" / "intarsia-compile"
    result = subprocess.run(
        [tool, saved, "-o", tmp_path / "again.pt2"], capture_output=True, text=True
    )
    assert result.returncode != 0
    for word in ("registrations::doubled", "--op-library"):
        assert word in result.stderr
    script = f"import intarsia; intarsia.load({str(compiled)!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    for word in (
        "LoadError",
        "registrations::doubled(Tensor x) -> Tensor",
        "--op-library",
        "import the module",
    ):
        assert word in result.stderr


# --- In PyTorch's own namespaces ---------------------------------------------------


@pytest.fixture
def in_aten():
    """What is registered there goes when the test is over."""
    libraries = []

    def library(kind):
        libraries.append(torch.library.Library("aten", kind))
        return libraries[-1]

    yield library
    for made in libraries:
        made._destroy()
    torch._dynamo.reset()


def test_only_what_others_register_is_theirs():
    from intarsia._extension import extension
    from intarsia._namespaces import SHIPPED, is_pytorchs

    names = [n for n in torch._C._dispatch_get_all_op_names() if n.partition("::")[0] in SHIPPED]
    assert len(names) > 3000
    assert [n for n in names if not is_pytorchs(n, SHIPPED)] == []
    sample = [n for n in names if n.startswith(("aten::", "prims::"))][::10]
    schemas = [extension().operator_schema(name) for name in sample]
    assert [s for s in schemas if s and '"foreign"' in s] == []


@pytest.mark.filterwarnings("ignore:.*Overriding a previously registered kernel")
def test_a_kernel_in_the_place_of_pytorchs(in_aten, compile_with, tmp_path):
    def function(x):
        return x.erfc() * 2, torch.special.erfcx(x) + 1

    in_aten("IMPL").impl("erfc", lambda x: torch.full_like(x, 7), "CPU")
    x = torch.zeros(70)
    want = (torch.full((70,), 14.0), torch.full((70,), 2.0))
    assert_same(function(x), want)
    assert_same(compile_with(function)(x), want)

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    program = torch.export.export(Module(), (x,))
    assert_same(intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))(x), want)


def test_what_torch_library_defines_in_pytorchs_namespace():
    from intarsia._extension import extension
    from intarsia._namespaces import is_pytorchs

    torch.library.define("aten::of_anybody", "(Tensor x) -> Tensor")
    try:
        assert not is_pytorchs("aten::of_anybody")
        assert json.loads(extension().operator_schema("aten::of_anybody"))["foreign"]
    finally:
        torch.library._keep_alive.pop()._destroy()


def test_an_operator_in_pytorchs_namespace(in_aten, compile_with):
    seen = []
    library = in_aten("FRAGMENT")
    library.define("of_a_user(Tensor x) -> Tensor")
    kernel = lambda x: (seen.append(x.stride()), x.double() if x[0, 0] > 2 else x * 2)[1]  # noqa: E731
    library.impl("of_a_user", kernel, "CPU")
    torch.library.register_fake("aten::of_a_user", lambda x: torch.empty_like(x), lib=library)
    op = torch.ops.aten.of_a_user

    def unused(x):
        y = (x + 1).t()
        op(y), op(y)
        return y * 2

    x = torch.ones(2, 3)
    assert_same(compile_with(unused)(x), unused(x), strides=False)
    assert seen == [(1, 3)] * 4
    with pytest.raises(intarsia.ContractError, match=r"of_a_user.*float64.*promised float32"):
        compile_with(lambda x: op(x) + 1)(x * 3)
