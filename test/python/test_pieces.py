# ===- test_pieces.py - Training through operators without a formula --------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Eager differentiates what the kernel of an operator calls: so do compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import intarsia

pytestmark = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")

library = torch.library.Library("pieces", "FRAGMENT")
CALLS: list[str] = []


def register(schema: str, kernel: Callable, fake: Callable | None = None, *keys: str) -> Any:
    name = schema.partition("(")[0]

    def run(*args):
        CALLS.append(name)
        return kernel(*args)

    library.define(schema)
    for key in keys or ("CPU",):
        library.impl(name, run, key)
    if fake is not None:
        torch.library.register_fake(f"pieces::{name}", fake, lib=library)
    return getattr(torch.ops.pieces, name)


def like(*tensors):
    made = tuple(torch.empty_like(t) for t in tensors)
    return made if len(made) > 1 else made[0]


class Tenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


inner = register("inner(Tensor x) -> Tensor", lambda x: x.sin() * x, like)
anywhere = register(
    "anywhere(Tensor x) -> Tensor", lambda x: x.exp(), like, "CompositeExplicitAutograd"
)
both = register("both(Tensor x) -> Tensor", lambda x: x.exp(), None, "CPU")
library.impl("both", lambda x: x.exp(), "CompositeImplicitAutograd")
tenfold = register("tenfold(Tensor x) -> Tensor", Tenfold.apply, like)
two = register(
    "two(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x, y: (x.sin() * y, (x * y).cos()), like
)
many = register(
    "many(Tensor[] x) -> Tensor[]",
    lambda x: [t.exp() for t in x],
    lambda x: [torch.empty_like(t) for t in x],
)
add_sin_ = register(
    "add_sin_(Tensor(a!) x, Tensor y) -> ()",
    lambda x, y: (x.add_(y.sin()), None)[1],
    lambda x, y: None,
)
increment_ = register(
    "increment_(Tensor(a!) x) -> ()", lambda x: (x.add_(1), None)[1], lambda x: None
)
passes = register("passes(Tensor x) -> Tensor", lambda x: x.sin() * x, like)
library.impl("passes", torch.library.fallthrough_kernel, "Autograd")
raw = register("raw(Tensor x) -> Tensor", lambda x: x.detach().sin(), like)
library.impl("raw", torch.library.fallthrough_kernel, "Autograd")
whole = register("whole(Tensor x) -> Tensor", lambda x: (x > 0).long(), lambda x: like(x).long())


def chain(x):
    return inner(inner(x * 2) + 1).exp() + x


def kinds(x):
    return anywhere(x * 2) + both(x + 1) * x + tenfold(x * 3)


def several(x):
    a, b = many([x * 2, x + 1])
    return two(a, b * 2)[0] + two(b, a)[1] + whole(x)


def members(x):
    a, b = (x * 2).split([1, x.shape[0] - 1])
    return torch.cat([inner(b) * a, a + 1])


def writes(x):
    y = x * 2
    add_sin_(y, x * 3)
    add_sin_(y[1:], x[1:])
    return y * 2


def writes_what_has_no_gradient(x):
    buffer = torch.zeros_like(x)
    tail = buffer[1:]
    add_sin_(tail, x[1:] * 3)
    a = inner(buffer.exp())
    buffer.mul_(2)
    return a * tail.sum() + x.detach() * buffer


def written_first(x, c):
    increment_(c[0])
    c.add_(x)
    return c * 2


def written_between(x, c):
    c.mul_(2)
    increment_(c.view(-1)[::2])
    s = c.view(-1)[::2].sum()
    c[:, 1] = x[:, 1]
    return c * s


def written_with_a_gradient(x, c):
    c[:, 0].add_(x[:, 0])
    v = c.view(-1)[::2]
    increment_(v)
    z = c * 2 + v.sum()
    c[:, 1] = x[:, 1]
    return z


def passed_by_autograd(x):
    y = passes(x * 2)
    z = inner(raw(y + 1) * y.sum()) + passes(y)
    with torch.no_grad():
        z = z + passes(y)
    return torch.cat([z, raw(x * 3)]) + raw(x).sum() + x.sum()


def random(x):
    return inner(torch.nn.functional.dropout(x * 2, 0.5)) + torch.rand_like(x)


def grad_modes(x):
    with torch.no_grad():
        a = inner(x * 2)
    b = inner(x * a)
    with torch.no_grad():
        c = (b * 3).exp()
    return b * c + a


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        m = torch.outer(x, x)
        y = inner(m @ m) * 2
        z = inner(y @ m) + 1
    return z.sum(0) + inner(x)


PROGRAMS = [
    chain,
    kinds,
    several,
    members,
    writes,
    writes_what_has_no_gradient,
    passed_by_autograd,
    random,
    grad_modes,
    autocast,
]


def observe(function: Callable, size: int = 4) -> Any:
    CALLS.clear()
    torch.manual_seed(0)
    x = torch.linspace(0.1, 1, size).requires_grad_()
    y = function(x)
    forward = list(CALLS)
    y.sum().backward()
    return y.detach(), x.grad, torch.rand(1), forward, CALLS[len(forward) :]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_gradients_are_those_of_the_kernel(program, dynamic, fuse):
    compiled = torch.compile(
        program, backend="intarsia", fullgraph=True, dynamic=dynamic, options={"fuse": fuse}
    )
    for size in (4, 4, 6) if dynamic else (4, 4):
        assert_same(observe(compiled, size), observe(program, size))


@pytest.mark.parametrize("program", [written_first, written_between, written_with_a_gradient])
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_a_buffer_gets_its_gradient_in_the_course_of_a_program(program, dynamic, compile_with):
    """Before that, what a kernel writes into it has none."""
    seen = []
    for function in (program, compile_with(program, dynamic=dynamic)):
        x = torch.linspace(0.1, 1, 12).view(4, 3).requires_grad_()
        c = torch.zeros(4, 3)
        y = function(x, c)
        (y * torch.arange(12.0).view(4, 3)).sum().backward()
        seen.append((y.detach(), x.grad, c.detach()))
    assert_same(seen[1], seen[0])


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


cut_off = register("cut_off(Tensor x) -> Tensor", lambda x: x.detach().sin(), like)


def read_by_nothing_else(x, w):
    return cut_off(x * 2) + w * 3


def one_of_two_results(x, w):
    a, b = x * 2, w.sin()
    return cut_off(a) * w + b * 2


def written_on_the_way(x, w):
    a = x * 2
    w = w.clone()
    a.add_(w)
    return cut_off(a) + cut_off(w[1:]).sum()


def through_a_formula(x, w):
    return cut_off(Doubled.apply(x)) + w


def views(x, w):
    a, b = (x * w).chunk(2)
    return cut_off(a).sum() + b.exp().sum() + cut_off(w.t())


def the_same_twice(x, w):
    return cut_off(x + x * 2) * cut_off(w) + (w * 2).detach()


NONE = [
    read_by_nothing_else,
    one_of_two_results,
    written_on_the_way,
    through_a_formula,
    views,
    the_same_twice,
]


@pytest.mark.parametrize("program", NONE)
def test_no_gradient_is_none(program, compile_with):
    """Not zeros: an optimiser skips what has none."""
    seen = []
    for function in (program, compile_with(program)):
        x, w = (torch.linspace(a, 1, 4).requires_grad_() for a in (0.1, 0.2))
        function(x, w).sum().backward()
        seen.append((x.grad, w.grad))
    assert_same(seen[1], seen[0])
    assert None in seen[0] or program in (through_a_formula, views, written_on_the_way)


def test_what_surrounds_it_is_fused():
    with intarsia.record_compilations() as compilations:
        observe(torch.compile(chain, backend="intarsia", fullgraph=True))
    assert [c.program.kernel_count for c in compilations if c.kind == "forward"] == [1, 1, 1]
    for compilation in compilations:
        assert "call pieces::" not in compilation.program.plan_text


def test_without_gradients_the_graph_is_whole(compile_with):
    with intarsia.record_compilations() as compilations:
        f = compile_with(lambda x: inner(x * 2) + 1)
        f(torch.ones(3))
        with torch.no_grad():
            f(torch.ones(3, requires_grad=True))
    assert compilations
    for compilation in compilations:
        assert "call pieces::inner" in compilation.program.plan_text


BROKEN = {
    "wrong_size": ("Tensor", lambda x: x[:2] * 2, r"output 0 is .*\[2, 2\].*promised.*\[3, 2\]"),
    "wrong_dtype": ("Tensor", lambda x: x.double(), r"output 0 is torch.float64.*torch.float32"),
    "layout": ("Tensor", lambda x: x.to_sparse(), r"output 0 .*torch.sparse_coo.*strided"),
    "same": ("Tensor", lambda x: x, r"output 0 shares memory with an argument.*x\.clone\(\)"),
    "a_list": ("Tensor[]", lambda x: [x * 2], r"output 0 has 1 members.*promised 2"),
    "a_member": ("Tensor[]", lambda x: [x * 2, x[0] * 2], r"output 0\[1\] is .*\[2\].*\[3, 2\]"),
    "a_number": ("(Tensor, SymInt)", lambda x: (x * 2, 7), r"output 1 is 7.*promised 3"),
    "nothing": ("(Tensor, Tensor?)", lambda x: (x * 2, None), r"output 1 is None.*a tensor"),
}
FAKES = {
    "Tensor": like,
    "Tensor[]": lambda x: [like(x), like(x)],
    "(Tensor, SymInt)": lambda x: (like(x), x.shape[0]),
    "(Tensor, Tensor?)": lambda x: (like(x), like(x)),
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", BROKEN)
def test_the_contract_holds_between_pieces(name, dynamic):
    results, kernel, words = BROKEN[name]
    if not hasattr(torch.ops.pieces, name):
        register(f"{name}(Tensor x) -> {results}", kernel, FAKES[results])
    op = getattr(torch.ops.pieces, name)

    def f(x):
        first, *_ = torch.utils._pytree.tree_leaves(op(x * 2))
        return first + 1

    compiled = torch.compile(f, backend="intarsia", fullgraph=True, dynamic=dynamic)
    with pytest.raises(intarsia.ContractError, match=f"pieces.{name}: {words}") as caught:
        compiled(torch.ones(3, 2, requires_grad=True))
    assert "test_pieces.py" in str(caught.value)


def _halves(x):
    return list((x.repeat(1, 2) * 2).split(x.shape[1], 1))


halves = register("halves(Tensor x) -> Tensor[]", _halves, _halves)
overlap = register(
    "overlap(Tensor x) -> Tensor[]",
    lambda x: (lambda y: [y[:-1], y[1:]])(x.repeat(2, 1)[: x.shape[0] + 1]),
    FAKES["Tensor[]"],
)


def test_parts_of_one_new_tensor_between_pieces(compile_with):
    """Results that share a storage, and no element."""

    def f(op, x):
        a, b = op(x * 2)
        return a.sin() * b + b

    seen = []
    for function in (f, compile_with(f)):
        x = torch.linspace(0, 1, 6).view(3, 2).requires_grad_()
        y = function(halves, x)
        y.sum().backward()
        seen.append((y.detach(), x.grad))
    assert_same(seen[1], seen[0], strides=False)
    with pytest.raises(intarsia.ContractError, match=r"output 0\[1\] shares memory with output 0"):
        compile_with(f)(overlap, torch.ones(3, 2, requires_grad=True))


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_other_strides_are_copied_between_pieces(dynamic):
    """What follows was compiled for those of the fake implementation."""
    name = f"columns_{dynamic}"
    op = register(f"{name}(Tensor x) -> Tensor", lambda x: (x * 2).t().contiguous().t(), like)

    def f(x):
        return (op(x * 2).as_strided((2,), (1,)) * 3).sum() + op(x).view(-1).sum()

    def compiled(**options):
        settings = {"fullgraph": True, "dynamic": dynamic, "options": options}
        return torch.compile(f, backend="intarsia", **settings)

    x = torch.arange(6.0).view(3, 2).requires_grad_()
    with pytest.warns(UserWarning, match=rf"{name}.*\[1, 3\].*promised \[2, 1\]"):
        compiled()(x).backward()
    assert_same(x.grad, torch.tensor([[14.0, 14], [2, 2], [2, 2]]))
    with pytest.raises(intarsia.ContractError, match=r"\[1, 3\].*promised \[2, 1\]"):
        compiled(strict=True)(x)


scale_ = register("scale_(Tensor(a!) x, float k) -> Tensor(a!)", lambda x, k: x.mul_(k), None)
torch.library.register_fake("pieces::scale_", lambda x, k: x, lib=library)
vague_ = register("vague_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.mul_(2), like)


def written_after(x):
    y = scale_(x, 2.0)
    x.add_(1)
    z = y * 2
    y.mul_(3)
    return z, x * 1, y, x + y


def of_a_view(x):
    y = scale_(scale_(x[1:], 2.0), 0.5)
    x.add_(1)
    return y * 2, x * 3, y


@pytest.mark.parametrize("program", [written_after, of_a_view])
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_an_argument_that_is_returned_is_one_tensor(program, dynamic, fuse):
    compiled = torch.compile(
        program, backend="intarsia", fullgraph=True, dynamic=dynamic, options={"fuse": fuse}
    )
    for size in (3, 3, 5) if dynamic else (3, 3):
        seen = []
        for function in (program, compiled):
            x = torch.arange(float(size * 2)).view(size, 2)
            results = function(x)
            places = [t.data_ptr() - x.data_ptr() for t in results]
            seen.append((results, x, [p if 0 <= p < 100 else None for p in places]))
        assert_same(seen[1][:2], seen[0][:2])
        assert (seen[1][2][2], seen[1][2][0] is None) == (seen[0][2][2], seen[0][2][0] is None)


tail = register("tail(Tensor(a) x) -> Tensor(a)", lambda x: x[1:], lambda x: x[1:])
rows = register("rows(Tensor(a) x) -> Tensor(a)[]", lambda x: [x[0], x[1:]], None)
torch.library.register_fake("pieces::rows", lambda x: [x[0], x[1:]], lib=library)
other_tail = register("other_tail(Tensor(a) x) -> Tensor(a)", lambda x: x[:-1], lambda x: x[1:])


def view_is_read(x):
    y = x * 2
    return y.sum() + tail(y).sin().sum()


def view_is_written(x):
    y = x * 2
    z = tail(y).add_(1)
    return y.sin() + 1, z * 2, z


def base_is_written(x):
    y = x * 2
    z = tail(y)
    y.mul_(3)
    return z + 1, y, z


def base_is_written_by_others(x):
    y = x * 2
    z = tail(y)
    scale_(y.detach(), 2.0)
    y[1] = 5.0
    return z.cos(), y


def views_in_a_list(x):
    a, b = rows(x * 2)
    return a + 1, b.sum(), b


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "program",
    [view_is_read, view_is_written, base_is_written, base_is_written_by_others, views_in_a_list],
)
def test_a_view_that_is_returned_is_one(compile_with, program, training):
    """What is written into it, or into what it views, is seen in the other."""
    compiled, seen = compile_with(program), []
    for function in (program, compiled, compiled):
        x = torch.arange(6.0).view(3, 2).requires_grad_(training)
        results = function(x)
        if training:
            sum(t.sum() for t in pytree.tree_leaves(results)).backward()
        seen.append((results, x.grad))
    assert_same(seen[1], seen[0])
    assert_same(seen[2], seen[0])


def test_a_view_of_an_input_that_is_written(compile_with):
    def program(x):
        return tail(x).add_(1) * 2, x + 1

    x, y = torch.ones(3, 2), torch.ones(3, 2)
    assert_same(compile_with(program)(x), program(y))
    assert_same(x, y)


def test_a_view_that_is_another_than_the_fakes(compile_with):
    with pytest.raises(intarsia.ContractError, match=r"other_tail.*0 elements after.*2 after it"):
        compile_with(lambda x: other_tail(x * 2) + 1)(torch.ones(3, 2))


def test_an_alias_that_the_fake_hides_is_refused(compile_with):
    with pytest.raises(Exception, match="alias annotations"):
        compile_with(lambda x: vague_(x) + 1)(torch.ones(3))


@torch.library.custom_op("pieces::no_formula", mutates_args=())
def no_formula(x: Tensor) -> Tensor:
    return x.sin()


no_formula.register_fake(torch.empty_like)


def test_an_operator_without_a_formula_runs_until_backward(compile_with):
    """As in eager, where only ``backward()`` is an error."""

    def f(x):
        return no_formula(x * 2) + x

    x = torch.ones(3, requires_grad=True)
    compiled = compile_with(f)
    for g in (f, compiled):
        y = g(x)
        assert y.requires_grad
        assert_same(y.detach(), f(x).detach())
        with pytest.raises(RuntimeError, match=r"pieces\.no_formula.*register_autograd"):
            y.sum().backward()
    # Where no gradient is wanted, nothing is cut.
    with intarsia.record_compilations() as compilations:
        observe(compile_with(lambda x: no_formula(x * 2).detach() + x))
    assert any("call pieces::no_formula" in c.program.plan_text for c in compilations)


def test_modes_are_left_when_a_kernel_raises(compile_with):
    def fail(x):
        raise KeyError("the kernel's own words")

    if not hasattr(torch.ops.pieces, "fails"):
        register("fails(Tensor x) -> Tensor", fail, like)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.ops.pieces.fails(x @ x)
        with torch.no_grad():
            return y * 2

    with pytest.raises(KeyError, match="own words"):
        compile_with(f)(torch.ones(2, 2, requires_grad=True))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_checkpointed_regions_are_refused(compile_with):
    """A wrong gradient would be the alternative."""

    def f(x):
        return checkpoint(lambda x: inner(x.sin()) * 2, x, use_reentrant=False) + 1

    with pytest.raises(Exception) as caught:
        compile_with(f)(torch.ones(3, requires_grad=True))
    text = str(caught.value)
    for word in ("pieces.inner", "register_autograd", "test_pieces.py", "inner(x.sin())"):
        assert word in text


def test_operators_of_pytorchs_that_are_not_aten(check):
    import torch.ao.quantization.fx._decomposed

    def f(x):
        args = (0.5, 0, -128, 127, torch.int8)
        return (
            torch.ops.quantized_decomposed.fake_quant_per_channel(
                x * 2, torch.full((3,), 0.5), torch.zeros(3, dtype=torch.int32), 0, -128, 127
            )
            + torch.ops.quantized_decomposed.quantize_per_tensor(x, *args).sum()
        )

    check(f, [torch.linspace(-1, 1, 6).view(3, 2).requires_grad_()], training=True)
