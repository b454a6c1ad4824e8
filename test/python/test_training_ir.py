"""Programs that are not functional: what torch.export.export makes, saved as it is.

In-place operators, views of buffers and composite operators are in these files, and
mean what they mean in eager. Every program runs several times, so that what it writes
into its buffers is read by the next call.
"""

from __future__ import annotations

import copy
import re

import operators as ops
import pytest
import torch
from conftest import assert_same
from torch import nn
from torch.nn import functional as F

import intarsia


def compile_module(tmp_path, module, args, *, fuse, **export_options):
    """The module as a loaded artifact of its undecomposed export."""
    program = torch.export.export(copy.deepcopy(module), args, **export_options)
    path = tmp_path / f"m{fuse}.pt2"
    intarsia.aot_compile(program, path, fuse=fuse)
    return intarsia.load(path)


def check(tmp_path, module, *calls, fuse, **export_options):
    """Eager and compiled, call after call; what the buffers hold shows in the next."""
    loaded = compile_module(tmp_path, module, calls[0], fuse=fuse, **export_options)
    for call in calls:
        results = []
        for f in (module, loaded):
            arguments = copy.deepcopy(call)
            torch.manual_seed(5)
            with torch.no_grad():
                output = f(*arguments)
            results.append((output, arguments, torch.rand(1)))
        assert_same(results[1], results[0])
    return loaded


def module(forward, **buffers):
    """A module with this forward and these buffers."""
    result = type("Model", (nn.Module,), {"forward": forward})()
    for name, value in buffers.items():
        result.register_buffer(name, value)
    return result


def launches(loaded):
    return loaded.plan_text.count("launch ")


X = torch.linspace(-2, 2, 12).reshape(3, 4)


def add_to_slices(self, x):
    self.cache[1:4].add_(x)
    self.cache[0].mul_(0.5).sub_(1)
    self.cache[:, 1:3] += 2
    return self.cache.sum(0), self.cache.clone()


def through_views(self, x):
    y = x * 2
    y.view(-1).sin_()
    y.t()[0].fill_(3)
    y.transpose(0, 1)[1:3].mul_(y[:2, 1:3].sum())
    y.unsqueeze(0).squeeze(0).add_(1)
    z = y.reshape(2, 6)
    y.exp_()
    return y + 1, z


def counts(self, x):
    self.n += 1
    self.last.copy_(x)
    self.total.add_(self.last.sum())
    return x * self.n, self.total + 0, self.last * 1


def old_and_new(self, x):
    before = self.cache + 0
    part = self.cache[0]
    half = part * 0.5
    self.cache.add_(1)
    return before, half, part + 0, x + self.cache[1]


def swaps(self, x):
    old = self.a.clone()
    self.a.copy_(self.b)
    self.b.copy_(old)
    return self.a + x, self.b - x


def masked(self, x):
    y = x.clone()
    y.masked_fill_(y > 0, -1.0)
    y[y < -1] = 7
    y.clamp_(-0.5, 5).relu_()
    return y * 2


def comparison_in_place(self, x):
    y = x.clone()
    y.gt_(0)
    y.add_(x)
    return y


def kernels_then_operators(self, x):
    y = ops.scaled_tanh(x, 2.0)
    for place in (y[1:], y.t()[0], self.cache[1, :3], y.view(-1)[2:5]):
        place.mul_(2)
        ops.add_into_(place, x.reshape(-1)[: place.numel()].view(place.shape))
        place.add_(1)
        ops.add_into_(place, place)
    return y, self.cache.clone()


def integers(self, x):
    y = (x * 3).to(torch.int64)
    y[0] += 2
    y.mul_(3).remainder_(5)
    return y, y.float().softmax(-1)


def half(self, x):
    y = x.to(torch.bfloat16)
    y.mul_(1.7).add_(x.to(torch.bfloat16), alpha=0.3)
    y[1].sigmoid_()
    return y, y.float() + 1


PROGRAMS = {
    "add_to_slices": (add_to_slices, {"cache": torch.zeros(5, 4)}, True),
    "through_views": (through_views, {}, True),
    "counts": (
        counts,
        {
            "n": torch.zeros((), dtype=torch.int64),
            "last": torch.zeros(3, 4),
            "total": torch.zeros(()),
        },
        True,
    ),
    "old_and_new": (old_and_new, {"cache": torch.zeros(2, 4)}, True),
    "swaps": (swaps, {"a": torch.zeros(4), "b": torch.ones(4)}, True),
    "masked": (masked, {}, True),
    "comparison_in_place": (comparison_in_place, {}, False),
    "kernels_then_operators": (kernels_then_operators, {"cache": torch.zeros(2, 4)}, True),
    "integers": (integers, {}, True),
    "half": (half, {}, True),
}


#: Of these no call is left that writes.
RENAMED = ("add_to_slices", "through_views", "counts", "old_and_new", "swaps", "half")


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_place(tmp_path, fuse, name):
    forward, buffers, fuses = PROGRAMS[name]
    buffers = copy.deepcopy(buffers)
    loaded = check(tmp_path, module(forward, **buffers), (X,), (X - 1,), (X * 3,), fuse=fuse)
    if fuses:
        assert (launches(loaded) > 0) == fuse
    if fuse and name in RENAMED:
        assert "copy_" not in calls(loaded) and "add_" not in calls(loaded)


class Net(nn.Module):
    """Composite operators, running statistics, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.gn = nn.GroupNorm(2, 8)
        self.fc = nn.Linear(8, 6)
        self.ln = nn.LayerNorm(6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)), inplace=True)
        x = F.silu(self.gn(x)).mean((2, 3))
        x = self.drop(F.gelu(self.ln(self.fc(x))))
        y = ops.scaled_tanh(x, 2.0)
        return F.log_softmax(y, -1), F.softmax(x, dim=1).type_as(x), F.pad(x, (1, 2))


@pytest.mark.parametrize("training", [True, False])
def test_composite_operators(tmp_path, fuse, training):
    net = Net().train(training)
    images = torch.randn(2, 3, 6, 6)
    loaded = check(tmp_path, net, (images,), (images * 2 + 1,), (images - 1,), fuse=fuse)
    if fuse:
        for name in ("layer_norm", "group_norm", "gelu", "softmax", "silu", "relu"):
            assert f"call aten::{name}" not in loaded.plan_text
        assert ("batch_norm" in calls(loaded)) == training
        assert ("dropout" in calls(loaded)) == training


def calls(loaded) -> str:
    """The operators that the plan calls."""
    return "\n".join(re.findall(r"\bcall ([\w.:]+)\(", loaded.plan_text))


def of_vectors(x, v, w):
    return (
        *(torch.outer(v, v) + 1, *[g * 2 for g in torch.meshgrid(v, w, indexing="ij")]),
        *(g * 2 for g in torch.meshgrid(w, v, v, indexing="xy")),
        *(torch.hstack([v, w * 2]), torch.vstack([v, v * 2]), torch.column_stack([v, x * 2])),
        *(
            a + b
            for a, b in zip(*(torch.broadcast_tensors(v, x.mT) for _ in range(2)), strict=True)
        ),
        torch.linalg.norm(v * 2) + torch.linalg.norm(x, 1, 1).sum(),
    )


def of_rows(x, v, w):
    return (
        *(p * 2 for p in torch.tensor_split(x, 3, -1)),
        *(p + 1 for p in torch.tensor_split(x, [1, 4], 1)),
        torch.hsplit(x, [3])[1] * 2,
        *(torch.hstack([x, x * 2]), torch.vstack([x, x * 2]), torch.dstack([x, x * 2])),
        *(x.tile(2) + 1, x.tile(2, 1, 2) + 1, x.fliplr() * 2, x.flipud() + 1),
        *(x.diff() * 2, x.diff(dim=0) + 1, x.ravel() + 1, torch.atleast_3d(x) * 2),
        *(F.pad(x[None], (2, 1), mode) * 2 for mode in ("reflect", "replicate")),
    )


def of_activations(x, v, w):
    slopes = x[0] / 4
    return (
        *(F.rms_norm(x * 2, x.shape[-1:]) * 2, F.rms_norm(x, x.shape[-1:], slopes, 0.5)),
        *(F.selu(x) * 2, F.prelu(x, slopes) + 1, F.prelu(x[None], slopes[:1]), F.rrelu(x) * 2),
        *(F.alpha_dropout(x, 0.5, False) * 2, F.dropout2d(x[None], 0.5, False) + 1),
        *(F.l1_loss(x, x * 3), F.l1_loss(x, x.exp(), reduction="none"), F.mse_loss(x, x * 3)),
        *(torch.arctan(x), torch.arcsinh(x), torch.special.expit(x), torch.special.psi(x + 9)),
        *(torch.special.softmax(x, -1), torch.special.logsumexp(x, -1), torch.positive(x) * 2),
        torch.special.xlogy(x, x.abs()),
    )


def of_losses(x, v, w):
    p, sign, positive = x.softmax(1), x.sign(), x[0].exp()
    losses = []
    for reduction in ("none", "mean", "sum"):
        of = {"reduction": reduction}
        losses += [
            *(F.kl_div(x, p, **of), F.kl_div(x, x * 2, log_target=True, **of)),
            *(F.l1_loss(x, p, **of), F.hinge_embedding_loss(x, sign, 0.7, **of)),
            F.margin_ranking_loss(x, p, sign, 0.3, **of),
            *(F.soft_margin_loss(x, sign, **of), F.poisson_nll_loss(x, p, **of)),
            F.poisson_nll_loss(x.exp(), p, log_input=False, **of),
            F.poisson_nll_loss(x, p * 9 + 0.5, full=True, **of),
            F.cross_entropy(x, p, label_smoothing=0.2, **of),
            F.triplet_margin_loss(x, p, x.sin(), 0.9, **of),
            *(F.cross_entropy(x, p, **of), F.cross_entropy(x[0], p[0], **of)),
            F.binary_cross_entropy_with_logits(x, p, positive, pos_weight=x.exp(), **of),
        ]
    return (
        *(loss * 2 for loss in losses),
        *(F.cosine_similarity(x, p) * 2, F.cosine_similarity(x, p, 0) * 2),
        *(F.pairwise_distance(x, p) * 2, F.pairwise_distance(x, p, 1, keepdim=True) * 2),
        *(F.pad(x[None], (3, 2, 1, 0), "circular") * 2, F.pad(x[None], (0, 5), "circular")),
    )


def of_classes(x, v, w):
    labels = (x[:, 0].float() * 9).long().remainder(67)
    labels = labels.where(x[:, 1] > -1, -100)
    images, of_pixels = x.view(-1, 67, 1, 1), labels.view(-1, 1, 1)
    weight, losses = x[0].exp(), []
    for reduction in ("none", "mean", "sum"):
        of = {"reduction": reduction}
        losses += [
            *(F.cross_entropy(x, labels, **of), F.cross_entropy(x, labels, weight, **of)),
            *(F.nll_loss(x, labels, **of), F.nll_loss(x, labels, weight, **of)),
            *(F.cross_entropy(images, of_pixels, **of), F.nll_loss(images, of_pixels, **of)),
            F.cross_entropy(x, labels, label_smoothing=0.2, **of),
            F.cross_entropy(images, of_pixels, label_smoothing=0.2, **of),
        ]
    return tuple(loss * 2 for loss in losses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [of_vectors, of_rows, of_activations, of_losses, of_classes])
def test_composites_are_in_kernels(tmp_path, function, dynamic, dtype):
    """Rounded where eager, which takes them apart itself, rounds."""
    model = module(lambda self, *args: function(*args)).eval()
    size = torch.export.Dim("n", min=4, max=64) if dynamic else None
    shapes = {"args": ({0: size}, {0: size}, {})}
    calls_of = [
        [(torch.randn(n, 67) * 2).to(dtype), torch.randn(n).to(dtype), torch.randn(5).to(dtype)]
        for n in ((7, 12) if dynamic else (7,))
    ]
    loaded = check(tmp_path, model, *map(tuple, calls_of), fuse=True, dynamic_shapes=shapes)
    # Eager adds up the losses of classes in bfloat16 in a way of its own.
    if function is of_classes and dtype is torch.bfloat16:
        assert set(calls(loaded).split()) == {"aten::nll_loss_forward", "aten::nll_loss2d_forward"}
    else:
        assert not calls(loaded)


def test_dropout_returns_its_input(tmp_path, fuse):
    def forward(self, x):
        y = x + 1
        z = F.dropout(y, 0.5, self.training)
        z.mul_(2)
        return y, z + 1

    check(tmp_path, module(forward).eval(), (X,), fuse=fuse)
    check(tmp_path, module(forward).train(), (X,), fuse=fuse)


def test_elements_along_a_dimension(tmp_path, fuse):
    def forward(self, x):
        return torch.take_along_dim(x, x.argsort(1), 1) * 2

    loaded = check(tmp_path, module(forward), (X,), fuse=fuse)
    assert ("take_along_dim" in calls(loaded)) != fuse


def test_composites_that_are_views(tmp_path, fuse):
    """What is written through them is written in their source."""

    def forward(self, x):
        y = x + 1
        F.alpha_dropout(y, 0.5, False).mul_(2)
        y.ravel()[3:5].neg_()
        torch.atleast_3d(y).add_(1)
        for piece in torch.tensor_split(y, 2, 1):
            piece[0] = 5
        torch.positive(y)[1].exp_()
        return y, y * 2

    check(tmp_path, module(forward).eval(), (X,), fuse=fuse)


def test_a_cache_is_written_in_place(tmp_path, fuse):
    """An operator that writes a part of a buffer gets the buffer's own memory."""

    def forward(self, index, x):
        ops.put_(self.cache[1], index, x * 2)
        ops.add_into_(self.cache[0].t(), x.t())
        return self.cache[1].sum(0) + 1, self.cache.clone()

    cached = module(forward, cache=torch.zeros(2, 3, 4))
    loaded = check(
        tmp_path,
        cached,
        (torch.tensor([0, 2, 1]), X),
        (torch.tensor([2, 1, 0]), X + 1),
        fuse=fuse,
    )
    assert "= clone " not in loaded.plan_text
    assert calls(loaded).count("put_") == calls(loaded).count("add_into_") == 1


def test_input_that_is_written(tmp_path, fuse):
    def forward(self, x):
        x[0].add_(1)
        x.mul_(2)
        return x.sum(1)

    loaded = check(tmp_path, module(forward), (X,), (X + 1,), fuse=fuse)
    assert (launches(loaded) > 0) == fuse


def test_one_tensor_twice(tmp_path, fuse):
    """A write into one input is seen through the other, as in eager."""

    def forward(self, x, y):
        x.add_(1)
        z = (y * 2).exp() + 1
        return z, x + y

    loaded = compile_module(tmp_path, module(forward), (X, X + 1), fuse=fuse)
    for inputs in ([X.clone()] * 2, [X.clone(), X.clone()]):
        want_inputs = copy.deepcopy(inputs)
        assert (want_inputs[0] is want_inputs[1]) == (inputs[0] is inputs[1])
        want = module(forward)(*want_inputs)
        assert_same(loaded(*inputs), want)
        assert_same(inputs, want_inputs)


def test_outputs_that_are_buffers(tmp_path, fuse):
    """What eager returns as a buffer, or as a view of one, shares its memory."""

    def forward(self, x):
        self.cache.add_(x)
        return self.cache, self.cache[0]

    loaded = compile_module(tmp_path, module(forward, cache=torch.zeros(3, 4)), (X,), fuse=fuse)
    whole, row = loaded(X)
    assert_same((whole, row), (X, X[0]))
    loaded(X)
    assert_same((whole, row), (2 * X, 2 * X[0]))
    row.zero_()
    assert_same(loaded(X)[0][0], X[0])


def test_shared_weights(tmp_path, fuse):
    """Two names of one tensor: what is written to one is read from the other."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(4))
            self.register_buffer("b", self.a)

        def forward(self, x):
            self.a.add_(1)
            return x * self.b + self.a

    check(tmp_path, Tied(), (X,), (X,), fuse=fuse)


def test_operators_that_change_sizes_or_fail(tmp_path, fuse):
    def forward(self, x):
        y = x * 2
        y.t_()
        y.add_(1)
        z = x.clone()
        z.unsqueeze_(0).mul_(3)
        return y + 1, z

    check(tmp_path, module(forward), (X,), fuse=fuse)


def test_lists_in_place(tmp_path, fuse):
    def forward(self, x):
        parts = list(x.clone().split(1))
        torch._foreach_add_(parts, 1.0)
        whole = torch.stack(parts).exp()
        chunks = (x * 2).chunk(2, dim=1)
        chunks[0].add_(chunks[1])
        return whole, chunks[0] + 0, chunks[1] * 2

    check(tmp_path, module(forward), (X,), fuse=fuse)


def test_dynamic_sizes(tmp_path, fuse):
    def forward(self, x):
        y = x * 2
        y[:, 1:].add_(1)
        y[-1].mul_(3)
        y.view(-1).add_(x.reshape(-1))
        self.total[0] += y.sum()
        return y.relu_(), self.total + 0

    check(
        tmp_path,
        module(forward, total=torch.zeros(2)),
        (X,),
        (torch.randn(5, 4),),
        (torch.randn(2, 4),),
        fuse=fuse,
        dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=64)}},
    )


# --- Regions ----------------------------------------------------------------------


def test_grad_mode_regions(tmp_path, fuse):
    ops.LOG.clear()

    def forward(self, x):
        y = x * 2
        y[0].add_(1)
        with torch.no_grad():
            z = ops.scaled_tanh(y * 3, 2.0) + 1
            self.last.copy_(z)
        with torch.enable_grad():
            w = (z + y).exp()
        return w, self.last * 2

    loaded = check(tmp_path, module(forward, last=torch.zeros(3, 4)), (X,), (X + 1,), fuse=fuse)
    assert (launches(loaded) > 0) == fuse


def autocast_region(self, x):
    y = x + 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = self.fc(y)
        b = a.exp() + y
        with torch.autocast("cpu", enabled=False):
            c = self.fc(b.float())
        d = F.softmax(a, -1) @ y.t()
    return a, b, c, d, (y * 2).exp()


def test_autocast_regions(tmp_path, fuse):
    result = module(autocast_region)
    result.fc = nn.Linear(4, 4)
    loaded = check(tmp_path, result.eval(), (X,), (X * 2,), fuse=fuse)
    assert "autocast" in loaded.plan_text
    # The region ends with it, and nothing of the caller's reaches into the program.
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        got = loaded(X)
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.float16
    with torch.no_grad():
        assert_same(got, result(X))


def test_autocast_of_a_custom_operator(tmp_path, fuse):
    """An operator's own autocast rule is followed."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.ops.test_training_ir.rule(x) + 0, ops.scaled_tanh(x, 1.0)

    check(tmp_path, module(forward), (X,), fuse=fuse)


@torch.library.custom_op("test_training_ir::rule", mutates_args=())
def rule(x: torch.Tensor) -> torch.Tensor:
    return x * 2


rule.register_fake(lambda x: torch.empty_like(x))
rule.register_autocast("cpu", torch.bfloat16)


def test_control_flow_that_reads_what_is_written(tmp_path, fuse):
    def forward(self, p, x):
        y = x * 2
        y[1].mul_(3)
        z = torch.cond(p, lambda y: ops.scaled_tanh(y, 1.0) + 1, lambda y: y - 1, (y,))
        y.add_(z)
        return y, z

    check(tmp_path, module(forward), (torch.tensor(True), X), (torch.tensor(False), X), fuse=fuse)


class WritesAndReturns(torch.nn.Module):
    def forward(self, a, b):
        a.add_(1)
        torch.ops.aten.mul_(b, 2)
        return a[1:], b.sum()


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_written_input_of_other_strides(tmp_path, fuse, decomposed):
    program = torch.export.export(WritesAndReturns(), (torch.zeros(3), torch.zeros(2, 3)))
    if decomposed:
        program = program.run_decompositions({})
    compiled = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse))
    results = []
    for run in (WritesAndReturns(), compiled):
        a, b = torch.arange(6.0), torch.ones(3, 2)
        results.append((a, b, [x.clone() for x in run(a[::2], b.t())]))
    assert_same(results[1], results[0], strides=False)
