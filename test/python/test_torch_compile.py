# ===- test_torch_compile.py - torch.compile's features with this backend ---===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What docs/torch-compile.md says, feature by feature."""

from __future__ import annotations

import copy
import functools
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import assert_same
from operators import *  # noqa: F403  (registers the operators)
from torch import nn

import intarsia


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def compilations_of(function, *calls) -> int:
    with intarsia.record_compilations() as compilations:
        for call in calls:
            function(*call)
    return len(compilations)


def test_default_backend() -> None:
    x = torch.randn(3)
    previous = torch.compiler.get_default_backend()
    torch.compiler.set_default_backend("intarsia")
    try:
        with torch.no_grad():
            assert compilations_of(torch.compile(torch.sin), [x]) == 1
    finally:
        torch.compiler.set_default_backend(previous)
    assert "intarsia" in torch.compiler.list_backends()
    with torch.no_grad(), torch.compiler.set_stance("default", force_backend="intarsia"):
        assert compilations_of(torch.compile(torch.cos, backend="eager"), [x]) == 1


def test_stance(compile_with) -> None:
    f = compile_with(lambda x: torch.sin(x) * 2)
    x = torch.randn(3)
    with torch.no_grad():
        with torch.compiler.set_stance("force_eager"):
            assert compilations_of(f, [x]) == 0
        assert compilations_of(f, [x]) == 1
        with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError):
            f(x.double())


def test_sizes_that_change_compile_twice(compile_with) -> None:
    f = compile_with(lambda x: torch.tanh(x) + 1)
    with torch.no_grad():
        assert compilations_of(f, *([torch.randn(n, 4)] for n in (3, 5, 7, 11))) == 2


def test_a_size_that_is_marked_compiles_once(compile_with) -> None:
    f = compile_with(lambda x: torch.tanh(x) + 1)
    x = torch.randn(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        assert compilations_of(f, [x], [torch.randn(9, 4)]) == 1


def test_weights_are_swapped_without_compiling_again(compile_with) -> None:
    net, other = Net(), Net()
    compiled = compile_with(net)
    x = torch.randn(2, 6)
    with torch.no_grad():
        compiled(x)
        net.load_state_dict(other.state_dict())
        assert compilations_of(compiled, [x]) == 0
        assert_same(compiled(x), other(x))
        net.first.weight.mul_(2)
        assert_same(compiled(x), net(x))


def test_threads_are_set_after_compiling(compile_with) -> None:
    f = compile_with(lambda x: torch.tanh(x).sum(-1))
    x = torch.randn(512, 512)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            for threads in (1, 2, 1):
                torch.set_num_threads(threads)
                assert_same(f(x), torch.tanh(x).sum(-1))
    finally:
        torch.set_num_threads(before)


def test_modules_are_copied(compile_with) -> None:
    net = Net()
    compiled = compile_with(net)
    x = torch.randn(2, 6)
    with torch.no_grad():
        want = compiled(x)
        twin = copy.deepcopy(compiled)
        for parameter in net.parameters():
            parameter.zero_()
        assert_same(twin(x), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_amp_with_a_scaler(compile_with, dtype) -> None:
    """Both runs see the same steps, so that a scale that overflows is skipped by both."""
    x, target = torch.randn(4, 6), torch.randn(4, 3)
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = Net()
        model = compile_with(net) if compiled else net
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = nn.functional.mse_loss(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        results.append([p.detach() for p in net.parameters()])
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("policy", ["reentrant", "whole", "selective"])
def test_activation_checkpointing(check, policy) -> None:
    from torch.utils import checkpoint as ac

    def save_products(ctx, op, *args, **kwargs):
        wanted = op is torch.ops.aten.mm.default
        return ac.CheckpointPolicy.MUST_SAVE if wanted else ac.CheckpointPolicy.PREFER_RECOMPUTE

    options: dict = {"use_reentrant": policy == "reentrant"}
    if policy == "selective":
        options["context_fn"] = functools.partial(
            ac.create_selective_checkpoint_contexts, save_products
        )

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def region(x, w):
            return torch.tanh(torch.nn.functional.dropout(x @ w, 0.3)).sin()

        return ac.checkpoint(region, x, w, **options) * 2

    check(
        f,
        [torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)],
        training=True,
    )


def test_a_budget_for_what_is_saved() -> None:
    """PyTorch's own knob: the smaller, the more is computed again, and the gradients stay."""
    layers = [nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)]
    module = nn.Sequential(*layers, *copy.deepcopy(layers))
    x = torch.randn(5, 8)
    module(x).square().sum().backward()
    want = [p.grad for p in module.parameters()]

    def saved_with(budget: float) -> int:
        torch._dynamo.reset()
        module.zero_grad()
        sizes: list[int] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with (
            torch._functorch.config.patch(activation_memory_budget=budget),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        ):
            result = torch.compile(module, backend="intarsia")(x)
        result.square().sum().backward()
        torch.testing.assert_close([p.grad for p in module.parameters()], want)
        return sum(sizes)

    assert saved_with(0.0) < saved_with(1.0)


def test_hooks_on_saved_tensors(compile_with) -> None:
    """Pack and unpack see what the compiled forward saves, and may change it."""
    seen = []

    def pack(tensor):
        seen.append(tensor.shape)
        return tensor * 1

    f = compile_with(lambda x: torch.exp(torch.tanh(x)).sum())
    x = torch.randn(5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = f(x)
    y.backward()
    (want,) = torch.autograd.grad(torch.exp(torch.tanh(x)).sum(), x)
    assert_same(x.grad, want)
    assert seen


def test_what_a_kernel_computes_again_is_not_saved() -> None:
    """An activation before a normalisation, or a softmax, is computed again."""
    torch._dynamo.reset()
    layers = [nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh()]
    module = nn.Sequential(*layers, nn.Softmax(-1), nn.Linear(8, 8))
    saved = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tuple(tensor.shape))
        return tensor

    x = torch.randn(5, 8)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = torch.compile(module, backend="intarsia")(x)
    # x, and of the rest the results of the products and what goes into them.
    assert saved.count((5, 8)) == 5
    result.square().sum().backward()
    got = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    module(x).square().sum().backward()
    torch.testing.assert_close(got, [parameter.grad for parameter in module.parameters()])


def test_hooks_on_gradients(compile_with) -> None:
    f = compile_with(lambda x: torch.tanh(x) * 3)
    x = torch.randn(5, requires_grad=True)
    x.register_hook(lambda grad: grad * 2)
    f(x).sum().backward()
    want = 2 * 3 * (1 - torch.tanh(x.detach()) ** 2)
    assert_same(x.grad, want)


def test_profiler_names_kernels_and_calls(compile_with, fuse) -> None:
    f = compile_with(lambda x: torch.sin(torch.tanh(x) @ x))
    x = torch.randn(4, 4)
    with torch.no_grad():
        f(x)
        with torch.profiler.profile() as profile:
            f(x)
    names = {event.name for event in profile.events()}
    assert "aten::mm" in names
    assert any(name.startswith("intarsia::") for name in names) == fuse


def test_profiler_shows_shapes() -> None:
    """Of calls and of kernels, also of what they leave in the arena."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x) @ y, 0).sum(0) @ scaled_tanh(y.T, 2.0)  # noqa: F405

    compiled = torch.compile(f, backend="intarsia", dynamic=True)
    with torch.no_grad():
        for rows in (4, 7):
            x, y = torch.randn(rows, 5), torch.randn(5, 6)
            compiled(x, y)
            with torch.profiler.profile(record_shapes=True) as profile:
                compiled(x, y)
            shapes = {event.name: event.input_shapes for event in profile.events()}
            assert shapes["intarsia::k0_tanh"] == [[rows, 5], [rows, 5]]
            assert shapes["aten::mm"] == [[1, 6], [6, 5]]
            assert shapes["test::scaled_tanh"][0] == [6, 5]
            (last,) = (v for k, v in shapes.items() if k.startswith("intarsia::k1"))
            assert last == [[rows, 6], [6]]


#: What each log has, and no other has.
LOGGED = {
    "graph": "intarsia.call",
    "fused": "intarsia.kernel",
    "plan": "kernel 0 @k0_sin",
    "kernels": "llvm.func",
    "perf": " ms",
}


@pytest.mark.parametrize(
    "switch, shown",
    [("intarsia", ()), ("+intarsia.logs.plan,intarsia.logs.perf", ("plan", "perf"))],
)
def test_logs_by_pytorchs_variable(switch: str, shown: tuple[str, ...]) -> None:
    code = """
import torch
with torch.no_grad():
    torch.compile(torch.sin, backend="intarsia")(torch.randn(3))
"""
    environment = {**os.environ, "TORCH_LOGS": switch}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if "graph0_inference" in line]
    assert bool(lines)
    for name in LOGGED:
        assert any(f"graph0_inference: {name}" in line for line in lines) == (
            name in shown and name != "perf"
        )
    assert any("lower " in line for line in lines) == ("perf" in shown)


@pytest.mark.parametrize("name", LOGGED)
def test_logs_by_pytorchs_function(name: str) -> None:
    import logging

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    loggers = [logging.getLogger(f"intarsia.logs.{other}") for other in LOGGED]
    torch._logging.set_logs(modules={f"intarsia.logs.{name}": logging.DEBUG})
    try:
        for logger in loggers:
            logger.addHandler(handler)
        with torch.no_grad():
            torch.compile(torch.sin, backend="intarsia")(torch.randn(3))
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        torch._logging.set_logs()
    (record,) = records
    assert record.name == f"intarsia.logs.{name}"
    assert LOGGED[name] in record.getMessage()


SAVING = """
import os, sys, torch, intarsia

def f(x, w):
    return torch.tanh(x @ w).softmax(-1) * 2

for training in (False, True):
    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=training)
    path = f"{sys.argv[2]}{training}"
    if sys.argv[1] == "saving":
        with torch._dynamo.config.patch(enable_aot_compile=True):
            compiled = torch.compile(f, backend="intarsia", fullgraph=True)
            compiled.aot_compile(((x, w), {})).save_compiled_function(path)
        continue
    with open(path, "rb") as file, intarsia.record_compilations() as compilations:
        loaded = torch.compiler.load_compiled_function(file)
        got, want = loaded(x, w), f(x, w)
    torch.testing.assert_close(got, want)
    if training:
        torch.testing.assert_close(*(torch.autograd.grad(y[0].sum(), w) for y in (got, want)))
    assert all(c.cached for c in compilations)
"""


def test_a_compiled_function_is_saved(tmp_path: Path) -> None:
    """torch.compile(...).aot_compile: Dynamo's result and ours in one file, which another
    process loads, without the folders of any cache."""
    program = tmp_path / "program.py"
    program.write_text(SAVING)
    for process in ("saving", "loading"):
        environment = {
            **os.environ,
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / process),
            "INTARSIA_CACHE_DIR": str(tmp_path / process),
        }
        result = subprocess.run(
            [sys.executable, str(program), process, str(tmp_path / "function")],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr


def test_a_subinterpreter_is_refused() -> None:
    """PyTorch cannot be imported in one; who tries to does not return. In a process of its
    own: with a subinterpreter, autograd does not work in the main one either."""
    pytest.importorskip("_xxsubinterpreters")
    code = """
import _xxsubinterpreters as interpreters, sys
interpreters.run_string(
    interpreters.create(), f"import sys; sys.path[:] = {sys.path!r}\\nimport intarsia"
)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "intarsia cannot be imported in a subinterpreter" in result.stderr


def test_parameters_are_not_copied(compile_with) -> None:
    """An operator sees the memory of parameters and buffers themselves."""
    net = nn.Linear(3, 3)
    net.register_buffer("scale", torch.ones(3))
    seen: list[int] = []

    @torch.library.custom_op("test::sees_memory", mutates_args=())
    def sees_memory(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        return x * 2

    sees_memory.register_fake(lambda x: torch.empty_like(x))

    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ sees_memory(net.weight) + sees_memory(net.bias) * sees_memory(net.scale)

    with torch.no_grad():
        compile_with(f)(torch.randn(2, 3))
    assert seen == [x.data_ptr() for x in (net.weight, net.bias, net.scale)]


@pytest.mark.parametrize("dynamic, programs", [(True, 1), (None, 2), (False, 3)])
def test_how_many_programs_sizes_make(compile_with, dynamic, programs) -> None:
    f = compile_with(lambda x: torch.tanh(x) + 1, dynamic=dynamic)
    with torch.no_grad():
        assert compilations_of(f, *([torch.randn(n, 4)] for n in (3, 5, 9))) == programs


def test_numbers_that_change(compile_with) -> None:
    """Integers and floats become symbols at the second value."""

    def f(x: torch.Tensor, scale: float, n: int) -> torch.Tensor:
        return x * scale + n * scale

    compiled = compile_with(f)
    calls = [(torch.randn(3), s, n) for s, n in ((1.5, 3), (2.5, 4), (-0.25, 9), (1e30, 2))]
    with torch.no_grad():
        assert compilations_of(compiled, *calls) == 2
        for call in calls:
            assert_same(compiled(*call), f(*call))


def test_a_check_of_a_size_that_depends_on_data(compile_with) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = x.max().item()
        torch._check(n >= 2)
        torch._check(n <= y.shape[0])
        return y[:n].tanh() * n

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = compile_with(f)
        y = torch.randn(9, 3)
        calls = [(torch.tensor([1, n]), y) for n in (3, 5, 9)]
        assert compilations_of(compiled, *calls) == 1
        for call in calls:
            assert_same(compiled(*call), f(*call))
        for n in (1, 10):
            with pytest.raises(RuntimeError, match="a value from 2 to 9"):
                compiled(torch.tensor([0, n]), y)


def test_a_size_that_a_check_makes_one(compile_with, fuse) -> None:
    """It stays a symbol, and its dimension goes or is stretched as one of size 1 does."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        one, others = torch.unique(x), torch.unique(y)
        torch._check(one.shape[0] == 1)
        table = one[:, None] * others
        return [
            *(one.squeeze() * 2, one.squeeze(0) + y, one[:, None, None].squeeze((0, 1)) * 2),
            *(table.squeeze() * 2, table.squeeze(0) + 1, table.squeeze(1) * 3),
            *(one + y, one.expand(5) * 2, one.reshape(1, 1) * y, one[:, None] @ y[None]),
        ]

    x, y = torch.full((3,), 2.0), torch.arange(5.0)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = compile_with(f)
        assert_same(compiled(x, y), f(x, y))
        with pytest.raises(RuntimeError, match="traced with a check"):
            compiled(torch.arange(3.0), y)


def test_reset(compile_with) -> None:
    f = compile_with(torch.sin)
    with torch.no_grad():
        assert compilations_of(f, [torch.ones(3)]) == 1
        torch.compiler.reset()
        assert compilations_of(f, [torch.ones(3)], [torch.ones(3)]) == 1


def test_a_whole_step_with_compiled_autograd(compile_with) -> None:
    """The backward of a compiled function, with a hook, in a graph of its own."""

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).sin().sum()

    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        x.register_hook(lambda grad: grad * 3)
        step = lambda x, w: loss(x, w).backward()  # noqa: E731
        with torch._dynamo.config.patch(compiled_autograd=True):
            (compile_with(step, fullgraph=False) if compiled else step)(x, w)
        results.append([x.grad, w.grad])
    assert_same(results[1], results[0])


def test_gradients_inside_a_compiled_function(compile_with) -> None:
    """Second derivatives that Dynamo traces into one graph."""

    def f(x: torch.Tensor) -> torch.Tensor:
        inner = torch.func.grad(lambda v: (torch.tanh(v) * v).sum())
        return torch.func.grad(lambda z: inner(z).sum())(x) + torch.func.vmap(torch.sin)(x)

    x = torch.randn(5, 3)
    assert_same(compile_with(f)(x), f(x))


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "jacfwd", "hessian"])
def test_transforms_of_compiled_functions(compile_with, transform) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x) * x).sum()

    x = torch.randn(4, 3)
    change = getattr(torch.func, transform)
    assert_same(change(compile_with(f, fullgraph=False))(x), change(f)(x))


def test_forward_mode(compile_with) -> None:
    """Dual numbers through a compiled function: Dynamo leaves the call to eager, or traces it."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * x

    x, tangent = torch.randn(3), torch.randn(3)
    compiled = compile_with(f, fullgraph=False)
    assert_same(torch.func.jvp(compiled, (x,), (tangent,)), torch.func.jvp(f, (x,), (tangent,)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        got = torch.autograd.forward_ad.unpack_dual(compiled(dual))
        want = torch.autograd.forward_ad.unpack_dual(f(dual))
    assert_same(got.tangent, want.tangent)


def test_hooks_of_modules(compile_with) -> None:
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        net[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
        net[1].register_forward_hook(lambda module, inputs, output: output * 2)
        net[2].register_full_backward_pre_hook(lambda module, grads: (grads[0] * 0.25,))
        net[2].register_full_backward_hook(lambda module, grads, _: (grads[0] * 0.5,))
        net[0].weight.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(3)].clear())
        x = torch.randn(3, 4, requires_grad=True)
        (compile_with(net, fullgraph=False) if compiled else net)(x).sum().backward()
        results.append([x.grad, *(p.grad for p in net.parameters())])
    assert_same(results[1], results[0])


def test_double_backward_is_refused_in_pytorchs_words(compile_with) -> None:
    def refusal(f) -> str:
        x = torch.randn(4, requires_grad=True)
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(first.sum(), x)
        return str(error.value)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * x

    want = refusal(torch.compile(f, backend="aot_eager"))
    torch._dynamo.reset()
    assert refusal(compile_with(f)) == want


def test_weights_are_replaced(compile_with) -> None:
    """By others: assigned, set as data, of another dtype."""
    net, other = Net(), Net()
    compiled = compile_with(net)
    x = torch.randn(2, 6)
    with torch.no_grad():
        compiled(x)
        net.load_state_dict(other.state_dict(), assign=True)
        assert_same(compiled(x), other(x))
        net.first.weight.data = torch.ones(8, 6)
        assert_same(compiled(x), net(x))
        net.double()
        assert_same(compiled(x.double()), net(x.double()))


@pytest.mark.parametrize(
    "stance", ["force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile"]
)
def test_stances_that_find_a_program(compile_with, stance: str) -> None:
    f = compile_with(lambda x: torch.sin(x) * 2)
    x = torch.randn(3)
    with torch.no_grad():
        f(x)
        with torch.compiler.set_stance(stance):
            assert compilations_of(f, [x]) == 0
            assert_same(f(x), torch.sin(x) * 2)


def test_deterministic_algorithms(compile_with) -> None:
    """The switch is obeyed as in eager, also when it changes after compiling."""
    put = compile_with(lambda x, i: x.clone().put_(i, x[:2] * 2))
    empty = compile_with(lambda x: torch.empty(3) * 2 + x.sum())
    x, i = torch.ones(4), torch.tensor([0, 3])
    with torch.no_grad():
        want = put(x, i)
        torch.use_deterministic_algorithms(True)
        try:
            assert empty(x).isnan().all()
            with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
                put(x, i)
        finally:
            torch.use_deterministic_algorithms(False)
        assert_same(put(x, i), want)


def test_compiled_modules_are_pickled() -> None:
    compiled = torch.compile(Net(), backend="intarsia")
    x = torch.randn(2, 6)
    want = compiled(x)
    restored = pickle.loads(pickle.dumps(compiled))
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.zero_()
    assert isinstance(restored, torch._dynamo.OptimizedModule)
    assert_same(restored(x), want)


def test_an_unbacked_size_compiles_once(compile_with) -> None:
    f = compile_with(lambda x: torch.tanh(x) * 2)
    x = torch.randn(5, 3)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    with torch.no_grad():
        others = [torch.randn(n, 3) for n in (0, 1, 7)]
        assert compilations_of(f, [x], *([other] for other in others)) == 1
        for other in others:
            assert_same(f(other), torch.tanh(other) * 2)


def test_explain_and_steps(compile_with) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.cos(y)

    x = torch.randn(3)
    compiled = compile_with(f, fullgraph=False)
    with torch.no_grad():
        compiled(x)
        torch.compiler.cudagraph_mark_step_begin()
        assert_same(compiled(x), f(x))
        assert torch._dynamo.explain(f)(x).graph_count == 2


WORKERS = """
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.f = torch.compile(lambda x: torch.tanh(x) * 2 + x, backend="intarsia")
    def __len__(self):
        return 6
    def __getitem__(self, i):
        with torch.no_grad():
            return self.f(torch.full((3,), float(i)))
    def __getstate__(self):
        return {}
    def __setstate__(self, state):
        self.__init__()

if __name__ == "__main__":
    rows = Rows()
    want = torch.stack([rows[i] for i in range(6)])
    for context in ("fork", "spawn"):
        loader = DataLoader(rows, 3, num_workers=2, multiprocessing_context=context)
        torch.testing.assert_close(torch.cat(list(loader)), want, rtol=0, atol=0)
    print("equal")
"""


def test_workers_of_a_data_loader(tmp_path: Path) -> None:
    """Forked workers run what was compiled before; spawned ones compile it again."""
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "equal"


def test_functions_of_sizes_have_pythons_values(compile_with) -> None:
    """What math and round() make of a size that is symbolic."""

    def numbers(n: int) -> list[float]:
        half = n / 2
        functions = (math.sin, math.cos, math.tan, math.sinh, math.cosh, math.tanh)
        inverse = (math.asin, math.acos, math.atan)
        return [
            *(f(half) for f in (*functions, math.log2, math.sqrt)),
            *(f(1 / half) for f in inverse),
            *(round(123.4565 * half, digits) for digits in (2, 0, -1, -2, -3)),
            round(half),
        ]

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.sum() * value for value in numbers(x.size(0))])

    compiled = compile_with(f, dynamic=True)
    with torch.no_grad(), intarsia.record_compilations() as compilations:
        for n in (5, 6, 11):
            x = torch.zeros(n, dtype=torch.float64)
            x[0] = 1
            want = torch.tensor(numbers(n), dtype=torch.float64)
            torch.testing.assert_close(compiled(x), want, rtol=0, atol=0)
    assert len(compilations) == 1


def test_sizes_that_guards_say_are_equal():
    """Halves of an odd size, as in a scan: two expressions, one size."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x[::2][:-1] * x[1::2] + 1)

    compiled = torch.compile(halves, backend="intarsia", dynamic=True, fullgraph=True)
    with intarsia.record_compilations() as compilations:
        for count in (9, 13):
            x = torch.randn(count, 3)
            torch.testing.assert_close(compiled(x), halves(x))
    assert "call aten::" not in compilations[0].program.plan_text
    # A size that the guards exclude is another program, or eager's error.
    with pytest.raises(Exception, match=r"size|shape"):
        compiled(torch.randn(10, 3))


def test_sizes_that_guards_leave_one_value():
    """A scan over 13 elements halves them until nothing else would do."""

    def eighths(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = x.shape[1]
        whole = count // 8 * 8 + 5
        if count // 8 == 1 and whole == count:
            y = x[:, :whole] * 2 + x
            return y * count, torch.full((2,), count / 4.0), y.new_zeros(count) + count
        return x + 1, x, x

    compiled = torch.compile(eighths, backend="intarsia", dynamic=True, fullgraph=True)
    with intarsia.record_compilations() as compilations:
        for count in (13, 12, 13, 21):
            x = torch.randn(3, count, requires_grad=True)
            got, want = compiled(x), eighths(x)
            assert_same(got, want)
            gradients = [torch.autograd.grad(result[0].sum(), x) for result in (got, want)]
            assert_same(*gradients, strides=False)
    plan = compilations[0].program.plan_text
    assert "f32[s77, 13]" in plan
    assert "call aten::" not in plan


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_an_index_of_either_sign(compile_with, training: bool) -> None:
    """A number that is an index counts from the end when it is negative, in reading, writing
    and in gradients."""

    def parts(x: torch.Tensor, n: int) -> list[torch.Tensor]:
        y = torch.sin(x)
        z = y.clone()
        z[n, 1:] *= 3
        w = y.clone()
        w[n:] = y[n:] * 5
        return [
            y[n] * 2,
            y[:, n] + 1,
            y[n:] * 2,
            torch.select_scatter(y, x[0] * 3, 0, n),
            torch.slice_scatter(y, x[n:] * 3, 0, n),
            z,
            w,
        ]

    compiled = compile_with(parts, dynamic=True)
    for n in (-2, -1, -3, 2, 3, 1):
        results = []
        for f in (parts, compiled):
            x = torch.linspace(-1, 1, 25).reshape(5, 5).requires_grad_(training)
            values = f(x, n)
            if training:
                sum((i + 1) * v.sum() for i, v in enumerate(values)).backward()
            results.append([*(v.detach() for v in values), x.grad])
        torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_an_element_is_set_in_place(compile_with) -> None:
    def put(x: torch.Tensor, n: int) -> torch.Tensor:
        x[n] = -1
        return x

    compiled = compile_with(put, dynamic=True)
    with torch.no_grad():
        for n in (2, 3, -1, -4, 0):
            x = torch.arange(6.0)
            assert compiled(x, n) is x
            assert_same(x, put(torch.arange(6.0), n))


def _doubled(x: torch.Tensor) -> torch.Tensor:
    """The second is as large as the first if nothing is left of the halves."""
    halved = torch.nn.functional.avg_pool2d(x, 2)
    doubled = torch.nn.functional.interpolate(halved, scale_factor=2.0, mode="bilinear")
    return torch.cat([x.exp(), doubled], 1) * 2


def _tripled(x: torch.Tensor) -> torch.Tensor:
    """Two quotients, a square of one, and what is no multiple."""
    flat = x[0, 0]
    rows = flat.unflatten(0, (-1, 3)).sum(1)
    part = torch.stack([rows] * 3, 1).flatten(0, 1)
    across = flat.unflatten(1, (-1, 3)).sum(2)
    return part + flat + torch.stack([across] * 3, 2).flatten(1) + rows.sum()


def _thinned(x: torch.Tensor) -> torch.Tensor:
    """One row, of all the sizes that the guards admit."""
    thin = x[..., ::32, :]
    if thin.shape[-2] <= 1:
        return thin.exp() + x.new_ones(1, x.shape[-1])
    return thin * 3


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("function", [_doubled, _tripled, _thinned])
def test_sizes_that_guards_make_equal(check, fuse, function, training: bool) -> None:
    """Rounded quotients are what the guards say of them; nothing stays a call for them."""
    sizes = [(30, 18), (24, 12), (18, 30)]
    calls = [(torch.randn(2, 3, h, w, requires_grad=training),) for h, w in sizes]
    with intarsia.record_compilations() as compilations:
        check(function, *calls, training=training, dynamic=True)
    assert len(compilations) == 1 + training
    if fuse:
        left = {"aten::cat", "aten::mul.Tensor", "aten::add.Tensor", "aten::sum.dim_IntList"}
        for compilation in compilations:
            called = re.findall(r"\bcall ([\w:.]+)\(", compilation.program.plan_text)
            assert not left & set(called)
