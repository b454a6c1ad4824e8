"""Argument and result kinds, sizes known at run time only, control flow."""

from __future__ import annotations

import copy

import operators as ops
import pytest
import torch
from conftest import assert_same

import intarsia


def test_every_argument_kind(check, compile_with):
    def f(x, a):
        return torch.ops.test.everything(
            *(x, a, [None, x, None], [2, 3], [0.5, float("inf"), 1.0], [True, False]),
            *('a "quoted"\ntext', None, 2, 3 - 4j, torch.float64, torch.device("cpu")),
            form=torch.channels_last,
            layout=torch.strided,
        )

    x = torch.randn(3)
    ops.LOG.clear()
    check(f, [x, None], exact=True)
    assert len(ops.LOG) == 2 and ops.LOG[0] == ops.LOG[1]


def test_lists_in_and_out(check):
    def f(x, y):
        a, b, c = ops.split3(x + 1, [y * 2, x])
        return a * 2, b + c.sum()

    check(f, [torch.randn(3), torch.randn(2, 2)])


def test_empty_list(check):
    check(lambda x: ops.split3(x, [])[0] + 1, [torch.randn(3)])


@pytest.mark.parametrize("give", [True, False])
def test_optional_result(check, give):
    def f(x):
        a, b = torch.ops.test.maybe(x * 2, give)
        return (a, b + 1) if b is not None else (a, None)

    check(f, [torch.randn(3)])


def test_size_known_at_run_time(check):
    def f(x):
        y = ops.nonzero_rows(x)
        return y * 2, y.sum(dim=0), y.shape[0]

    x = torch.randn(5, 3)
    x[1] = 0
    check(f, [x], [torch.zeros(4, 3)], [torch.randn(1, 3)])


def test_number_known_at_run_time(check):
    def f(x):
        y, n = ops.count_positive(x)
        torch._check(n <= x.shape[0])
        return y + 1, torch.zeros(n) + 1, n

    check(f, [torch.tensor([1.0, -1.0, 2.0])], [torch.tensor([-1.0, -1.0, 2.0, -3.0])])


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_item(check):
    def f(x, n):
        k = n.item()
        return torch.zeros(k) + x.sum(), x.sum().item()

    check(f, [torch.randn(4), torch.tensor(3)], [torch.randn(4), torch.tensor(5)])


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_boolean_mask(check):
    check(lambda x: x[x > 0] * 2, [torch.tensor([1.0, -1.0, 3.0])], [torch.zeros(3)])


def test_size_as_argument(check):
    calls = [[torch.randn(n, 2)] for n in (3, 4, 6)]
    check(lambda x: ops.rows(x, x.shape[0] * 2 + 1), *calls, dynamic=True)


def test_cond(check):
    def f(x, y):
        return torch.cond(
            x.sum() > 0,
            lambda x, y: (ops.scaled_tanh(x, 2.0), x + y),
            lambda x, y: (x - y, x * y),
            (x, y),
        )

    check(f, [torch.ones(3), torch.randn(3)], [-torch.ones(3), torch.randn(3)])


def test_cond_in_training(check):
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    calls = [[torch.full((3,), v, requires_grad=True)] for v in (1.0, -1.0)]
    check(f, *calls, training=True)


def test_cond_on_a_size(check):
    def f(x):
        return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))

    check(f, [torch.randn(3)], [torch.randn(6)], dynamic=True)


def test_while_loop(check):
    def f(x):
        def keep(i, y):
            return i < 3

        def body(i, y):
            return i + 1, ops.scaled_tanh(y, 2.0)

        return torch.while_loop(keep, body, (torch.tensor(0), x))

    check(f, [torch.randn(3)])


def test_map_and_scan(check):
    from torch._higher_order_ops.map import map as hop_map

    check(
        lambda xs, y: hop_map(lambda x, y: x.sin() + y, xs, y), [torch.randn(3, 2), torch.randn(2)]
    )

    def scan(xs):
        def combine(carry, x):
            return carry + x, carry * x

        return torch._higher_order_ops.scan(combine, torch.zeros(2), xs)

    check(scan, [torch.randn(3, 2)])


def test_nested_compile_region(check):
    @torch.compiler.nested_compile_region
    def inner(x, y):
        return ops.scaled_tanh(x, 2.0) + y

    check(lambda x, y: inner(inner(x, y), x), [torch.randn(3), torch.randn(3)])


def test_ordered_effects(compile_with):
    from torch._library.effects import EffectType

    log = []

    @torch.library.custom_op("test::ordered", mutates_args=())
    def ordered(x: torch.Tensor, name: str) -> torch.Tensor:
        log.append(name)
        return x + 1

    ordered.register_fake(lambda x, name: torch.empty_like(x))
    ordered.register_effect(EffectType.ORDERED)

    def f(x):
        a = ordered(x, "first")
        ordered(x, "second")
        return a * 2

    f = compile_with(f)
    assert_same(f(torch.ones(2)), torch.full((2,), 4.0))
    assert log == ["first", "second"]


EFFECTS: list[str] = []


@torch.library.custom_op("test::told", mutates_args=())
def told(x: torch.Tensor, name: str) -> None:
    EFFECTS.append(name)


told.register_fake(lambda x, name: None)
told.register_effect(torch.library.EffectType.ORDERED)


def _branching(x):
    told(x, "before")

    def double(x):
        told(x, "inside")
        return x * 2

    y = torch.cond(x.sum() > 0, double, lambda x: x * 3, (x,))
    told(y, "after")
    return y


def _nested_branching(x):
    def outer(x):
        def inner(x):
            told(x, "inside")
            return x * 2

        return torch.cond(x.sum() > 1, inner, lambda x: x * 4, (x,))

    told(x, "before")
    return torch.cond(x.sum() > 0, outer, lambda x: x * 3, (x,)) + 1


def _looping(x):
    def body(i, x):
        told(x, "inside")
        return i + 1, x * 2

    told(x, "before")
    _, x = torch.while_loop(lambda i, x: i < 3, body, (torch.tensor(0), x))
    told(x, "after")
    return x


@torch.compiler.nested_compile_region
def _region(x):
    told(x, "inside")
    return x.sin()


def _regions(x):
    told(x, "before")
    return _region(_region(x)) + 1


@pytest.mark.parametrize("function", [_branching, _nested_branching, _looping, _regions])
def test_effects_inside_of_higher_order_operators(function, compile_with):
    seen = []
    for f in (function, compile_with(function)):
        EFFECTS.clear()
        seen.append((f(torch.ones(3)), list(EFFECTS)))
    assert_same(seen[1][0], seen[0][0])
    assert seen[1][1] == seen[0][1]


def test_generator(check):
    generator = torch.Generator()

    def f(x):
        return x + torch.rand(3, generator=generator)

    state = generator.get_state()
    want = f(torch.zeros(3))
    generator.set_state(state)
    got = torch.compile(f, backend="intarsia")(torch.zeros(3))
    assert torch.equal(got, want)


def test_flex_attention_runs_in_python(check):
    """A higher-order operator without a native form still runs."""
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    check(lambda q, k, v: flex_attention(q, k, v), [q, k, v])


def test_a_compiled_adam_step() -> None:
    # Dynamo writes `prims.fma` with a number for one of its tensors.
    torch.manual_seed(0)
    models = [torch.nn.Linear(7, 5) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step, backend="intarsia")]
    for _ in range(2):
        x = torch.randn(4, 7)
        for model, optimizer, step in zip(models, optimizers, steps, strict=True):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            step()
    for mine, eager in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fuse", [False, True])
def test_layer_norm_of_mixed_precision(fuse: bool) -> None:
    # The fake of the operator promises statistics in bfloat16; they are float32.
    norm = torch.nn.LayerNorm(16)
    x = torch.randn(3, 16, dtype=torch.bfloat16)

    def run(f):
        norm.zero_grad()
        y = x.clone().requires_grad_()
        out = f(y)
        (out.float() * torch.arange(16.0)).sum().backward()
        return out, y.grad, norm.weight.grad, norm.bias.grad

    def call(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(y, (16,), norm.weight, norm.bias)

    got = run(torch.compile(call, backend="intarsia", options={"fuse": fuse}))
    for a, b in zip(got, run(call), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("fuse", [False, True])
def test_batch_norm_of_mixed_precision(fuse: bool) -> None:
    norm = torch.nn.BatchNorm1d(6)
    other = copy.deepcopy(norm)
    x = torch.randn(16, 6, dtype=torch.bfloat16)

    def run(module, f):
        y = x.clone().requires_grad_()
        out = f(y)
        (out.float() * torch.arange(6.0)).sum().backward()
        parameters = [module.weight.grad, module.bias.grad]
        return out, y.grad, *parameters, module.running_mean, module.running_var

    got = run(norm, torch.compile(norm, backend="intarsia", options={"fuse": fuse}))
    for a, b in zip(got, run(other, other), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("fuse", [False, True])
def test_dropout_draws_the_mask_that_eager_draws(fuse: bool) -> None:
    x = torch.randn(5, 7)

    def run(f):
        y = x.clone().requires_grad_()
        torch.manual_seed(0)
        out = f(y)
        out.sum().backward()
        return out, y.grad

    def call(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(y.exp(), 0.3) * 2

    with intarsia.record_compilations() as compilations:
        got = run(torch.compile(call, backend="intarsia", options={"fuse": fuse}))
    for a, b in zip(got, run(call), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    if fuse:
        forward = compilations[0].program
        assert forward.kernel_count == 1
        assert "call aten::bernoulli.p" in forward.plan_text


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: torch.fmod(a, b),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    ],
)
def test_integers_divided_by_zero(call) -> None:
    compiled = torch.compile(call, backend="intarsia")
    a = torch.arange(-40, 40)
    for b in (torch.full((80,), -7), torch.full((80,), -1)):
        assert torch.equal(compiled(a, b), call(a, b))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(a, a)
    # Eager dies of this one.
    least = torch.full((20,), torch.iinfo(torch.int64).min)
    assert compiled(least, torch.full((20,), -1)).shape == (20,)
