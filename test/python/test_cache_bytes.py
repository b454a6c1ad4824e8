# ===- test_cache_bytes.py - A written cache is not copied -------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""A decode step whose operator writes a cache in place: the bytes are counted."""

from __future__ import annotations

import operators as ops
import pytest
import torch
from conftest import assert_same
from torch import Tensor, nn

import intarsia

SLOTS, WIDTH = 4096, 64
CACHE_BYTES = SLOTS * WIDTH * 4


def allocated(run) -> int:
    """The bytes that PyTorch's allocator hands out meanwhile."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    events = profile.profiler.kineto_results.events()
    return sum(max(e.nbytes(), 0) for e in events if e.name() == "[memory]")


def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(q @ keys.t(), -1) @ values


class TwoCaches(nn.Module):
    """Each cache is a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(SLOTS, WIDTH))
        self.register_buffer("values", torch.zeros(SLOTS, WIDTH))

    def caches(self):
        return self.keys, self.values

    def forward(self, x, slot):
        keys, values = self.caches()
        ops.put_(keys, slot, x + 1)
        ops.put_(values, slot, x * 2)
        return attend(x, keys, values)


class OneBuffer(TwoCaches):
    """The caches are parts of one buffer."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.register_buffer("cache", torch.zeros(2, SLOTS, WIDTH))

    def caches(self):
        return self.cache[0], self.cache.select(0, 1)


class Slices(OneBuffer):
    """As one buffer, and what is read are views of these parts."""

    def caches(self):
        return self.cache.view(2 * SLOTS, WIDTH)[:SLOTS], self.cache[1:].squeeze(0)


class Argument(nn.Module):
    """The cache is an argument."""

    def forward(self, x, slot, cache):
        ops.put_(cache[0], slot, x + 1)
        ops.put_(cache[1], slot, x * 2)
        return attend(x, cache[0], cache[1]), cache[1, :2] * 2


MODELS = [TwoCaches, OneBuffer, Slices, Argument]


# --- PyTorch's own operators in place, on views ------------------------------------


def indexed(cache, x, slot):
    cache[0].index_copy_(0, slot, x + 1)
    cache[1].index_put_((slot,), x * 2)
    cache[:, slot] = x * 3
    cache[0, slot + 1] = x
    rows = (slot + 2)[:, None].expand(1, WIDTH)
    cache[0].scatter_(0, rows, x * 2)
    cache[1].index_add_(0, slot, x)


def sliced(cache, x, slot):
    cache[0, 3:4].copy_(x * 2)
    cache[1, 7] = x[0] * 2
    cache[:, 4:6] = x
    cache[0].narrow(0, 8, 1).copy_(x * 2)
    cache.select(0, 1).narrow(0, 9, 1).copy_(x)


def computed(cache, x, slot):
    cache[0, :2].mul_(0.5).add_(1)
    cache[1, 2:4] += x.exp()
    cache[0, 5:9].zero_()
    cache[1].narrow(0, 0, 4).masked_fill_(x > 0, 3.0)


def by_heads(cache, x, slot):
    keys = cache.view(2, 1, SLOTS, 8, WIDTH // 8)
    keys[0, :, slot] = (x * 2).view(1, 1, 8, WIDTH // 8)
    keys[1].transpose(1, 2)[:, :, slot] = (x * 3).view(1, 8, 1, WIDTH // 8)
    cache[0].view(1, 8, SLOTS, WIDTH // 8).index_copy_(2, slot, x.view(1, 8, 1, -1))


WRITES = [indexed, sliced, computed, by_heads]


class Written(OneBuffer):
    """The cache is a buffer that `write` writes."""

    write = staticmethod(indexed)

    def forward(self, x, slot):
        self.write(self.cache, x, slot)
        return attend(x, *self.caches())


def written(write) -> type:
    return type(write.__name__, (Written,), {"write": staticmethod(write)})


def step(model: type) -> tuple[Tensor, ...]:
    x, slot = torch.randn(1, WIDTH), torch.tensor([7])
    return (x, slot, torch.zeros(2, SLOTS, WIDTH)) if model is Argument else (x, slot)


def test_a_copy_would_be_seen():
    cache = torch.zeros(SLOTS, WIDTH)
    assert allocated(cache.clone) >= CACHE_BYTES


def check(reference: nn.Module, compiled, buffers) -> None:
    for _ in range(2):
        arguments = step(type(reference))
        copies = tuple(a.clone() for a in arguments)
        with torch.no_grad():
            got, want = compiled(*copies), reference(*arguments)
        assert_same(got, want)
        assert_same(copies, arguments)
        assert_same(buffers(), list(reference.buffers()))
    arguments = step(type(reference))
    with torch.no_grad():
        assert allocated(lambda: compiled(*arguments)) < CACHE_BYTES // 4


@pytest.mark.parametrize("model", MODELS)
def test_compiled(model, compile_with):
    module = model()
    check(model(), compile_with(module), lambda: list(module.buffers()))


@pytest.mark.parametrize("functional", [False, True], ids=["export", "functional"])
@pytest.mark.parametrize("model", MODELS)
def test_exported(model, functional, fuse, tmp_path):
    module = model()
    program = torch.export.export(module, step(model))
    if functional:
        program = program.run_decompositions({})
    intarsia.aot_compile(program, tmp_path / "m.compiled.pt2", fuse=fuse)
    loaded = intarsia.load(tmp_path / "m.compiled.pt2")
    # A loaded program keeps its buffers to itself; what it reads of them tells.
    check(module, loaded, lambda: list(module.buffers()))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_operators_in_place(write, dynamic):
    model = written(write)
    module = model()
    compiled = torch.compile(module, backend="intarsia", fullgraph=True, dynamic=dynamic)
    check(model(), compiled, lambda: list(module.buffers()))


@pytest.mark.parametrize("functional", [False, True], ids=["export", "functional"])
@pytest.mark.parametrize("write", WRITES)
def test_operators_in_place_exported(write, functional, tmp_path):
    model = written(write)
    reference = model()
    program = torch.export.export(model(), step(model))
    if functional:
        program = program.run_decompositions({})
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.compiled.pt2"))
    check(reference, loaded, lambda: list(reference.buffers()))
