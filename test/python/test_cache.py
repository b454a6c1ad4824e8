# ===- test_cache.py - Where compiled kernels are kept ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The caches: of kernels, and of whole programs in PyTorch's own."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch._functorch import config as functorch_config

import intarsia
from intarsia import _fingerprint
from intarsia._fingerprint import Hasher
from intarsia._namespaces import SHIPPED, custom_operators

PROGRAM = """
import torch, warnings
warnings.simplefilter("ignore")
import intarsia
f = lambda x: torch.tanh(x) * 2
x = torch.randn(5, 7)
with torch.no_grad(), intarsia.record_compilations() as compilations:
    y = torch.compile(f, backend="intarsia")(x)
torch.testing.assert_close(y, f(x))
print(compilations[0].program.kernel_count)
"""


def run(cache: Path, program: str = PROGRAM, **variables: str) -> str:
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(cache), **variables}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_second_process_finds_the_kernels(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    (library,) = (tmp_path / "kernels").iterdir()
    before = library.stat().st_mtime_ns
    assert run(tmp_path) == "1"
    assert library.stat().st_mtime_ns == before


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    run(tmp_path)
    (library,) = (tmp_path / "kernels").iterdir()
    whole = library.read_bytes()
    library.write_bytes(whole[:100])
    assert run(tmp_path) == "1"
    assert library.read_bytes() == whole


def test_kernels_run_from_memory_where_no_cache_can_be_written(tmp_path: Path) -> None:
    # A file where the folder should be: nobody, root included, can write below it.
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(blocked / "cache") == "1"


# --- PyTorch's cache of AOTAutograd results ---------------------------------------

TRAINING = """
import os, sys, torch, intarsia

SCALE = float(os.environ.get("SCALE", "2"))

@torch.library.custom_op("cachetest::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by

@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)

def setup_context(ctx, inputs, output):
    ctx.by = inputs[1]

def backward(ctx, grad):
    return scaled(grad, ctx.by * SCALE / 2), None

scaled.register_autograd(backward, setup_context=setup_context)

def f(x):
    return scaled(torch.tanh(x), 3.0).softmax(-1).sin()

if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
    torch.compiler.load_cache_artifacts(open(sys.argv[1], "rb").read())
x = torch.randn(5, 7, requires_grad=True)
options = {"fuse": os.environ.get("FUSE") != "0"}
with intarsia.record_compilations() as compilations:
    y = torch.compile(f, backend="intarsia", options=options)(x)
    (got,) = torch.autograd.grad(y.sum(), x)
want_y = f(x)
(want,) = torch.autograd.grad(want_y.sum(), x)
torch.testing.assert_close(y, want_y)
torch.testing.assert_close(got, want)
if len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "wb").write(torch.compiler.save_cache_artifacts()[0])
for name in ("compile_fx", "lowering", "select_algorithm", "codegen.triton"):
    assert f"torch._inductor.{name}" not in sys.modules
traced = "aot_trace_joint_graph" in torch._dynamo.utils.compilation_time_metrics
print([(c.kind, c.cached) for c in compilations], "traced" if traced else "")
"""

COMPILED = "[('forward', False), ('backward', False)] traced"
FOUND = "[('forward', True), ('backward', True)]"


TRITON = """
import contextlib, sys, torch, torch._dynamo, intarsia
from torch._subclasses import FakeTensorMode
sys.path.insert(0, sys.argv[1])
import triton_kernels

found = []
for op in (lambda x: triton_kernels.add_op(x, x), triton_kernels.double_op):
    with FakeTensorMode(), intarsia.record_compilations() as compilations:
        x = torch.empty(100, 48, device="cuda:0")
        with contextlib.suppress(RuntimeError):  # fake tensors have no memory
            torch.compile(lambda x: op(x * 2), backend="intarsia")(x)
    found += [c.cached for c in compilations]
print(found)
"""


def test_kernels_of_triton(tmp_path: Path) -> None:
    """Found by their source. What Python launches is known by a number in one process."""
    pytest.importorskip("triton")
    source = tmp_path / "triton_kernels.py"
    text = (Path(__file__).parent / "triton_kernels.py").read_text()

    def found(text: str) -> str:
        source.write_text(text)
        return run(
            tmp_path / "kernels",
            f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]\n" + TRITON,
            TORCHINDUCTOR_AUTOGRAD_CACHE="1",
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
        )

    assert found(text) == "[False, False]"
    assert found(text) == "[True, False]"
    assert found(text.replace("mask=inside) + tl.load", "mask=inside) - tl.load")) == (
        "[False, False]"
    )


def test_a_second_process_neither_traces_nor_compiles(tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"

    def train(folder: str, **variables: str) -> str:
        code = f"import sys; sys.argv[1:] = [{str(artifacts)!r}]\n" + TRAINING
        return run(
            tmp_path / folder,
            code,
            TORCHINDUCTOR_AUTOGRAD_CACHE="1",
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / folder),
            **variables,
        )

    assert train("here") == COMPILED
    assert train("here") == FOUND
    # Another value of a global that the backward formula names; other options.
    assert train("here", SCALE="3") == COMPILED
    assert train("here", FUSE="0") == COMPILED
    # On another machine, with what save_cache_artifacts wrote.
    assert train("there") == FOUND


OVERLAPPING = """
import torch

def f(x, y):
    x.mul_(3)
    return y + 1

for first, shared in ((1, True), (4, True), (0, False)):
    got, want = torch.arange(64.0), torch.arange(64.0)
    results = []
    for base, run in ((got, torch.compile(f, backend="intarsia", dynamic=False)), (want, f)):
        other = base if shared else base.clone()
        results.append(run(base[first : first + 50], other[:50]))
    torch.testing.assert_close(*results)
    torch.testing.assert_close(got, want)
    torch._dynamo.reset()
"""


def test_a_program_of_overlapping_inputs_is_for_these(tmp_path: Path) -> None:
    """PyTorch's key has neither that inputs overlap nor where they begin."""
    run(
        tmp_path,
        OVERLAPPING,
        TORCHINDUCTOR_AUTOGRAD_CACHE="1",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )


def digest(name: str = "cachetest_plain::op") -> str:
    hasher = Hasher()
    hasher.add_operator(name)
    return hasher.digest()


def op_with(
    backward: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    schema: str = "(Tensor x) -> Tensor",
    tags: Any = (),
) -> Callable[[], Any]:
    """A function that registers cachetest_plain::op in this way and returns its library."""

    def register() -> Any:
        library = torch.library.Library("cachetest_plain", "FRAGMENT")
        library.define(f"op{schema}", tags=tags)
        library.impl("op", lambda x: x.clone(), "CPU")
        torch.library.register_fake(
            "cachetest_plain::op", fake or (lambda x: torch.empty_like(x)), lib=library
        )
        if backward is not None:
            torch.library.register_autograd("cachetest_plain::op", backward, lib=library)
        return library

    return register


def times(factor: float) -> Callable[..., Any]:
    return lambda ctx, grad: grad * factor


def digest_with(register: Callable[[], Any]) -> str:
    library = register()
    try:
        return digest()
    finally:
        library._destroy()


@pytest.mark.parametrize(
    "one, other",
    [
        (op_with(times(2.0)), op_with(times(3.0))),
        (op_with(times(2.0)), op_with(lambda ctx, grad: grad + 2.0)),
        (op_with(), op_with(fake=lambda x: torch.empty_like(x).contiguous())),
        (op_with(), op_with(schema="(Tensor(a!) x) -> Tensor")),
        (op_with(), op_with(tags=(torch.Tag.needs_exact_strides,))),
    ],
    ids=["closure", "code", "fake", "mutation", "tag"],
)
def test_another_registration_is_another_key(
    one: Callable[[], Any], other: Callable[[], Any]
) -> None:
    before = digest_with(one)
    assert digest_with(one) == before
    assert digest_with(other) != before
    assert digest_with(one) == before


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., bool]]:
    """A function that compiles and checks another with PyTorch's cache, empty at first, as
    a new process would, and says whether its programs were found there."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # What other tests of this process have left registered does not count.
    overrides, operators = _fingerprint._overrides, _fingerprint.custom_operators
    before = set(overrides())
    monkeypatch.setattr(_fingerprint, "_overrides", lambda: set(overrides()) - before)
    monkeypatch.setattr(
        _fingerprint,
        "custom_operators",
        lambda: [name for name in operators() if name.startswith("cachetest")],
    )

    def compile_and_check(f: Callable[..., Any], *inputs: torch.Tensor) -> bool:
        torch._dynamo.reset()
        gc.collect()  # formulas of operators that are gone
        results = []
        with intarsia.record_compilations() as compilations:
            for run in (torch.compile(f, backend="intarsia"), f):
                own = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
                result = run(*own)
                needed = [x for x in own if x.requires_grad]
                gradients = torch.autograd.grad(result.sum(), needed) if needed else ()
                results.append((result.detach(), gradients, [x.detach() for x in own]))
        torch.testing.assert_close(*results)
        assert results[0][0].stride() == results[1][0].stride()
        cached = {c.cached for c in compilations}
        assert len(cached) == 1
        return cached.pop()

    with functorch_config.patch(enable_autograd_cache=True):
        yield compile_and_check


def add_one(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()


def registered(
    schema: str = "(Tensor x) -> Tensor",
    kernel: Callable[..., torch.Tensor] = torch.clone,
    fake: Callable[..., torch.Tensor] = torch.empty_like,
    backward: Callable[..., Any] | None = None,
    tags: Any = (),
) -> Any:
    library = torch.library.Library("cachetest_same", "FRAGMENT")
    library.define(f"op{schema}", tags=tags)
    library.impl("op", kernel, "CPU")
    torch.library.register_fake("cachetest_same::op", fake, lib=library)
    if backward is not None:
        torch.library.register_autograd("cachetest_same::op", backward, lib=library)
    return library


@pytest.mark.parametrize(
    "one, other, training",
    [
        ({}, {"schema": "(Tensor(a!) x) -> Tensor", "kernel": add_one}, False),
        (
            {},
            {
                "kernel": lambda x: x.t().contiguous().t().double(),
                "fake": lambda x: torch.empty(x.shape[::-1], dtype=torch.float64).t(),
            },
            False,
        ),
        (
            {
                "schema": "(Tensor x, float by=2.) -> Tensor",
                "kernel": lambda x, by=2.0: x * by,
                "fake": lambda x, by=2.0: torch.empty_like(x),
            },
            {
                "schema": "(Tensor x, float by=3.) -> Tensor",
                "kernel": lambda x, by=3.0: x * by,
                "fake": lambda x, by=3.0: torch.empty_like(x),
            },
            False,
        ),
        ({"backward": times(2.0)}, {"backward": times(3.0)}, True),
    ],
    ids=["mutation", "fake", "default", "backward"],
)
def test_the_same_graph_of_other_registrations(found, one, other, training) -> None:
    x = torch.randn(4, 3, requires_grad=training)
    for registration, known in ((one, False), (one, True), (other, False), (one, True)):
        library = registered(**registration)
        try:
            assert found(lambda x: torch.ops.cachetest_same.op(x * 2) + x, x) == known
        finally:
            library._destroy()


def test_programs_that_order_their_calls(found) -> None:
    """PyTorch's cache would find them without their tokens: they aren't kept there."""
    x = torch.eye(3)
    for _ in range(2):
        assert not found(lambda x: torch.linalg.inv(x * 2) + 1, x)


def test_an_attribute_that_a_formula_reads_in_a_module(found) -> None:
    """Of a user's module, what it had when the program was traced counts, not its file."""
    module = types.ModuleType("cachetest_module")
    library = registered(backward=lambda ctx, grad: grad * module.SCALE)  # type: ignore[attr-defined]
    try:
        for scale, known in ((2.0, False), (2.0, True), (3.0, False)):
            module.SCALE = scale  # type: ignore[attr-defined]
            x = torch.randn(3, requires_grad=True)
            assert found(lambda x: torch.ops.cachetest_same.op(x.sin()), x) == known
    finally:
        library._destroy()


class Scale:
    """An object whose class decides what a formula computes."""

    def __init__(self, by: Any = None) -> None:
        self.by = by

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @property
    def factor(self) -> float:
        return 2.0


class Factor(NamedTuple):
    name: str

    def value(self) -> float:
        return 2.0


@functools.cache
def factor() -> float:
    return 2.0


def three(*_: Any) -> float:
    return 3.0


def named(name: str, function: Callable[..., Any]) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


def import_in_a_formula(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    from cachetest_imported import SCALE

    return grad * SCALE


SCALED = Scale()
FACTOR = Factor("two")

#: A formula, and where what it depends on is changed: an object, its attribute, and the value.
FORMULAS: dict[str, tuple[Callable[..., Any], Callable[[], Any], str, Any]] = {
    "class of a bound object": (
        lambda ctx, grad: SCALED.times(grad),
        *(lambda: Scale, "times", lambda self, x: x * 3),
    ),
    "class in an object": (
        lambda ctx, grad: HOLDER.by.times(grad),
        *(lambda: Scale, "times", lambda self, x: x * 3),
    ),
    "property": (
        lambda ctx, grad: grad * SCALED.factor,
        *(lambda: Scale, "factor", property(three)),
    ),
    "named tuple": (lambda ctx, grad: grad * FACTOR.value(), lambda: Factor, "value", three),
    "cached function": (
        lambda ctx, grad: grad * factor(),
        *(lambda: sys.modules[__name__], "factor", functools.cache(named("factor", lambda: 3.0))),
    ),
    "import when it runs": (
        import_in_a_formula,
        *(lambda: sys.modules["cachetest_imported"], "SCALE", 3.0),
    ),
    "bound method of a builtin": (
        lambda ctx, grad: grad * LOOKED_UP("factor"),
        *(lambda: sys.modules[__name__], "LOOKED_UP", {"factor": 3.0}.get),
    ),
}
HOLDER = Scale(SCALED)
LOOKED_UP = {"factor": 2.0}.get


@pytest.mark.parametrize("name", FORMULAS)
def test_what_a_formula_reaches(found, monkeypatch, name: str) -> None:
    """What is named is followed to what it does: found while that stays, and not after."""
    imported = types.ModuleType("cachetest_imported")
    imported.SCALE = 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cachetest_imported", imported)
    formula, holder, attribute, value = FORMULAS[name]
    library = registered(backward=formula)
    try:
        x = torch.randn(3, requires_grad=True)
        for known in (False, True):
            assert found(lambda x: torch.ops.cachetest_same.op(x.sin()), x) == known
        monkeypatch.setattr(holder(), attribute, value)
        assert not found(lambda x: torch.ops.cachetest_same.op(x.sin()), x)
    finally:
        library._destroy()


def test_a_module_that_a_formula_will_import(found) -> None:
    """What it will have is not known."""
    library = registered(backward=import_in_a_formula)
    try:
        assert digest("cachetest_same::op") != digest("cachetest_same::op")
    finally:
        library._destroy()


@pytest.mark.parametrize("key", ["Autograd", "Meta", "CompositeImplicitAutograd"])
def test_python_in_the_place_of_a_kernel_of_pytorchs(found, key: str) -> None:
    """It is traced, and cannot be compared: nothing of it is kept or found."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.frac(x) * 2 + torch.arccosh(x)

    def compiled() -> bool:
        return found(f, torch.tensor([1.5, 2.25], requires_grad=True))

    assert not compiled()
    library = torch.library.Library("aten", "IMPL")
    if key == "Meta":
        library.impl("frac", lambda x: x.new_empty(x.shape), key)
    else:
        name = "frac" if key == "Autograd" else "arccosh"
        library.impl(name, lambda x: torch.tanh(x) * 3, key)
    try:
        assert not compiled()
        assert not compiled()
    finally:
        library._destroy()
    assert compiled()


def test_operators_that_a_graph_cannot_reach_do_not_count(found) -> None:
    """Those of a library that is merely imported, whose kernels cannot be compared."""
    library = torch.library.Library("cachetest_plain", "FRAGMENT")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x + 1, "CompositeImplicitAutograd")
    try:
        x = torch.randn(3, requires_grad=True)
        assert [found(lambda x: x.sin() * 2, x) for _ in range(2)] == [False, True]
        f = torch.ops.cachetest_plain.composite
        assert [found(lambda x: f(x) * 2, x) for _ in range(2)] == [False, False]
    finally:
        library._destroy()


@pytest.mark.parametrize("where", ["nowhere", "formula", "fake", "backward of another"])
def test_what_calls_an_operator_that_cannot_be_compared(found, where: str) -> None:
    """Only that is kept out of the cache, wherever tracing calls it."""
    library = torch.library.Library("cachetest_plain", "FRAGMENT")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x * 2, "CompositeImplicitAutograd")
    composite = torch.ops.cachetest_plain.composite
    registration: dict[str, Any] = {"backward": times(2.0)}
    if where == "formula":
        registration["backward"] = lambda ctx, grad: composite(grad)
    elif where == "fake":
        registration["fake"] = lambda x: torch.empty_like(composite(x))
    other = registered(**registration)
    if where == "backward of another":
        library.define("second(Tensor x) -> Tensor")
        library.impl("second", lambda x: x.clone(), "CPU")
        torch.library.register_fake("cachetest_plain::second", torch.empty_like, lib=library)
        torch.library.register_autograd(
            "cachetest_plain::second", lambda ctx, grad: composite(grad) / 2, lib=library
        )
    second = torch.ops.cachetest_plain.second if where == "backward of another" else torch.neg
    try:
        x = torch.randn(3, requires_grad=True)
        op = torch.ops.cachetest_same.op
        answers = [found(lambda x: second(op(x.sin())), x) for _ in range(2)]
        assert answers == [False, where == "nowhere"]
    finally:
        other._destroy()
        library._destroy()


def test_what_cannot_be_compared_is_not_found_again() -> None:
    library = torch.library.Library("cachetest_plain", "FRAGMENT")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x + 1, "CompositeImplicitAutograd")
    try:
        assert digest("cachetest_plain::composite") != digest("cachetest_plain::composite")
    finally:
        library._destroy()


def test_a_kernel_of_an_operator_that_is_not_defined() -> None:
    """A library may bring kernels for names whose schema another one never gave."""
    library = torch.library.Library("cachetest_absent", "FRAGMENT")
    library.impl("nothing", lambda x: x, "CPU")
    try:
        x = torch.randn(3)
        with functorch_config.patch(enable_autograd_cache=True):
            got = torch.compile(lambda x: torch.sin(x) * 2, backend="intarsia")(x)
        torch.testing.assert_close(got, torch.sin(x) * 2)
        assert not any("cachetest_absent" in name for name in custom_operators())
    finally:
        library._destroy()


def test_which_namespaces_are_pytorchs() -> None:
    code = """
import torch, torch._inductor.compile_fx, torch.distributed, torch.export
print(*sorted({n.partition("::")[0] for n in torch._C._dispatch_get_all_op_names()}))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert set(output.split()) <= SHIPPED


def test_a_program_is_copied_and_pickled() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2 + torch.tensor([1.0, 2.0, 3.0])

    x = torch.randn(2, 3)
    with torch.no_grad(), intarsia.record_compilations() as compilations:
        torch.compile(f, backend="intarsia")(x)
    (program,) = (c.program for c in compilations)
    assert program.kernel_count > 0
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        torch.testing.assert_close(other([x])[0], f(x))
        assert other.kernel_count == program.kernel_count
