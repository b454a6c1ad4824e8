# ===- test_contract.py - What a kernel may do, and what it must -------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""An opaque call is a contract, kept by both sides, through both doors."""

from __future__ import annotations

import gc
import re
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import intarsia

library = torch.library.Library("contract", "FRAGMENT")


def register(schema: str, kernel: Callable, fake: Callable, **kwargs: Any) -> Any:
    """``torch.ops.contract.<name>``, and where its fake is."""
    name = schema.partition("(")[0]
    library.define(schema, **kwargs)
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"contract::{name}", fake, lib=library)
    return getattr(torch.ops.contract, name)


#: Where a call stands. Export records the line of the module's ``forward``.
CALLED = re.compile(r"(test_contract|conftest)\.py:\d+ in \S+: ")


def place_of(function: Callable) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


# --- What comes back --------------------------------------------------------------


def like(x):
    return torch.empty_like(x)


def two_like(x):
    return torch.empty_like(x), torch.empty_like(x)


def list_like(x):
    return [torch.empty_like(x), torch.empty_like(x)]


def unknown(x):
    n = torch.library.get_ctx().new_dynamic_size(min=2, max=4)
    return x.new_empty(n), x.new_empty(n, 3)


def maybe(x):
    return torch.empty_like(x), None


def number(x):
    return torch.empty_like(x), torch.library.get_ctx().new_dynamic_size(min=1)


# name: schema's results, kernel, fake, words of the error.
BROKEN = {
    "dtype": ("Tensor", lambda x: x.double(), like, ["output 0", "float64", "float32"]),
    "rank": ("Tensor", lambda x: x[None].clone(), like, ["output 0", "[1, 3, 4]", "[3, 4]"]),
    "size": ("Tensor", lambda x: x[:, :3].clone(), like, ["output 0", "[3, 3]", "[3, 4]"]),
    "device": ("Tensor", lambda x: x.to("meta"), like, ["output 0", "meta", "cpu"]),
    "layout": ("Tensor", lambda x: x.to_sparse(), like, ["output 0", "Sparse", "strided"]),
    "second_result": (
        "(Tensor, Tensor)",
        lambda x: (x.clone(), x.half()),
        two_like,
        ["output 1", "float16", "float32"],
    ),
    "list_length": (
        "Tensor[]",
        lambda x: [x.clone()],
        list_like,
        ["output 0", "1 members", "2"],
    ),
    "list_member": (
        "Tensor[]",
        lambda x: [x.clone(), x[:1].clone()],
        list_like,
        ["output 0[1]", "[1, 4]", "[3, 4]"],
    ),
    "none": (
        "(Tensor, Tensor?)",
        lambda x: (x.clone(), x.clone()),
        maybe,
        ["output 1", "Tensor", "None"],
    ),
    # Symbolic sizes are bound by the first place and compared at the others.
    "symbol": (
        "(Tensor, Tensor)",
        lambda x: (x.new_empty(2), x.new_empty(3, 3)),
        unknown,
        ["output 1", "[3, 3]", "[2, 3]"],
    ),
    "bound": (
        "(Tensor, Tensor)",
        lambda x: (x.new_empty(9), x.new_empty(9, 3)),
        unknown,
        ["output 0", "is 9", "from 2 to 4"],
    ),
    "number": (
        "(Tensor, SymInt)",
        lambda x: (x.clone(), 0),
        number,
        ["output 1", "is 0", "at least 1"],
    ),
    "number_alone": ("float", lambda x: 0.5, lambda x: 2.5, ["output 0", "is 0.5", "2.5"]),
    "scalar_alone": ("Scalar", lambda x: 2, lambda x: 1.5, ["output 0", "is 2", "promised 1.5"]),
    "nested": (
        "Tensor",
        lambda x: torch.nested.nested_tensor([x, x[:1]]),
        like,
        ["output 0 is a nested tensor", "a tensor of size [3, 4]"],
    ),
    "alias": ("Tensor", lambda x: x, like, ["output 0 shares memory with argument 'x'"]),
    "alias_of_view": (
        "Tensor",
        lambda x: x.t().contiguous().t() if x.dim() != 2 else x[:].view(3, 4),
        like,
        ["output 0 shares memory with argument 'x'"],
    ),
    "alias_of_result": (
        "(Tensor, Tensor)",
        lambda x: (lambda y: (y, y))(x.clone()),
        two_like,
        ["output 1 shares memory with output 0"],
    ),
    "alias_in_list": (
        "Tensor[]",
        lambda x: (lambda y: [y, y])(x.clone()),
        list_like,
        ["output 0[1] shares memory with output 0[0]"],
    ),
}
# torch.export.save cannot write what returns a number that only the kernel knows, and
# run_decompositions() drops the calls that return a number alone.
ONLY_COMPILE = {"number", "number_alone", "scalar_alone"}


@pytest.fixture(scope="module")
def broken() -> dict[str, Any]:
    return {
        name: register(f"breaks_{name}(Tensor x) -> {results}", kernel, fake)
        for name, (results, kernel, fake, _) in BROKEN.items()
    }


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("ignore:contract.*may not alias")
def test_kernel_breaks_its_promise(through, broken, name, request):
    if name in ONLY_COMPILE and "artifact" in request.node.callspec.id:
        pytest.skip("torch.export.save cannot write it")
    op, (_, _, fake, words) = broken[name], BROKEN[name]
    x = torch.ones(3, 4)
    f = through(lambda x: (op(x * 2), x + 1), x)
    with pytest.raises(intarsia.ContractError) as caught:
        f(x)
    text = str(caught.value)
    assert f"contract::breaks_{name}: " in text and CALLED.search(text)
    for word in words:
        assert word in text
    assert place_of(fake) in text
    assert ("Return a copy" in text) == ("alias" in name)


parts = register(
    "parts(Tensor x) -> (Tensor, Tensor, Tensor)",
    lambda x: (x * 2).split((1, 2, 1), 1),
    lambda x: torch.empty_like(x).split((1, 2, 1), 1),
)
overlapping = register(
    "overlapping(Tensor x) -> (Tensor, Tensor)",
    lambda x: (lambda y: (y[:, :-1], (y.clone() if x[0, 0] > 1 else y)[:, 1:]))(x * 2),
    lambda x: tuple(x.new_empty_strided((3, 3), (4, 1)) for _ in range(2)),
)
grow = register("grow(Tensor(a!) x) -> ()", lambda x: (x.resize_(5), None)[1], lambda x: None)


def test_parts_of_one_new_tensor(through):
    """Results that share a storage, and no element."""

    def f(x):
        a, b, c = parts(x)
        return a + 1, b.sin() + a, c.add_(3), b

    x = torch.arange(12.0).view(3, 4)
    assert_same(through(f, x)(x), f(x), strides=False)
    g = through(lambda x: [y + 1 for y in overlapping(x)], x)
    assert_same(g(x + 2), [x[:, :-1] * 2 + 5, x[:, 1:] * 2 + 5])
    with pytest.raises(intarsia.ContractError, match="output 1 shares memory with output 0"):
        g(x)


def test_a_write_that_resizes(through):
    f = through(lambda x: (grow(x), x.sum())[1], torch.ones(3))
    with pytest.raises(intarsia.ContractError, match=r"argument 'x' has size \[5\].* had \[3\]"):
        f(torch.ones(3))


not_itself_ = register(
    "not_itself_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1).clone(), lambda x: x
)


def test_an_argument_that_is_returned_is_the_argument(compile_with, tmp_path):
    """The program goes on with the argument: a copy would not see what is written later."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return not_itself_(x).mul_(2), x + 1

    program = torch.export.export(Module(), (torch.ones(3),))
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    for f in (compile_with(Module()), loaded):
        with pytest.raises(
            intarsia.ContractError, match=r"not_itself_: output 0 is another tensor.*schema"
        ) as caught:
            f(torch.ones(3))
        assert "test_contract.py" in str(caught.value)


#: What a kernel returns, and what its fake said.
NUMBERS = {
    "int": (4, 3),
    "SymInt": (4, 3),
    "bool": (False, True),
    "float": (0.5, float("inf")),
    "Scalar": (2.5, 2),
}


@pytest.mark.parametrize("exported_by", [torch.export.export, intarsia.export])
@pytest.mark.parametrize("how", ["exported", "saved", "code_only"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_alone_in_a_file(tmp_path, kind, how, exported_by):
    """Export puts the fake's number where the result was used; the kernel's is checked."""
    returned, promised = NUMBERS[kind]
    for name, value in (("true", promised), ("lying", returned)):
        name = f"{name}_{kind}"
        if not hasattr(torch.ops.contract, name):
            register(f"{name}(Tensor x) -> {kind}", lambda x, v=value: v, lambda x: promised)

    def compiled(op: Any) -> Any:
        class M(torch.nn.Module):
            def forward(self, x):
                return x * op(x + 1)

        program = exported_by(M(), (torch.ones(3),))
        if how != "exported":
            torch.export.save(program, tmp_path / "saved.pt2")
            program = tmp_path / "saved.pt2"
        code_only = how == "code_only"
        return intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", code_only=code_only))

    x = torch.ones(3)
    assert_same(compiled(getattr(torch.ops.contract, f"true_{kind}"))(x), x * promised)
    with pytest.raises(intarsia.ContractError) as caught:
        compiled(getattr(torch.ops.contract, f"lying_{kind}"))(x)
    for word in (f"contract::lying_{kind}: output 0 is", str(returned).lower(), "promised"):
        assert word in str(caught.value)


@pytest.mark.parametrize("code_only", [False, True])
def test_a_number_alone_in_a_region(tmp_path, code_only):
    """Regions of grad mode and of autocast are graphs of their own in a saved program."""
    for name, value in (("true_inside", 3.0), ("lying_inside", 4.0)):
        if not hasattr(torch.ops.contract, name):
            register(f"{name}(Tensor x) -> float", lambda x, v=value: v, lambda x: 3.0)
    ops = torch.ops.contract

    class M(torch.nn.Module):
        def __init__(self, op):
            super().__init__()
            self.op = op

        def forward(self, x):
            y = x * ops.true_inside(x)
            with torch.no_grad():
                y = y + ops.true_inside(y)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return y * ops.true_inside(y) * self.op(y) + x

    def compiled(op):
        saved = tmp_path / "saved.pt2"
        torch.export.save(torch.export.export(M(op), (torch.ones(3),)), saved)
        return intarsia.load(intarsia.aot_compile(saved, tmp_path / "m.pt2", code_only=code_only))

    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_same(compiled(ops.true_inside)(x), M(ops.true_inside)(x))
        with pytest.raises(intarsia.ContractError, match=r"lying_inside: output 0 is 4.*mised 3"):
            compiled(ops.lying_inside)(x)


@pytest.mark.parametrize("how", ["exported", "saved", "code_only"])
@pytest.mark.parametrize("name", ["of_none", "asked_once"])
def test_a_number_that_is_hard_to_know(tmp_path, name, how):
    """An operator without tensors; a fake that raises when it is asked once more."""
    if not hasattr(torch.ops.contract, name):
        arguments = "" if name == "of_none" else "Tensor x"
        register(f"{name}({arguments}) -> int", lambda *x: 4, lambda *x: ASKED.pop())
    op, number = getattr(torch.ops.contract, name), 0 if name == "of_none" else 1

    class M(torch.nn.Module):
        def forward(self, x):
            return x * op(*[x] * number)

    ASKED[:] = [3] if number else [3] * 9
    program = torch.export.export(M(), (torch.ones(3),))
    if how != "exported":
        torch.export.save(program, tmp_path / "saved.pt2")
        program = tmp_path / "saved.pt2"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        target = intarsia.aot_compile(program, tmp_path / "m.pt2", code_only=how == "code_only")
    texts = [str(w.message) for w in caught if "will not be compared" in str(w.message)]
    if number:
        assert texts and all("asked_once" in text for text in texts)
        assert_same(intarsia.load(target)(torch.ones(3)), torch.full((3,), 3.0))
        return
    assert not texts
    with pytest.raises(intarsia.ContractError, match=r"output 0 is 4.*promised 3"):
        intarsia.load(target)(torch.ones(3))


ASKED: list[int] = []


LAZY: dict[str, Callable[[Tensor], Any]] = {
    "negated and read": lambda x: (lambda y: (y, y + 1))(torch._neg_view(x.real + 1)),
    "conjugated and read": lambda x: (lambda y: (y, y.real + 1, y + 1))((x * 2).conj()),
    "imaginary part": lambda x: (lambda y: (y, y.sin(), y[1:]))((x * 2).conj().imag),
    "resolved": lambda x: ((x * 2).conj().resolve_conj(), (x * 2).mH, (x * 2).conj().imag.clone()),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_bits_are_those_of_eager(compile_with, name):
    """A kernel that reads a lazily negated tensor leaves it as it is."""
    x = torch.randn(3, 4, dtype=torch.complex64)
    got, want = compile_with(LAZY[name])(x), LAZY[name](x)
    assert_same(got, want)
    assert [(t.is_neg(), t.is_conj()) for t in got] == [(t.is_neg(), t.is_conj()) for t in want]


VIEWS_OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda y: y,
    "transposed": lambda y: y.t(),
    "flat": lambda y: y.view(-1),
    "split": lambda y: y.view(2, 2),
    "squeezed": lambda y: y.squeeze(),
    "unsqueezed": lambda y: y.unsqueeze(0),
    "expanded": lambda y: y.expand(3, *y.shape),
    "sliced": lambda y: y[:, :1],
    "selected": lambda y: y[0],
    "strided": lambda y: y.as_strided((4,), (1,)),
    "bits": lambda y: y.view(torch.int32),
    "complex": lambda y: torch.view_as_complex(y.view(2, 2)),
}
STRIDED_ONE: list[Any] = []


def test_strides_of_size_one(compile_with):
    """Where a fake is wrong about the stride of a dimension of size one, which nobody
    can see in the values, views of the result are still those of eager."""
    if not hasattr(torch.ops.contract, "row"):
        like_row = lambda x: x.new_empty(1, 4)  # noqa: E731
        like_column = lambda x: x.new_empty(4, 1)  # noqa: E731
        register("row(Tensor x) -> Tensor", lambda x: (x * 2).as_strided((1, 4), (1, 1)), like_row)
        register(
            "column(Tensor x) -> Tensor", lambda x: (x * 2).as_strided((4, 1), (1, 7)), like_column
        )
        register(
            "reads(Tensor x) -> Tensor",
            lambda x: (STRIDED_ONE.append(x.tolist()), x.clone())[1],
            like,
        )
    ops = torch.ops.contract

    def f(x):
        results = []
        for make in (ops.row, ops.column):
            for view in VIEWS_OF_ONE.values():
                y = make(x + 1)
                results += [view(y) * 1, ops.reads(view(y)), ops.reads(view(y * 2)), view(y)]
        return results

    x = torch.arange(4.0)
    seen = []
    for g in (f, compile_with(f)):
        STRIDED_ONE.clear()
        seen.append((g(x), list(STRIDED_ONE)))
    assert_same(seen[1][0], seen[0][0])
    assert seen[1][1] == seen[0][1]


def test_strides_are_copied_with_one_warning(through):
    """One for an operator's output, whatever the sizes and the programs."""
    name = f"transposed_{len(WARNED)}"
    WARNED.append(name)
    op = register(f"{name}(Tensor x) -> Tensor", lambda x: x.t().contiguous().t(), like)
    inputs = [torch.arange(12.0).view(3, 4), torch.arange(10.0).view(5, 2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in inputs:
            f = through(lambda x: op(x * 2), x)
            for _ in range(2):
                y = f(x)
                assert y.stride() == (x.shape[1], 1) and torch.equal(y, x * 2)
    (warning,) = [w for w in caught if "contract::" in str(w.message)]
    text = str(warning.message)
    assert warning.filename == __file__  # the user's line, not ours
    assert "[1, 3]" in text and "[4, 1]" in text and place_of(like) in text


WARNED: list[str] = []


@pytest.mark.parametrize("tag", ["needs_contiguous_strides", "flexible_layout"])
def test_no_warning_where_a_tag_changes_the_strides(through, tag):
    """The fake saw the program's strides, the kernel those that its tag asks for."""
    if not hasattr(torch.ops.contract, tag):
        register(
            f"{tag}(Tensor x) -> Tensor", lambda x: x * 2, like, tags=[getattr(torch.Tag, tag)]
        )
    op = getattr(torch.ops.contract, tag)
    x = torch.arange(12.0).view(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = through(lambda x: op(x.t()) + 0, x, strict=True)(x)
    assert_same(y, (x * 2).t() + 0)


def test_strides_are_an_error_when_strict(through):
    op = _transposed()
    f = through(lambda x: op(x * 2), torch.ones(3, 4), strict=True)
    with pytest.raises(intarsia.ContractError, match=r"\[1, 3\].*\[4, 1\]") as caught:
        f(torch.ones(3, 4))
    assert place_of(like) in str(caught.value)


def _transposed() -> Any:
    if not hasattr(torch.ops.contract, "transposed"):
        register("transposed(Tensor x) -> Tensor", lambda x: x.t().contiguous().t(), like)
    return torch.ops.contract.transposed


def test_place_of_a_fake_of_a_custom_op(through):
    @torch.library.custom_op("contract::short", mutates_args=())
    def short(x: Tensor) -> Tensor:
        return x[1:].clone()

    @short.register_fake
    def fake(x):
        return torch.empty_like(x)

    f = through(lambda x: short(x), torch.ones(3))
    with pytest.raises(intarsia.ContractError) as caught:
        f(torch.ones(3))
    assert place_of(fake) in str(caught.value)


# --- Memory that a kernel keeps -----------------------------------------------------

KEPT: list[Tensor] = []


@torch.library.custom_op("contract::keeps", mutates_args=())
def keeps(x: Tensor) -> Tensor:
    y = x * 2
    KEPT.extend([x, y])
    return y


keeps.register_fake(torch.empty_like)


@torch.library.custom_op("contract::write_", mutates_args=("x",))
def write_(x: Tensor, value: float) -> None:
    x.fill_(value)


write_.register_fake(lambda x, value: None)


@pytest.mark.parametrize("fuse", [False, True], ids=["unfused", "fused"])
def test_memory_that_a_kernel_keeps_is_not_reused(through, fuse):
    """Kernels that could write in place, and an operator that does, come after."""

    def f(x):
        a = x + 1
        b = keeps(a)
        # Both are dead here, and of the size of what follows.
        c = (b * 3).sin()
        d = keeps(c.exp() + 1)
        e = d * 0.5
        write_(e, 7.0)
        return (e + d).tanh(), torch.cumsum(d, 0)

    KEPT.clear()
    x = torch.randn(64)
    f(x)
    want = [t.clone() for t in KEPT]
    compiled = through(f, x, fuse=fuse)
    for _ in range(2):
        KEPT.clear()
        with torch.no_grad():
            compiled(x)
        kept = list(KEPT)
        with torch.no_grad():
            compiled(torch.zeros(64))
        for got, expected in zip(kept, want, strict=True):
            torch.testing.assert_close(got, expected)


# --- What a kernel may use ------------------------------------------------------------


def _force(x):
    y = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((y**3).sum(), y)
    return -gradient


# Not a custom_op: those run their kernel below autograd, so that nothing is recorded.
register("force(Tensor x) -> Tensor", _force, like)
force = torch.ops.contract.force


register("force_past(Tensor x) -> Tensor", _force, like)
library.impl("force_past", torch.library.fallthrough_kernel, "Autograd")


@torch.library.custom_op("contract::lower", mutates_args=())
def lower(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x).float()


lower.register_fake(torch.empty_like)


@torch.library.custom_op("contract::compiles", mutates_args=())
def compiles(x: Tensor) -> Tensor:
    return torch.compile(lambda x: (x + 1).sin() * x, backend="intarsia")(x)


compiles.register_fake(torch.empty_like)


@pytest.mark.parametrize(
    "op",
    [force, torch.ops.contract.force_past, lower, compiles],
    ids=["autograd", "autograd_falls_through", "autocast", "compile"],
)
def test_kernels_use_pytorch_inside(through, op):
    x = torch.randn(4, 4)
    f = through(lambda x: op(x * 2) + 1, x)
    for _ in range(2):
        assert_same(f(x), op(x * 2) + 1)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


@torch.library.custom_op("contract::force_below", mutates_args=())
def force_below(x: Tensor) -> Tensor:
    return _force(x)


force_below.register_fake(torch.empty_like)
register("force_formula(Tensor x) -> Tensor", _force, like)
torch.library.register_autograd("contract::force_formula", lambda ctx, grad: grad * 2, lib=library)


@pytest.mark.parametrize("name", ["force_below", "force_formula"])
def test_kernels_behind_an_autograd_kernel_record_nothing(through, name):
    op = getattr(torch.ops.contract, name)

    def f(x):
        return op(x * 2) + 1

    x = torch.randn(4, 4)
    for function in (f, through(f, x)):
        with pytest.raises(RuntimeError, match="does not require grad"):
            function(x)


STATES: list[Any] = []


@torch.library.custom_op("contract::state", mutates_args=())
def state(x: Tensor) -> Tensor:
    STATES.append(
        (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
            x.requires_grad,
            x.is_inference(),
        )
    )
    return x.clone()


state.register_fake(torch.empty_like)

SURROUNDINGS = {
    "plain": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.float16),
}


@pytest.mark.parametrize("around", SURROUNDINGS)
def test_kernels_see_the_modes_that_eager_shows_them(around, compile_with):
    def f(x):
        y = state(x * 2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = state(y + 1)
            with torch.autocast("cpu", enabled=False):
                y = state(y)
        return state(y * 3)

    seen = []
    for g in (f, compile_with(f)):
        STATES.clear()
        with SURROUNDINGS[around]():
            g(torch.ones(3))
        seen.append(list(STATES))
    assert seen[1] == seen[0]


register("product(Tensor x) -> Tensor", lambda x: (x @ x).to(x.dtype), like)
register("cast_product(Tensor x) -> Tensor", lambda x: x @ x, like)


def test_what_a_kernel_calls_is_cast_by_autocast(compile_with):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.ops.contract.product(x)
        return y, torch.ops.contract.product(x)

    x = torch.randn(4, 4)
    cast, plain = f(x)
    assert not torch.equal(cast, plain)
    g = compile_with(f)
    for _ in range(2):
        assert_same(g(x), (cast, plain), exact=True)


SEEN: list[tuple[str, bool]] = []


@torch.library.custom_op("contract::noted", mutates_args=())
def noted(x: Tensor, place: str) -> Tensor:
    SEEN.append((place, torch.is_autocast_enabled("cpu")))
    return x * 2


noted.register_fake(lambda x, place: torch.empty_like(x))
noted.register_autograd(lambda ctx, grad: (noted(grad, "backward"), None))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_backward_runs_outside_of_the_autocast_of_its_forward(checkpointed, compile_with):
    """And what a checkpoint computes again inside."""

    def body(x):
        return noted(x, "forward").sin().exp()

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if checkpointed:
                return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)
            return body(x)

    seen = []
    for g in (f, compile_with(f)):
        SEEN.clear()
        x = torch.ones(3, requires_grad=True)
        g(x).sum().backward()
        seen.append((list(SEEN), x.grad))
    assert ("backward", False) in seen[0][0]
    assert_same(seen[1], seen[0])


def test_a_kernel_whose_dtype_follows_autocast(compile_with):
    """Its fake, which PyTorch runs without autocast, promises another."""
    x = torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ops.contract.cast_product(x).dtype == torch.bfloat16
        with pytest.raises(intarsia.ContractError, match=r"bfloat16.*float32.*autocast"):
            compile_with(lambda x: torch.ops.contract.cast_product(x))(x)


def test_artifact_under_autocast(tmp_path):
    """An exported program is what it was exported as."""

    class M(torch.nn.Module):
        def forward(self, x):
            return force(x @ x) @ x

    x = torch.randn(4, 4)
    path = intarsia.aot_compile(torch.export.export(M(), (x,)), tmp_path / "m.pt2")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = intarsia.load(path)(x)
    assert_same(got, M()(x))


# --- Who watches ---------------------------------------------------------------------


class _Doubled(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.sin else result


class Watch(TorchDispatchMode):
    """Sees the calls of custom operators, and doubles what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.namespace != "contract":
            return result
        self.seen.append(func.name())
        return result * 2


register("scaled(Tensor x) -> Tensor", lambda x: x * 3, like)
scaled = torch.ops.contract.scaled


def _artifact(function: Callable, *example: Any, folder: Any, **options: Any) -> Any:
    class M(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    program = torch.export.export(M(), example)
    return intarsia.load(intarsia.aot_compile(program, folder / "m.pt2", **options))


@pytest.mark.parametrize("mode", [_Doubled(), torch.device("meta")], ids=["user", "device"])
def test_kernels_see_no_function_mode(mode, tmp_path) -> None:
    """Eager's call of the operator goes to the mode, which is off meanwhile."""

    @torch.library.custom_op("contract::seen_modes", mutates_args=())
    def seen_modes(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.arange(3)

    seen_modes.register_fake(torch.empty_like)

    def function(x: torch.Tensor) -> torch.Tensor:
        return seen_modes(x) * 1

    x = torch.ones(3)
    loaded = _artifact(function, x, folder=tmp_path)
    with mode:
        want = function(x)
        assert_same(torch.compile(function, backend="intarsia")(x), want)
        assert_same(loaded(x), want)
        with Watch():  # calls are not direct then
            assert_same(loaded(x), function(x))


def test_a_dispatch_mode_sees_the_call(tmp_path):
    def f(x):
        return scaled(x * 2) + 1

    x = torch.randn(3)
    g = _artifact(f, x, folder=tmp_path)
    results = []
    for h in (f, g):
        with Watch() as watch:
            results.append(h(x))
        assert watch.seen == ["contract::scaled"]
    assert_same(results[1], results[0])


@torch.library.custom_op("contract::batched", mutates_args=())
def batched(x: Tensor) -> Tensor:
    return x.flip(0)


batched.register_fake(torch.empty_like)


@batched.register_vmap
def _(info, in_dims, x):
    return x.movedim(in_dims[0], -1).flip(0), x.dim() - 1


def test_functorch_sees_the_call(tmp_path):
    def f(x):
        return batched(x * 2) + 1

    xs = torch.randn(5, 3)
    g = _artifact(f, xs[0], folder=tmp_path, fuse=False)
    assert_same(torch.func.vmap(g)(xs), torch.func.vmap(f)(xs))
    # A kernel has no memory to read there, and says so.
    g = _artifact(f, xs[0], folder=tmp_path)
    with pytest.raises(RuntimeError, match="fuse=False"):
        torch.func.vmap(g)(xs)


def test_a_tensor_subclass_goes_through(through):
    from torch.testing._internal.two_tensor import TwoTensor

    def f(x):
        return scaled(x * 2) + 1

    x = TwoTensor(torch.ones(3), torch.full((3,), 2.0))
    got = through(f, torch.ones(3), fuse=False)(x)
    want = f(x)
    assert type(got) is TwoTensor
    assert torch.equal(got.a, want.a) and torch.equal(got.b, want.b)


BYTES_OF = register(
    "bytes_of(Tensor x) -> Tensor",
    lambda x: x.view(torch.uint8) * 2,
    lambda x: x.new_empty(x.numel() * x.element_size(), dtype=torch.uint8),
)

#: Dtypes that PyTorch can hold and view, and nothing else.
RARE = [
    *(getattr(torch, f"{kind}{bits}") for kind in ("uint", "int") for bits in range(1, 8)),
    *(torch.bits1x8, torch.bits2x4, torch.bits4x2, torch.bits8, torch.bits16),
]
#: Their tensors have a scheme beside the numbers, which fake tensors do not: PyTorch traces none.
QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


def test_every_dtype_is_tested():
    from opaque_kinds import KINDS

    names = {kind.name.removeprefix("Tensor of ") for kind in KINDS if kind.group == "returns"}
    every = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    rest = every - set(RARE) - QUANTIZED - {torch.float32}
    assert {str(dtype).removeprefix("torch.") for dtype in rest} <= names


@pytest.mark.parametrize("dtype", RARE, ids=str)
def test_dtypes_that_pass_through(compile_with, monkeypatch, dtype):
    """The compiler knows nothing of them: calls take them, and views give bytes."""
    # PyTorch prints graphs where somebody captures its logs, as pytest does.
    monkeypatch.setitem(torch.utils._dtype_abbrs.dtype_abbrs, dtype, "rare")

    def f(x, y):
        made = (x + 1).view(dtype)
        return BYTES_OF(made) + 1, made.view(torch.uint8) * 2, BYTES_OF(y) + x, made

    x = torch.arange(70, dtype=torch.uint8)
    y = x.clone().view(dtype)
    got, want = compile_with(f)(x, y), f(x, y)
    assert got[-1].dtype is dtype
    as_bytes = [(*results[:-1], results[-1].view(torch.uint8)) for results in (got, want)]
    assert_same(*as_bytes)


class Plain(Tensor):
    """Has the memory of a tensor, and no rules of its own."""


def test_a_kernel_that_returns_a_subclass(through):
    """Calls take it as it is; kernels read its memory, if it has any."""
    from torch.testing._internal.two_tensor import TwoTensor

    wraps, marks = f"wraps_{len(WARNED)}", f"marks_{len(WARNED)}"
    WARNED.append(wraps)
    wrap = register(f"{wraps}(Tensor x) -> Tensor", lambda x: TwoTensor(x + 1, x + 2), like)
    mark = register(f"{marks}(Tensor x) -> Tensor", lambda x: (x + 1).as_subclass(Plain), like)
    x = torch.arange(3.0)

    def wrapped(x):
        return wrap(x * 2) + 1

    got, want = through(wrapped, x, fuse=False)(x), wrapped(x)
    assert type(got) is type(want) is TwoTensor
    assert torch.equal(got.a, want.a) and torch.equal(got.b, want.b)
    with pytest.raises(RuntimeError, match="plain tensor from the operator's kernel, or compile"):
        through(wrapped, x)(x)
    y, z = through(lambda x: (mark(x * 2), mark(x * 2) + 1), x)(x)
    assert type(y) is Plain
    assert_same((y.as_subclass(Tensor), z), (x * 2 + 1, x * 2 + 2))


WRITES = {
    "all": lambda x: write_(x, 2.0),
    "view": lambda x: write_(x[1], 2.0),
    "as_strided": lambda x: write_(x.as_strided((2, 2), (2, 1), 1), 2.0),
    "part": lambda x: x[:, 1].zero_(),
    "member": lambda x: x.unbind(0)[1].add_(1),
    "detached": lambda x: x.detach().mul_(2),
}


@pytest.mark.parametrize("how", WRITES)
def test_writes_are_counted(through, how):
    """Autograd tells from the counter that a tensor it saved was overwritten."""

    def f(x, y):
        WRITES[how](x)
        return y + 1

    x, y = torch.ones(3, 4), torch.ones(3)
    g = through(f, x.clone(), y)
    want, weight = x.clone(), torch.ones(3, 4, requires_grad=True)
    f(want, y)
    product = weight * x
    before = x._version
    g(x, y)
    assert x._version > before
    assert_same(x, want)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


# --- A kernel that throws ----------------------------------------------------------------


class Mine(Exception):
    pass


SEEN: list[weakref.ref] = []


@torch.library.custom_op("contract::throws", mutates_args=())
def throws(x: Tensor) -> Tensor:
    SEEN.append(weakref.ref(x))
    raise Mine("the kernel's own words")


throws.register_fake(torch.empty_like)


def _throw(f: Callable, *inputs: Tensor) -> BaseException:
    with pytest.raises(Mine, match="the kernel's own words") as caught:
        f(*inputs)
    return caught.value


@pytest.mark.parametrize("fuse", [False, True], ids=["unfused", "fused"])
def test_an_exception_leaks_nothing(through, fuse):
    def f(x):
        y = keeps(x + 1)
        return throws(y * 2) + y

    g = through(f, torch.ones(64), fuse=fuse)
    inputs = []
    SEEN.clear()
    for _ in range(5):
        KEPT.clear()
        x = torch.ones(64)
        inputs.append(weakref.ref(x))
        error = _throw(g, x)
        notes = "\n".join(error.__notes__)
        assert "contract::throws" in notes and CALLED.search(notes)
        SEEN.extend(weakref.ref(t) for t in KEPT)
        KEPT.clear()
        del x, error
    gc.collect()
    assert len(SEEN) == 15
    assert all(ref() is None for ref in SEEN + inputs)


def test_an_exception_holds_no_lock(through):
    g = through(lambda x: throws(x * 2), torch.ones(3))
    _throw(g, torch.ones(3))
    errors = []

    def work():
        try:
            g(torch.ones(3))
        except Mine as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(errors) == 4
    _throw(g, torch.ones(3))


def test_writes_before_an_exception_stay(through):
    """As in eager: not undone, and none comes later."""

    def f(x, y):
        write_(x, 3.0)
        z = throws(y * 2)
        write_(x, 4.0)
        return z

    g = through(f, torch.zeros(3), torch.ones(3))
    results = []
    for h in (f, g):
        x = torch.zeros(3)
        with pytest.raises(Mine):
            h(x, torch.ones(3))
        results.append(x)
    assert torch.equal(results[1], results[0])


def test_backward_exceptions_say_where(compile_with):
    @torch.library.custom_op("contract::half_done", mutates_args=())
    def half_done(x: Tensor) -> Tensor:
        return x.clone()

    half_done.register_fake(torch.empty_like)
    half_done.register_autograd(lambda ctx, grad: throws(grad))
    x = torch.ones(3, requires_grad=True)
    y = compile_with(lambda x: half_done(x * 2).sum())(x)
    with pytest.raises(Mine, match="the kernel's own words") as caught:
        y.backward()
    assert "contract::throws" in "\n".join(caught.value.__notes__)


def test_a_wrong_fake_that_the_backward_formula_meets_first(compile_with):
    """PyTorch's error is about the gradient, and does not name the operator."""

    @torch.library.custom_op("contract::shorter", mutates_args=())
    def shorter(x: Tensor) -> Tensor:
        return x * 2

    def fake(x):
        return x.new_empty(x.shape[0] - 1)

    shorter.register_fake(fake)
    shorter.register_autograd(lambda ctx, grad: grad * 2)
    with pytest.raises(Exception, match="invalid gradient") as caught:
        compile_with(lambda x: shorter(x).sum())(torch.ones(3, requires_grad=True))
    notes = "\n".join(caught.value.__notes__)
    for word in ("contract::shorter", place_of(fake), "fix the fake implementation"):
        assert word in notes


SEEN: list[tuple[bool, Any]] = []


def _note(x):
    SEEN.append((x.requires_grad, x.grad_fn))
    return x * 0.5


register("note(Tensor x) -> Tensor", _note, like)
register("shrink_(Tensor(a!) x) -> ()", lambda x: (x.mul_(0.5), None)[1], lambda x: None)


def _under_no_grad(p):
    with torch.no_grad():
        return torch.ops.contract.note(p)


def _written_under_no_grad(p):
    with torch.no_grad():
        torch.ops.contract.shrink_(p)
    return p.detach() + 1


def _in_a_branch(p):
    return torch.cond(p.sum() > 0, torch.ops.contract.note, torch.clone, (p.detach(),))


@pytest.mark.parametrize(
    "function",
    [
        lambda p: torch.ops.contract.note(p.detach()),
        lambda p: torch.ops.contract.note(p.data),
        lambda p: torch.ops.contract.note(p.detach().t()),
        lambda p: torch.vmap(torch.ops.contract.note)(p.detach()),
        _under_no_grad,
        _written_under_no_grad,
        _in_a_branch,
    ],
    ids=["detach", "data", "view", "vmap", "no_grad", "written", "cond"],
)
def test_no_gradient_where_eager_hides_it(function):
    """In a graph without gradients an operator gets the user's parameter itself."""
    results = []
    compiled = torch.compile(function, backend="intarsia", fullgraph=True)
    for run in (function, compiled, compiled):
        p = torch.nn.Parameter(torch.arange(1.0, 5.0).reshape(2, 2))
        version = p._version
        SEEN.clear()
        result = run(p)
        assert not result.requires_grad
        assert not any(given for given, _ in SEEN if function is not _under_no_grad)
        (p - result).square().sum().backward()
        results.append((result, p.detach(), p.grad, torch.tensor(p._version > version)))
    for compiled_results in results[1:]:
        for got, want in zip(compiled_results, results[0], strict=True):
            assert_same(got, want)
