"""torch.compile(backend="intarsia"): inference, training, what graphs may take and give."""

from __future__ import annotations

import logging

import operators as ops
import pytest
import torch
from conftest import assert_same
from torch.nn import functional as F

import intarsia


class Block(torch.nn.Module):
    """A little of everything: library calls, reductions, views, a custom operator."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        h = ops.scaled_tanh(h, 2.0)
        h = F.silu(self.down(h)) * self.scale
        return (x + h).softmax(dim=-1)


def test_backend_is_found_by_name():
    assert "intarsia" in torch._dynamo.list_backends()


def test_inference(check):
    with torch.no_grad():
        check(Block(), [torch.randn(3, 5, 8)])


def test_inference_mode(check):
    with torch.inference_mode():
        check(Block(), [torch.randn(3, 8)])


def test_training(check):
    check(Block(), [torch.randn(3, 5, 8, requires_grad=True)], training=True)


def test_training_with_dynamic_sizes(check):
    calls = [[torch.randn(n, 8, requires_grad=True)] for n in (3, 5, 7)]
    check(Block(), *calls, training=True, dynamic=True)


def test_one_compilation_serves_all_sizes(compile_with):
    with intarsia.record_compilations() as compilations, torch.no_grad():
        f = compile_with(lambda x: F.gelu(x) * 2, dynamic=True)
        for n in (3, 4, 17, 100):
            x = torch.randn(n, n + 1)
            assert_same(f(x), F.gelu(x) * 2)
    assert len(compilations) == 1


def test_two_wrappers_share_their_code():
    """Compiling the same function again with equal options does not recompile."""

    def f(x):
        return x.sin() + 1

    with intarsia.record_compilations() as compilations:
        for _ in range(3):
            torch.compile(f, backend="intarsia", options={"fuse": True})(torch.ones(3))
    assert len(compilations) == 1


def test_backward_twice(compile_with):
    """A retained graph may be run again, as in eager."""
    x = torch.randn(4, requires_grad=True)
    y = compile_with(lambda x: ops.scaled_tanh(x.exp() * 2, 0.5).sum())(x)
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)


def test_second_order_is_refused_clearly(compile_with):
    x = torch.randn(4, requires_grad=True)
    y = compile_with(lambda x: (x.exp() * x).sum())(x)
    with pytest.raises(RuntimeError, match=r"double backward|aot_autograd"):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.sum().backward()


def test_optimiser_step(compile_with):
    model, reference = Block(), Block()
    reference.load_state_dict(model.state_dict())
    f = compile_with(model)
    for _step in range(3):
        x = torch.randn(4, 8)
        for m, call in ((reference, reference), (model, f)):
            optimiser = torch.optim.SGD(m.parameters(), lr=0.1)
            optimiser.zero_grad()
            (call(x) * torch.arange(8.0)).sum().backward()
            optimiser.step()
    assert_same(list(model.parameters()), list(reference.parameters()))


def test_what_outputs_may_be(check):
    def f(x, y):
        return x, None, 3, x.shape[0], [y + 1, {"same": y}], x.view(-1), "text"

    check(f, [torch.randn(2, 3), torch.randn(2)])


def test_output_twice(check):
    def f(x):
        y = x + 1
        return y, y, y.t()

    compiled = check(f, [torch.randn(2, 3)])
    a, b, c = compiled(torch.randn(2, 3))
    assert a is b or a.data_ptr() == b.data_ptr()
    assert c.data_ptr() == a.data_ptr()


def test_symbolic_numbers_in_and_out(check):
    def f(x, n, scale):
        return x[:n] * scale, n * 2, x.shape[0] // n

    check(f, [torch.randn(7), 3, 1.5], [torch.randn(9), 4, 2.5], dynamic=True)


def test_float_that_changes(check):
    calls = [[torch.randn(3), s] for s in (1.5, 2.5, float("inf"), -0.0)]
    check(lambda x, s: ops.scaled_tanh(x, 1.0) * s, *calls, exact=True)


def test_empty_tensors(check):
    def f(x):
        return x.sum(), x.exp(), torch.cat([x, x]), ops.scaled_tanh(x, 1.0)

    check(f, [torch.randn(0, 3)])


def test_graph_without_inputs(check):
    check(lambda: torch.ones(3) + torch.arange(3), [])


def test_constants_from_the_function(check):
    check(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), [torch.randn(3)])


def test_dtypes(check):
    def f(x):
        return x + 1, x * x, (x > 1).sum(), x.to(torch.float32) / 3

    dtypes = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    dtypes += (torch.float16, torch.bfloat16, torch.float64)
    for dtype in dtypes:
        torch._dynamo.reset()
        check(f, [torch.arange(1, 7).reshape(2, 3).to(dtype)])


def test_complex_numbers(check):
    x = torch.randn(2, 3, dtype=torch.complex64)
    check(lambda x: (x * (1 + 2j), x.conj() + 1, torch.view_as_real(x * 1)), [x])


def test_non_contiguous_inputs(check):
    x = torch.randn(4, 6)
    check(
        lambda x, y: (x.relu() + y, x.sum(0), torch.softmax(y, 1)),
        [x.t(), x.t()[:, ::1] * 1],
        [torch.randn(1, 4).expand(6, 4), torch.randn(6, 8)[:, ::2]],
    )


def test_strides_of_an_opaque_operand(check):
    """An operator sees the strides that it would see in eager."""
    x = torch.randn(4, 6)
    check(lambda x: (ops.wants_columns(x.t() + 1), ops.wants_columns(x.t())), [x])


def test_random_operators_follow_eager(check):
    def f(x):
        return F.dropout(x, 0.5) + torch.rand_like(x), torch.randperm(5)

    check(f, [torch.ones(4, 5)], exact=True)


def test_unused_random_operators_run(check):
    def f(x):
        torch.rand(3)
        ops.draw(7)
        return x + ops.draw(3)

    check(f, [torch.zeros(3)], exact=True)


@pytest.mark.parametrize(
    "call",
    [ops.record, torch.ops.test.record, torch.ops.test.record.default],
    ids=["custom_op", "packet", "overload"],
)
def test_unused_operators_with_effects_run(compile_with, call):
    ops.LOG.clear()

    def f(x):
        call(x)
        return x + 1

    f = compile_with(f)
    f(torch.ones(2))
    f(torch.ones(2))
    assert ops.LOG == ["record", "record"]


def test_an_effect_in_a_backward_repeats_nothing(compile_with):
    """What the effect reads is drawn once: the gradient uses the same numbers."""

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            drawn = ops.draw(3) * x
            ops.record(drawn)
            return grad * drawn

    results = []
    for f in (Scale.apply, compile_with(lambda x: Scale.apply(x))):
        torch.manual_seed(0)
        ops.LOG.clear()
        x = torch.ones(3, requires_grad=True)
        f(x).sum().backward()
        results.append((x.grad, torch.rand(1), list(ops.LOG)))
    assert_same(results[1], results[0])


def test_kernels_run_once(compile_with):
    """An opaque call is never duplicated, in the forward or the backward."""
    ops.LOG.clear()
    x = torch.randn(4, requires_grad=True)

    def f(x):
        y = ops.scaled_tanh(x, 2.0)
        return (y * y + y.exp()).sum()

    compile_with(f)(x).backward()
    assert ops.LOG == ["scaled_tanh"]


def test_autocast(check):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(x @ w) + 1

    check(f, [torch.randn(4, 4), torch.randn(4, 4)])


def test_compiled_autograd(compile_with):
    x = torch.randn(4, requires_grad=True)
    y = (ops.scaled_tanh(x * 2, 1.0) ** 2).sum()
    (want,) = torch.autograd.grad(y, x)
    enable = torch._dynamo.compiled_autograd._enable
    with enable(lambda gm: torch.compile(gm, backend="intarsia", fullgraph=True)):
        compile_with(lambda x: (ops.scaled_tanh(x * 2, 1.0) ** 2).sum())(x).backward()
    torch.testing.assert_close(x.grad, want)


def test_vmap_and_functional_gradients(check):
    def f(x):
        return torch.func.vmap(torch.func.grad(lambda v: (v.sin() * v).sum()))(x)

    check(f, [torch.randn(3, 4)])


library = torch.library.Library("test_doors", "FRAGMENT")
library.define("noise(Tensor x, Generator? g) -> Tensor")
library.impl("noise", lambda x, g: x + torch.rand(x.shape, generator=g), "CPU")
torch.library.register_fake("test_doors::noise", lambda x, g: torch.empty_like(x), lib=library)


def test_generators(fuse):
    """Dynamo runs an operator that takes one between two compiled graphs."""
    everywhere = torch.Generator()

    def f(x, g):
        y = torch.ops.test_doors.noise(x * 2, g) + torch.rand(3, generator=everywhere)
        return torch.ops.test_doors.noise(y * 2, everywhere).exp()

    compiled = torch.compile(f, backend="intarsia", options={"fuse": fuse})
    x = torch.ones(3)
    for seed in (1, 2):
        seen = []
        for function in (f, compiled):
            everywhere.manual_seed(seed)
            given = torch.Generator().manual_seed(seed + 1)
            seen.append((function(x, given), everywhere.get_state(), given.get_state()))
        assert_same(seen[1], seen[0])


def test_graph_breaks(compile_with):
    def f(x):
        y = ops.scaled_tanh(x, 2.0)
        torch._dynamo.graph_break()
        return y.exp() + x

    x = torch.randn(5)
    assert_same(compile_with(f, fullgraph=False)(x), f(x))


def test_record_compilations(caplog):
    f = torch.compile(lambda x: ops.scaled_tanh(x + 1, 1.0) * 2, backend="intarsia", name="mine")
    with caplog.at_level(logging.INFO, logger="intarsia"):
        with intarsia.record_compilations() as compilations:
            f(torch.randn(3))
    (compilation,) = compilations
    assert compilation.kind == "inference" and compilation.name.startswith("mine")
    assert "test::scaled_tanh" in compilation.program.plan_text
    assert compilation.program.call_count >= 1
    assert compilation.seconds > 0 and compilation.program.timings
    assert any("mine" in record.message for record in caplog.records)


def test_unfused_is_one_call_a_node():
    with intarsia.record_compilations() as compilations:
        options = {"fuse": False}
        f = torch.compile(lambda x: (x + 1).exp() * 2, backend="intarsia", options=options)
        f(torch.randn(3))
    (compilation,) = compilations
    assert compilation.program.call_count == 3
    assert compilation.program.kernel_count == 0


def test_profile():
    with intarsia.record_compilations() as compilations:
        options = {"fuse": False}
        f = torch.compile(
            lambda x: ops.scaled_tanh(x, 2.0) + 1, backend="intarsia", options=options
        )
        x = torch.randn(3)
        want = f(x)
    outputs, steps = compilations[0].program.profile([x])
    assert torch.equal(outputs[0], want)
    calls = {name: (line, count) for _, _, name, line, count, _ in steps}
    line, count = calls["test::scaled_tanh"]
    assert count == 1 and "test_doors.py" in line
    assert all(seconds >= 0 for *_, seconds in steps)


def test_facts_of_operators():
    from intarsia._extension import extension

    facts = extension().operator_facts("test::put_")
    assert facts["mutated"] == ["cache"] and not facts["random"]
    assert extension().operator_facts("test::draw")["random"]
    assert extension().operator_schema("test::never_made") is None
    with pytest.raises(intarsia.LoadError, match="test::never_made"):
        extension().operator_facts("test::never_made")
