"""Custom operators inside control flow, checkpoints, regions, modes and subclasses."""

from __future__ import annotations

import operators as ops
import pytest
import torch
from conftest import assert_same
from functorch.experimental.control_flow import map as functorch_map
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.switch import switch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import dropout
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import intarsia
from intarsia.backend import intarsia as backend

tanh = ops.scaled_tanh

# --- PyTorch's database of higher-order operators ---------------------------------

DTYPES = (torch.float32, torch.int64)

# Dynamo refuses these before any backend is called: the one is traced without it, the
# hook of the other runs in eager, between two graphs.
TRACED_WITHOUT_DYNAMO = "local_map_hop"
BREAKS_THE_GRAPH = "register_hook"


def hop_name(info):
    return f"{info.name}.{info.variant_test_name}"


def run_sample(function, sample):
    """Results, gradients, and what became of the inputs."""
    torch.manual_seed(0)
    leaves, spec = pytree.tree_flatten((sample.input, *sample.args))
    leaves = [
        leaf.detach().clone().requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in leaves
    ]
    output = function(*pytree.tree_unflatten(leaves, spec), **sample.kwargs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    wanted = [t for t in pytree.tree_leaves(output) if getattr(t, "requires_grad", False)]
    if wanted:
        sum((t * t).sum() for t in wanted).backward()
    return output, [t.grad for t in tensors], [t.detach() for t in tensors]


def samples_of(info, dtype):
    """Each sample, as often as eager can run it: with gradients, and without."""
    for grad in (True, False):
        if grad and not (info.supports_autograd and dtype.is_floating_point):
            continue
        try:
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=grad))
        except (RuntimeError, ValueError, NotImplementedError):
            continue  # there are none for this dtype
        for sample in samples:
            try:
                yield sample, run_sample(info.op, sample)
            except Exception:
                continue  # eager refuses it


def is_traceable(info, sample):
    """Whether PyTorch itself can compile the sample at all."""
    torch._dynamo.reset()
    try:
        run_sample(torch.compile(info.op, backend="aot_eager", fullgraph=True), sample)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("info", hop_db, ids=hop_name)
def test_hop_db(info, compile_with):
    tested = 0
    for dtype in DTYPES:
        for sample, want in samples_of(info, dtype):
            torch._dynamo.reset()
            if info.name == TRACED_WITHOUT_DYNAMO:
                function = compiled_without_dynamo(info, sample)
            else:
                function = compile_with(info.op, fullgraph=info.name != BREAKS_THE_GRAPH)
            try:
                got = run_sample(function, sample)
            except Exception:
                if is_traceable(info, sample):
                    raise
                continue
            assert_same(got, want)
            tested += 1
    if info.name == "inline_asm_elementwise":
        assert tested == 0, "eager has it on CUDA only"
    else:
        assert tested > 0


def compiled_without_dynamo(info, sample):
    inputs = (sample.input, *sample.args)
    gm = make_fx(lambda *args: (info.op(*args),))(*inputs)
    compiled = backend(gm, inputs)
    return lambda *args: compiled(*args)[0]


# --- Custom operators inside ------------------------------------------------------


def X(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def in_cond(x):
    def inner(x):
        return torch.cond(x.max() > 0.5, lambda x: tanh(x, 1.0) + 1, lambda x: x * 2, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: (tanh(x, 0.5) - 1).exp(), (x,))


def in_while_loop(i, x):
    def body(i, x):
        return i - 1, tanh(x * 2 + 1, 1.5).exp().tanh()

    return while_loop(lambda i, x: i > 0, body, (i, x))


def in_switch(index, x):
    branches = (
        lambda x: tanh(x * 2 + 1, 1.0).exp(),
        lambda x: x.sin() * 3 - tanh(x, 2.0),
    )
    return switch(index, branches, (x,)) + 1


def in_scan(c, xs):
    return scan(lambda c, x: (tanh(c + x, 2.0) * 0.5, (c * x).exp() + 1), c, xs)


def in_map(xs, y):
    return functorch_map(lambda x, y: (tanh(x + y, 2.0) * 0.5 + 1).exp(), xs, y)


def beside_associative_scan(xs):
    def combine(a, b):
        return a * b + 0.5

    return tanh(associative_scan(combine, tanh(xs, 1.0), 0, combine_mode="generic"), 2.0)


def body(x, w):
    return (tanh((x @ w).exp() + 1, 2.0) * 3).sin()


def in_checkpoint(x, w):
    return checkpoint(body, x, w, use_reentrant=False).exp()


def in_reentrant_checkpoint(x, w):
    return checkpoint(body, x, w, use_reentrant=True).exp()


def save_tanh(context, op, *args, **kwargs):
    saved = op == torch.ops.test.scaled_tanh.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(save_tanh)


def in_selective_checkpoint(x, w):
    return checkpoint(body, x, w, use_reentrant=False, context_fn=contexts).exp()


def in_checkpoint_with_dropout(x, w):
    def inner(x, w):
        return dropout(tanh(x @ w, 2.0), 0.5).sin() + torch.rand_like(x)

    return checkpoint(inner, x, w, use_reentrant=False).exp()


@torch.compiler.nested_compile_region
def region(x, w):
    return (tanh(x @ w, 2.0) * 2 + 1).sin()


def in_region(x, w):
    return region(region(x, w) + 1, w).exp()


def under_no_grad(x, w):
    with torch.no_grad():
        y = tanh(x, 2.0) * 2
    return y * x + w


def under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return tanh((x @ w) * 2, 2.0) + 1


@torch.library.custom_op("test_higher_order::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(lambda x: torch.empty_like(x))
twice.register_autograd(lambda ctx, grad: grad * 2, setup_context=lambda ctx, inputs, output: None)
twice.register_vmap(lambda info, dims, x: (twice(x), dims[0]))


def under_vmap(x, w):
    return torch.vmap(lambda v, u: twice(v.sin() + u).exp(), in_dims=(0, 1))(x, w)


def under_vmap_and_grad(x, w):
    return twice(torch.vmap(torch.func.grad(lambda v: (v.sin() * v).sum()))(x)) + w


def beside_flex_attention(q, k, v):
    scored = flex_attention(tanh(q, 1.0) * 2, k, v, score_mod=lambda s, b, h, m, n: s + 0.01 * m)
    return tanh(scored * 2 + 1, 2.0)


def qkv():
    return [torch.randn(1, 2, 128, 16) for _ in range(3)]


AROUND = {
    "cond": (in_cond, lambda: [X(3, 4)]),
    "while_loop": (in_while_loop, lambda: [torch.tensor(3), torch.randn(3, 4)]),
    "while_loop, training": (in_while_loop, lambda: [torch.tensor(3), X(3, 4)]),
    "switch": (in_switch, lambda: [torch.tensor(1), X(5, 4)]),
    "scan": (in_scan, lambda: [X(4), X(5, 4)]),
    "map": (in_map, lambda: [X(5, 4), X(4)]),
    "associative_scan": (beside_associative_scan, lambda: [X(8, 4)]),
    "checkpoint": (in_checkpoint, lambda: [X(4, 4), X(4, 4)]),
    "reentrant_checkpoint": (in_reentrant_checkpoint, lambda: [X(4, 4), X(4, 4)]),
    "selective_checkpoint": (in_selective_checkpoint, lambda: [X(4, 4), X(4, 4)]),
    "checkpoint_dropout": (in_checkpoint_with_dropout, lambda: [X(8, 8), X(8, 8)]),
    "nested_compile_region": (in_region, lambda: [X(4, 4), X(4, 4)]),
    "no_grad": (under_no_grad, lambda: [X(4, 4), X(4, 4)]),
    "autocast": (under_autocast, lambda: [X(4, 4), X(4, 4)]),
    "vmap": (under_vmap, lambda: [X(4, 4), X(4, 4)]),
    "vmap_grad": (under_vmap_and_grad, lambda: [X(4, 4), X(4, 4)]),
    "flex_attention": (beside_flex_attention, qkv),
}


@pytest.mark.parametrize("name", AROUND)
def test_around(check, name):
    function, inputs = AROUND[name]
    arguments = inputs()
    training = any(x.requires_grad for x in arguments)
    check(function, arguments, training=training)


@pytest.mark.parametrize(
    "name", ["cond", "switch", "while_loop, training", "scan", "map", "nested_compile_region"]
)
def test_around_with_dynamic_sizes(check, name):
    function, inputs = AROUND[name]
    check(function, inputs(), training=True, dynamic=True)


@pytest.mark.parametrize("name", ["cond", "map", "checkpoint", "nested_compile_region"])
def test_around_in_inference_mode(check, name):
    function, inputs = AROUND[name]
    with torch.inference_mode():
        check(function, [x.detach().clone() for x in inputs()])


@pytest.mark.parametrize("name", ["cond", "while_loop", "scan", "map", "no_grad", "autocast"])
def test_around_in_a_file(tmp_path, fuse, name):
    function, inputs = AROUND[name]
    module = type("Model", (torch.nn.Module,), {"forward": lambda self, *args: function(*args)})()
    arguments = tuple(x.detach().clone() for x in inputs())
    program = torch.export.export(module, arguments)
    for number, each in enumerate((program, program.run_decompositions())):
        path = intarsia.aot_compile(each, tmp_path / f"{number}.pt2", fuse=fuse)
        with torch.no_grad():
            assert_same(intarsia.load(path)(*arguments), function(*arguments))


def test_random_operators_are_recomputed_as_they_were(compile_with):
    """A checkpoint's dropout drops the same elements in the backward."""
    x, w = X(16, 16), X(16, 16)
    torch.manual_seed(3)
    y = compile_with(in_checkpoint_with_dropout)(x, w)
    state = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), state), "the backward drew random numbers"
    got = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    torch.manual_seed(3)
    in_checkpoint_with_dropout(x, w).sum().backward()
    assert_same(got, (x.grad, w.grad))


# --- Control flow that writes -----------------------------------------------------


@torch.compiler.nested_compile_region
def write_region(x, cache, index):
    ops.put_(cache, index, x)
    return (tanh(x, 1.0) * 2).sin()


def write_twice(x, cache, index):
    y = write_region(x + 1, cache, index)
    return y + write_region(x * 2, cache, index + 1), cache.sum()


def write_in_branch(x, cache, index):
    def write(x, cache):
        cache.add_(1)
        cache[0].mul_(x[0, 0])
        return tanh(x, 1.0) + cache[0]

    return torch.cond(x.sum() > 0, write, lambda x, cache: x - cache[1], (x, cache)), cache * 2


@pytest.mark.parametrize("function", [write_twice, write_in_branch])
def test_control_flow_that_writes(check, function):
    index = torch.tensor([0, 2, 1])
    with torch.no_grad():
        for sign in (1, -1):
            check(function, [torch.ones(3, 4) * sign, torch.randn(5, 4), index])


def test_a_region_writes_the_cache_itself(compile_with):
    """Regional compilation copies no cache, whichever way it is compiled."""
    cache, index = torch.zeros(64, 4), torch.tensor([0, 2, 1])
    with intarsia.record_compilations() as compilations, torch.no_grad():
        compile_with(write_twice)(torch.ones(3, 4), cache, index)
    assert "clone" not in compilations[0].program.plan_text
    assert cache[2].sum() != 0


# --- Subgraphs of operators that run in Python ------------------------------------


def test_subgraphs_that_python_calls_are_compiled(fuse, caplog):
    def f(x, index):
        branches = (
            lambda x: (tanh(x * 2 + 1, 1.0).exp(),),
            lambda x: (x.sin() * 3 - tanh(x, 2.0),),
        )
        return switch(index, branches, [x])[0] + 1

    def kernels(profile):
        return sum("intarsia::" in event.key for event in profile.key_averages())

    x = torch.randn(5, 4)
    compiled = torch.compile(f, backend="intarsia", fullgraph=True, options={"fuse": fuse})
    for index in (torch.tensor(0), torch.tensor(1)):
        with torch.no_grad(), torch.profiler.profile() as profile:
            assert_same(compiled(x, index), f(x, index))
        if fuse:
            assert kernels(profile) > 1  # not only the addition


# --- Tensor subclasses ------------------------------------------------------------


def test_two_tensor(check, compile_with):
    """A wrapper of two tensors: every operator runs on each, ours included."""

    def f(x):
        return (twice(x.sin()) + 1).exp()

    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    got, want = compile_with(f)(x), f(x)
    assert type(got) is type(want) is TwoTensor
    assert_same((got.a, got.b), (want.a, want.b))

    a, b = (TwoTensor(torch.ones(3), torch.ones(3) * 2).requires_grad_() for _ in range(2))
    f(a).sum().backward()
    compile_with(f)(b).sum().backward()
    assert_same((b.grad.a, b.grad.b), (a.grad.a, a.grad.b))


def test_two_tensor_parameters(compile_with):
    module = torch.nn.Linear(4, 3)
    module.weight = torch.nn.Parameter(
        TwoTensor(module.weight.detach(), module.weight.detach().clone() * 2)
    )
    module.bias = None
    x = TwoTensor(torch.randn(2, 4), torch.randn(2, 4))
    with torch.no_grad():
        got, want = compile_with(lambda x: module(x).relu() + 1)(x), module(x).relu() + 1
    assert_same((got.a, got.b), (want.a, want.b))


def jagged(*rows):
    """A nested tensor, its rows of different lengths in one buffer."""
    parts = [torch.randn(n, 4) for n in rows]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


WEIGHT = torch.linspace(-1, 1, 24).view(6, 4)
NESTED = {
    "pointwise": lambda x: twice(x.sin().values()) + 1,
    "nested": lambda x: x.sin() * 2 + x.exp() * x,
    "linear": lambda x: torch.nn.functional.linear(x, WEIGHT).relu(),
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)) + x,
    "padded": lambda x: torch.nested.to_padded_tensor(x * 2, 0.5).sum(1),
    "made": lambda x: torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()).cos(),
    "two": lambda x: (x * 2, torch.cat([x.values(), x.values() + 1], 1)),
}


def _flat(value):
    """Nested tensors as what they are made of."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor,
        lambda t: (t.values(), t.offsets(), t.layout) if t.is_nested else t,
        value,
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NESTED)
def test_jagged_tensors(name, training, compile_with):
    """The ragged size is no number, but the name of one."""
    f = NESTED[name]
    with intarsia.record_compilations() as compilations:
        compiled = compile_with(f)
        for rows in ((3, 5, 2), (3, 5, 2), (1, 4, 7), (2, 2, 1)):
            x = jagged(*rows)
            seen = []
            for function in (f, compiled):
                leaf = x.detach().clone().requires_grad_(training)
                with torch.set_grad_enabled(training):
                    results = _flat(function(leaf))
                if training:
                    tensors = torch.utils._pytree.tree_leaves(results)
                    sum((t * t).sum() for t in tensors if getattr(t, "requires_grad", 0)).backward()
                seen.append((results, training and leaf.grad.values()))
            assert_same(seen[1], seen[0])
    # Once for the first lengths, once for any.
    assert sum(c.kind != "backward" for c in compilations) == 2


# --- In files ---------------------------------------------------------------------


def test_operators_that_export_cannot_save(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, index, x):
            return in_switch(index, x)

    program = torch.export.export(Model(), (torch.tensor(1), torch.ones(3)))
    with pytest.raises(Exception, match="switch") as caught:
        intarsia.aot_compile(program, tmp_path / "m.pt2")
    assert "higher-order operator; torch.compile runs it" in caught.value.__notes__[-1]


def test_operator_that_is_no_data(tmp_path, fuse):
    """What only Python can run is refused by name, with what to do instead."""
    from torch._higher_order_ops import invoke_quant_packed

    class Model(torch.nn.Module):
        def forward(self, x):
            return invoke_quant_packed(lambda x: (tanh(x, 1.0),), x)[0]

    program = torch.export.export(Model(), (torch.ones(3),))
    with pytest.raises(intarsia.IntarsiaError, match=r"invoke_quant_packed.*torch\.compile"):
        intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse)
