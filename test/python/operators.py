"""Custom operators for the tests: one of each kind that users write."""

from __future__ import annotations

import torch
from torch import Tensor

#: What the real kernels (never the fakes) were called with.
LOG: list[str] = []


@torch.library.custom_op("test::scaled_tanh", mutates_args=())
def scaled_tanh(x: Tensor, scale: float) -> Tensor:
    LOG.append("scaled_tanh")
    return torch.tanh(x) * scale


@scaled_tanh.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _scaled_tanh_setup(ctx, inputs, output):
    ctx.scale = inputs[1]
    ctx.save_for_backward(output)


def _scaled_tanh_backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return grad * (ctx.scale - y * y / ctx.scale), None


scaled_tanh.register_autograd(_scaled_tanh_backward, setup_context=_scaled_tanh_setup)


@torch.library.custom_op("test::put_", mutates_args=("cache",))
def put_(cache: Tensor, index: Tensor, values: Tensor) -> None:
    cache.index_copy_(0, index, values)


put_.register_fake(lambda cache, index, values: None)


@torch.library.custom_op("test::add_into_", mutates_args=("target",))
def add_into_(target: Tensor, source: Tensor) -> None:
    # Element by element, so that `source` and `target` may be the same memory.
    target.add_(source.clone())


add_into_.register_fake(lambda target, source: None)


@torch.library.custom_op("test::split3", mutates_args=())
def split3(x: Tensor, others: list[Tensor]) -> list[Tensor]:
    return [x[:1].clone(), *[o + 1 for o in others]]


@split3.register_fake
def _(x, others):
    return [torch.empty_like(x[:1]), *[torch.empty_like(o) for o in others]]


@torch.library.custom_op("test::nonzero_rows", mutates_args=())
def nonzero_rows(x: Tensor) -> Tensor:
    return x[x.abs().sum(dim=1) > 0].clone()


@nonzero_rows.register_fake
def _(x):
    rows = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(rows, x.shape[1])


@torch.library.custom_op("test::count_positive", mutates_args=())
def count_positive(x: Tensor) -> tuple[Tensor, int]:
    return x.clone(), int((x > 0).sum())


@count_positive.register_fake
def _(x):
    return torch.empty_like(x), torch.library.get_ctx().new_dynamic_size()


@torch.library.custom_op("test::rows", mutates_args=())
def rows(x: Tensor, n: int) -> Tensor:
    return x.sum() + torch.arange(n, dtype=x.dtype)


rows.register_fake(lambda x, n: x.new_empty(n))


@torch.library.custom_op("test::record", mutates_args=())
def record(x: Tensor) -> None:
    LOG.append("record")


record.register_fake(lambda x: None)


@torch.library.custom_op("test::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def draw(n: int) -> Tensor:
    return torch.rand(n)


draw.register_fake(lambda n: torch.empty(n))


@torch.library.custom_op("test::wants_columns", mutates_args=())
def wants_columns(x: Tensor) -> Tensor:
    """Its result says which strides it was given."""
    return torch.tensor(x.stride())


wants_columns.register_fake(lambda x: torch.empty(x.dim(), dtype=torch.int64))


@torch.library.custom_op("test::fails", mutates_args=())
def fails(x: Tensor) -> Tensor:
    raise KeyError("the kernel's own words")


fails.register_fake(lambda x: torch.empty_like(x))


library = torch.library.Library("test", "FRAGMENT")

library.define("maybe(Tensor x, bool give) -> (Tensor, Tensor?)")


def _maybe(x, give):
    return x + 1, (x * 2 if give else None)


library.impl("maybe", _maybe, "CompositeExplicitAutograd")
torch.library.register_fake(
    "test::maybe", lambda x, give: (torch.empty_like(x), torch.empty_like(x) if give else None)
)

library.define(
    "everything(Tensor x, Tensor? a, Tensor?[] b, int[2] pair, float[] fs, bool[] bs, str text, "
    "str? maybe_text, Scalar s, Scalar c, ScalarType t, Device d, *, int n=3, "
    "MemoryFormat? form=None, Layout? layout=None, Generator? g=None) -> Tensor"
)


def _everything(
    x, a, b, pair, fs, bs, text, maybe_text, s, c, t, d, *, n=3, form=None, layout=None, g=None
):
    LOG.append(
        repr((a is None, [y is None for y in b], list(pair), list(fs), list(bs), text, maybe_text))
        + repr((s, c, t, d, n, form, layout, g))
    )
    return (x * s + pair[0] * n + sum(fs)).to(t)


library.impl("everything", _everything, "CompositeExplicitAutograd")


@torch.library.register_fake("test::everything")
def _(x, a, b, pair, fs, bs, text, maybe_text, s, c, t, d, *, n=3, form=None, layout=None, g=None):
    return torch.empty_like(x, dtype=t)


# Registrations that are wrong, one each.
library.define("wrong_dtype(Tensor x) -> Tensor")
library.impl("wrong_dtype", lambda x: x.to(torch.float64), "CompositeExplicitAutograd")
torch.library.register_fake("test::wrong_dtype", lambda x: torch.empty_like(x))

library.define("wrong_size(Tensor x) -> Tensor")
library.impl("wrong_size", lambda x: x[:-1].clone(), "CompositeExplicitAutograd")
torch.library.register_fake("test::wrong_size", lambda x: torch.empty_like(x))

library.define("wrong_strides(Tensor x) -> Tensor")
library.impl("wrong_strides", lambda x: x.t().contiguous().t(), "CompositeExplicitAutograd")
torch.library.register_fake("test::wrong_strides", lambda x: torch.empty_like(x))

library.define("returns_input(Tensor x) -> Tensor")
library.impl("returns_input", lambda x: x, "CompositeExplicitAutograd")
torch.library.register_fake("test::returns_input", lambda x: torch.empty_like(x))

library.define("no_fake(Tensor x, int n, *, float scale=1.0) -> (Tensor, Tensor[])")
library.impl("no_fake", lambda x, n, *, scale=1.0: (x, []), "CPU")


@torch.library.custom_op("test::no_fake_python", mutates_args=())
def no_fake_python(x: Tensor) -> Tensor:
    return x + 1
