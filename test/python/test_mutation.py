"""Operators that write their arguments, and views of what they write."""

from __future__ import annotations

import warnings

import operators as ops
import pytest
import torch
from conftest import assert_same
from test_cache_bytes import allocated
from torch.utils import _pytree as pytree

import intarsia


def test_cache_with_slots(check):
    """Keys and values are views of one buffer; slots are written by index."""

    def f(cache, index, k, v):
        ops.put_(cache[0], index, k)
        ops.put_(cache[1], index, v)
        return (cache[0] * cache[1]).sum(dim=0), cache[0, 1]

    cache = torch.zeros(2, 6, 3)
    index = torch.tensor([4, 1])
    check(f, [cache, index, torch.randn(2, 3), torch.randn(2, 3)])


def test_read_write_read(check):
    def f(x, y):
        before = x * 2
        ops.add_into_(x, y)
        after = x * 2
        return before, after

    check(f, [torch.randn(3), torch.randn(3)])


def test_intermediate_is_written(check):
    def f(x):
        y = torch.zeros_like(x)
        z = y + 1
        ops.add_into_(y, x)
        return y, z, y + z

    check(f, [torch.randn(3)])


def test_same_tensor_twice(check):
    def f(x):
        ops.add_into_(x, x)
        return x + 1

    check(f, [torch.randn(3)])


def test_same_tensor_from_the_user_twice(check):
    x = torch.randn(4)

    def f(a, b):
        ops.add_into_(a, b)
        return a + b

    check(f, [x, x])


def test_two_views_of_one_base(check):
    def f(x):
        ops.add_into_(x[:2], x[1:3])
        return x.sum()

    check(f, [torch.arange(4.0)])


def test_view_of_a_view(check):
    def f(x):
        row = x.view(2, 3)[1]
        ops.add_into_(row, torch.ones(3))
        return x * 1

    check(f, [torch.arange(6.0)])


def test_in_place_aten(check):
    def f(x, y):
        x.add_(1).mul_(y)
        x[0].zero_()
        y.relu_()
        return x.sum() + y.sum()

    check(f, [torch.randn(3, 2), torch.randn(3, 2)])


def test_out_argument(check):
    def f(x):
        result = torch.empty_like(x)
        torch.add(x, 1, out=result)
        return result

    check(f, [torch.randn(3)])


def test_non_contiguous_input_is_written(check):
    def f(x):
        ops.add_into_(x, torch.ones_like(x))
        return x.sum()

    check(f, [torch.randn(4, 6).t()])


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.norm(x) * self.count


def test_buffers(compile_with):
    model, reference = Counter(), Counter()
    f = compile_with(model)
    for _ in range(3):
        x = torch.randn(5, 3)
        assert_same(f(x), reference(x))
    assert_same(list(model.buffers()), list(reference.buffers()))


def test_mutation_in_training(check):
    def f(x, log):
        ops.add_into_(log, x.detach())
        return ops.scaled_tanh(x, 1.0) * 2

    check(f, [torch.randn(3, requires_grad=True), torch.zeros(3)], training=True)


UPDATES_WITH_THEMSELVES = {
    "masked_scatter": lambda t, i: t.masked_scatter(t > 0, t),
    "scatter": lambda t, i: t.scatter(1, i, t),
    "scatter_add": lambda t, i: t.scatter_add(1, i, t),
    "scatter_reduce": lambda t, i: t.scatter_reduce(1, i, t, "amax"),
    "index_add": lambda t, i: t.index_add(0, i[0], t),
    "index_copy": lambda t, i: t.index_copy(0, i[0], t),
    "index_put": lambda t, i: t.index_put((i[0],), t),
    "scatter at itself": lambda t, i: (i % 4).scatter(0, i % 4, 1),
    "index_fill at itself": lambda t, i: i[0].add(0).index_fill(0, i[0].add(0), 7),
}


@pytest.mark.parametrize("name", UPDATES_WITH_THEMSELVES)
def test_updates_with_themselves(check, name):
    update = UPDATES_WITH_THEMSELVES[name]

    def f(x, i):
        made = update(x * 2, i)
        if made.dtype == x.dtype:
            x.copy_(update(x, i))
        return made

    check(f, [torch.randn(4, 4), torch.tensor([[1, 2, 3, 0]] * 4)])


def test_result_is_not_reused_memory(compile_with):
    """What a call returned keeps its value when the function is called again."""
    f = compile_with(lambda x: ops.scaled_tanh(x + 1, 2.0) + 1)
    x = torch.randn(100)
    first = f(x)
    kept = first.clone()
    f(-x)
    assert torch.equal(first, kept)


def test_version_counters(compile_with):
    x, y = torch.zeros(3), torch.zeros(3)

    def f(x):
        ops.add_into_(x, torch.ones(3))
        return x + 1

    f(x)
    compile_with(f)(y)
    assert y._version > 0 and x._version > 0


def moments(weight, gradient, mean, square, rate):
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    weight.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1.0).mul_(rate)


@pytest.mark.parametrize("shape", [(7, 33), ()], ids=str)
def test_several_inputs_are_written_by_one_kernel(check, shape):
    inputs = [torch.rand(shape) for _ in range(4)]
    check(moments, (*inputs, torch.tensor(0.5)))


def _pieces(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.arange(12288.0)
    x, y = {
        "apart": (slice(0, 4096), slice(4096, 8192)),
        "overlapping": (slice(0, 4096), slice(2048, 6144)),
        "before": (slice(100, 4196), slice(0, 4096)),
        "same": (slice(0, 4096), slice(0, 4096)),
    }[kind]
    return base[x], base[y]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: y.copy_(x.flip(0) + 1),
        lambda x, y: y.copy_(x * 2 + y),
        lambda x, y: y.copy_(torch.softmax(x.view(64, 64), 1).view(-1)),
    ],
    ids=["flip", "add", "rows"],
)
@pytest.mark.filterwarnings("ignore:.*inputs.*share memory")
def test_an_input_is_written_that_overlaps_another(through, function):
    # PyTorch does not guard that inputs share no memory: the first call's do not.
    def run(x, y):
        function(x, y)

    compiled = through(run, *_pieces("apart"))
    for kind in ("apart", "overlapping", "before", "same", "apart"):
        x, y = _pieces(kind)
        run(x, y)
        other_x, other_y = _pieces(kind)
        compiled(other_x, other_y)
        assert_same((other_x, other_y), (x, y))


# --- Inputs that overlap otherwise than in the first call ----------------------------


def parts_are_written(x, y):
    ops.add_into_(x[0], y[1])
    y[1:].mul_(2)
    return x.sum(), y.sum(), x + y


def read_then_written(x, y):
    z = x + y
    x.mul_(2)
    y.add_(z)
    return x - y


def written_then_read(x, y):
    ops.add_into_(x, torch.ones_like(x))
    return (y * 2).sin(), x + 1


def _views(where: str) -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.arange(40.0).view(8, 5)
    places = {
        "apart": (slice(0, 4), slice(4, 8)),
        "overlapping": (slice(0, 4), slice(1, 5)),
        "overlapping elsewhere": (slice(1, 5), slice(3, 7)),
        "the other way round": (slice(1, 5), slice(0, 4)),
        "the same": (slice(0, 4), slice(0, 4)),
    }
    if where == "columns":
        return base[:4, 0:2], base[:4, 2:4]
    if where == "of two":
        return base[:4], base[4:].clone()
    x, y = places[where]
    return base[x], base[y]


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("first", ["apart", "overlapping"])
@pytest.mark.parametrize("function", [parts_are_written, read_then_written, written_then_read])
@pytest.mark.filterwarnings("ignore:.*inputs.*share memory")
def test_inputs_overlap_otherwise_than_before(function, first, dynamic):
    compiled = torch.compile(function, backend="intarsia", fullgraph=True, dynamic=dynamic)
    others = ("overlapping", "overlapping elsewhere", "the other way round", "of two", "apart")
    for where in (first, *others):
        seen = []
        for run in (function, compiled):
            inputs = _views(where)
            seen.append((run(*inputs), inputs, inputs[0]._base))
        assert_same(seen[1], seen[0])


def test_the_user_is_told_where_inputs_overlap():
    with intarsia.record_compilations() as compilations:
        compiled = torch.compile(written_then_read, backend="intarsia", fullgraph=True)
        for where in ("apart", "columns", "of two"):  # each lies apart
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                compiled(*_views(where))
        with pytest.warns(UserWarning, match="inputs x and y share memory.*runs as in eager"):
            compiled(*_views("overlapping"))
    program = compilations[0].program
    with pytest.raises(intarsia.GuardError, match="inputs x and y share memory"):
        program(list(_views("overlapping")))


@pytest.mark.filterwarnings("ignore:.*inputs.*share memory")
def test_inputs_overlap_in_training():
    def f(w, x, y):
        z = (y + 1) * w
        ops.add_into_(x, torch.ones_like(x))
        return (z + (x + 1) * w).sum()

    compiled = torch.compile(f, backend="intarsia", fullgraph=True)
    for where in ("apart", "overlapping", "the same", "of two"):
        seen = []
        for run in (f, compiled):
            w, (x, y) = torch.ones(5, requires_grad=True), _views(where)
            run(w, x, y).backward()
            seen.append((w.grad, x, y))
        assert_same(seen[1], seen[0])


def test_a_cache_of_two_parts_runs_compiled():
    """What lies apart in one tensor is no reason to leave the program."""

    def f(keys, values, index, x):
        ops.put_(keys, index, x)
        ops.put_(values, index, x * 2)
        return keys.sum() + values.sum()

    compiled = torch.compile(f, backend="intarsia", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(3):
            cache = torch.zeros(4, 3, 2, 8)
            index, x = torch.tensor([1]), torch.ones(1, 8)
            compiled(cache[i, :, 0], cache[i, :, 1], index, x)


# --- Operators that return what they write -------------------------------------------

tagged = torch.library.Library("test_mutation", "FRAGMENT")
tagged.define("add_(Tensor(a!) x, Tensor y) -> Tensor(a!)", tags=(torch.Tag.inplace,))
tagged.impl("add_", lambda x, y: x.add_(y), "CompositeExplicitAutograd")
torch.library.register_fake("test_mutation::add_", lambda x, y: x, lib=tagged)
tagged.define(
    "twice.out(Tensor x, *, Tensor(a!) out, Tensor(b!) rest) -> (Tensor(a!), Tensor(b!))",
    tags=(torch.Tag.out,),
)
_twice = lambda x, *, out, rest: (out.copy_(x * 2), rest.copy_(x + 1))  # noqa: E731
tagged.impl("twice.out", _twice, "CompositeExplicitAutograd")
torch.library.register_fake(
    "test_mutation::twice.out", lambda x, *, out, rest: (out, rest), lib=tagged
)
tagged.define("twice(Tensor x) -> Tensor")
tagged.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("test_mutation::twice", torch.empty_like, lib=tagged)
add_, twice = torch.ops.test_mutation.add_, torch.ops.test_mutation.twice


def argument_written_later(x, y):
    r = add_(x, y)
    x.mul_(2)
    return r * 1


def result_written_later(x, y):
    r = add_(x, y)
    ops.add_into_(r[0], y[0])
    return x * 1, r


def of_an_intermediate(x, y):
    z = x + 1
    r = add_.default(add_(z, y), y)
    z[1].zero_()
    return r * 1, r[:1], z


def of_a_view(x, y):
    r = add_(x[0], y[1])
    x.add_(1)
    return r * 1, r


def out_written_later(x, y):
    a, b = twice(y, out=x, rest=torch.empty_like(y))
    x.add_(1)
    b.mul_(x)
    return a * 1, b, twice(a)


def in_a_branch(x, y):
    def write(x, y):
        r = add_(x, y)
        x.mul_(2)
        return r * 1

    return torch.cond(y.sum() > 0, write, lambda x, y: x - y, (x, y)), x * 1


@pytest.mark.parametrize(
    "function",
    [
        *(argument_written_later, result_written_later, of_an_intermediate, of_a_view),
        *(out_written_later, in_a_branch),
    ],
)
def test_a_result_is_the_argument_that_was_written(check, function):
    with torch.no_grad():
        compiled = check(function, [torch.ones(3, 4), torch.ones(3, 4) * 2])
        results = []
        for run in (function, compiled):
            x, y = torch.ones(3, 4), torch.ones(3, 4)
            tensors = [*pytree.tree_leaves(run(x, y)), x, y]
            results.append([[a.is_set_to(b) for a in tensors] for b in tensors])
        assert results[1] == results[0]


def test_memory_of_a_step_in_place():
    # The kernels store where their inputs are: nothing as large as those is made.
    compiled = torch.compile(moments, backend="intarsia", fullgraph=True)
    inputs = [torch.rand(256, 1024) for _ in range(4)] + [torch.rand(1024)]
    compiled(*inputs)
    assert allocated(lambda: compiled(*inputs)) < 256 * 1024 * 4


def test_a_view_of_an_input_that_does_not_begin_its_storage(through):
    """Where a written view lies counts from the tensor, not from its storage."""

    def f(x, y):
        ops.add_into_(x[1:], y[1:])
        ops.add_into_(x[2:4], y[:2])
        return x * 2

    compiled = through(f, torch.zeros(20)[2:8], torch.ones(6))
    for start in (2, 0, 7):
        seen = []
        for run in (f, compiled):
            x = torch.arange(20.0)
            seen.append((run(x[start : start + 6], torch.ones(6)), x))
        assert_same(seen[1], seen[0])


def test_a_view_of_a_view_in_a_branch(check):
    def f(x, y):
        def write(x, y):
            ops.add_into_(x[1:], y[1:])
            return x + 1

        with torch.no_grad():
            return torch.cond(y.sum() > 0, write, lambda x, y: x - 1, (x[1:], y)), x * 2

    check(f, [torch.arange(4.0), torch.ones(3)], [torch.arange(4.0), -torch.ones(3)])
