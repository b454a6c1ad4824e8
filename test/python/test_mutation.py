"""Operators that write their arguments, and views of what they write."""

from __future__ import annotations

import operators as ops
import pytest
import torch
from conftest import assert_same
from test_cache_bytes import allocated


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
