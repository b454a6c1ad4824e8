# ===- test_cudagraphs.py - Graphs that CUDA replays --------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What is captured and what a replay computes, with the CPU in the place of a GPU.

A capture here runs what is captured, and a replay runs it again and writes the results where
those of the capture are: what reads memory that a replay does not fill is wrong here, too.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._subclasses import FakeTensorMode

import intarsia
from intarsia import _cudagraphs


class Graph:
    def __init__(self, run, outputs):
        self.run, self.outputs = run, outputs

    def replay(self):
        Api.replays += 1
        for old, new in zip(self.outputs, self.run(), strict=True):
            if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                old.copy_(new)


class Api:
    replays = captures = 0
    current = 0
    capturing = False

    @staticmethod
    def on(device):
        return contextlib.nullcontext()

    @classmethod
    def stream(cls):
        return cls.current

    @classmethod
    def is_capturing(cls):
        return cls.capturing

    @classmethod
    def capture(cls, run):
        """Runs nothing that counts: what it wrote is put back."""
        cls.captures += 1
        state = torch.get_rng_state()
        fixed = [t for t in STATIC if t is not None]
        before = [t.detach().clone() for t in fixed]
        outputs = run()
        torch.set_rng_state(state)
        with torch.no_grad():
            for tensor, value in zip(fixed, before, strict=True):
                tensor.copy_(value)
        return Graph(run, outputs), outputs


STATIC: list[torch.Tensor] = []


@pytest.fixture
def replayed(monkeypatch):
    """torch.compile whose graphs are captured; counts are `Api`'s."""
    monkeypatch.setattr(_cudagraphs, "API", Api)
    monkeypatch.setattr(_cudagraphs, "DEVICE", "cpu")
    Api.replays = Api.captures = 0
    STATIC.clear()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield lambda f, **kw: torch.compile(f, backend="intarsia", mode="reduce-overhead", **kw)


@torch.library.custom_op("cudagraphs::unsafe", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    unsafe.calls += 1
    return x * float(x.abs().max())


unsafe.register_fake(torch.empty_like)
unsafe.calls = 0


@torch.library.custom_op("cudagraphs::safe", mutates_args=())
def safe(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


safe.register_fake(torch.empty_like)


def test_values_and_what_is_kept(replayed):
    """Results stay what they are when the graph is replayed, for each set of sizes."""

    def f(x, y):
        h = torch.tanh(x) @ y
        return h, safe(h) * 2 + y.sum()

    g = replayed(f, dynamic=True)
    kept = []
    with torch.no_grad():
        for n in (67, 67, 67, 33, 33, 33):
            x, y = torch.randn(5, n), torch.randn(n, n)
            kept.append((g(x, y), f(x, y)))
    assert (Api.captures, Api.replays) == (2, 4)
    for got, want in kept:
        torch.testing.assert_close(got, want)


def test_unsafe_operators_run_between_graphs(replayed):
    def f(x):
        return unsafe(torch.tanh(x) * 2).exp() + x

    g = replayed(f)
    unsafe.calls = 0
    for _ in range(4):
        x = torch.randn(67)
        with torch.no_grad(), intarsia.record_compilations():
            torch.testing.assert_close(g(x), f(x))
    assert unsafe.calls == 8
    assert (Api.captures, Api.replays) == (2, 6)


def test_written_inputs_and_buffers(replayed):
    """An input's new value reaches the user's tensor; a buffer is written where it is."""

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(67))
            self.scale = torch.nn.Parameter(torch.full((67,), 0.5))

        def forward(self, x):
            self.count.add_(x)
            x.mul_(self.scale)
            return x + self.count

    torch.manual_seed(0)
    module, reference = Counter(), Counter()
    g = replayed(module)
    STATIC[:] = [module.count]
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(67)
            mine, theirs = x.clone(), x.clone()
            version = mine._version
            torch.testing.assert_close(g(mine), reference(theirs))
            assert mine._version > version
            torch.testing.assert_close(mine, theirs)
            torch.testing.assert_close(module.count, reference.count)
        assert Api.captures == 1
        # A buffer at another address is captured again.
        module.scale = torch.nn.Parameter(torch.full((67,), 0.25))
        reference.scale = torch.nn.Parameter(torch.full((67,), 0.25))
        for _ in range(3):
            x = torch.randn(67)
            torch.testing.assert_close(g(x.clone()), reference(x.clone()))


@pytest.mark.parametrize("pieces", [1, 2])
def test_inputs_that_overlap_in_a_later_call(replayed, pieces):
    """Such a call runs as in eager, before any piece has written."""

    def f(x, y):
        x.add_(1)
        if pieces == 2:
            y = unsafe(y)
        return x * y

    g = replayed(f)
    with torch.no_grad():
        for _ in range(3):
            mine, theirs = torch.ones(67), torch.ones(67)
            torch.testing.assert_close(g(mine, torch.ones(67)), f(theirs, torch.ones(67)))
        assert Api.replays
        mine, theirs = torch.ones(68), torch.ones(68)
        with pytest.warns(UserWarning, match="inputs x and y share memory.*runs as in eager"):
            result = g(mine[:67], mine[1:])
        torch.testing.assert_close(result, f(theirs[:67], theirs[1:]))
        torch.testing.assert_close(mine, theirs)


def test_training(replayed):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(33, 67), torch.nn.GELU(), torch.nn.Linear(67, 5))
    g = replayed(module)
    for _ in range(4):
        x = torch.randn(7, 33, requires_grad=True)
        y, want = g(x), module(x)
        torch.testing.assert_close(y, want)
        parameters = [x, *module.parameters()]
        torch.testing.assert_close(
            torch.autograd.grad(y.square().sum(), parameters),
            torch.autograd.grad(want.square().sum(), parameters),
        )
    assert Api.captures == 2  # forward and backward


def test_layouts_streams_and_random_numbers(replayed):
    """Strides of results, of inputs that overlap, a stream's own capture, eager's numbers."""

    def f(x, y):
        return x.t() + 1, y * 2, torch.rand(67) + x.sum()

    g = replayed(f)
    with torch.no_grad():
        for stream in (0, 0, 0, 1, 1):
            Api.current = stream
            x, y = torch.randn(5, 7), torch.randn(67, 1).expand(67, 3)
            state = torch.get_rng_state()
            got = g(x, y)
            torch.set_rng_state(state)
            want = f(x, y)
            torch.testing.assert_close(got, want)
            assert [t.stride() for t in got] == [t.stride() for t in want]
    Api.current = 0
    assert Api.captures == 2
    # Inside a capture of the user's own nothing is captured.
    Api.capturing = True
    try:
        before = Api.replays
        with torch.no_grad():
            g(x, y)
        assert Api.replays == before
    finally:
        Api.capturing = False


def test_what_fails_to_be_captured_runs_as_it_is(replayed, monkeypatch, caplog):
    def fail(run):
        run()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Api, "capture", fail)
    g = replayed(lambda x: torch.tanh(x) * 2)
    for _ in range(3):
        x = torch.randn(67)
        torch.testing.assert_close(g(x), torch.tanh(x) * 2)
    assert caplog.text.count("could not be captured for CUDA") == 1
    assert "torch.Tag.cudagraph_unsafe" in caplog.text


def test_cuts(caplog):
    """On CUDA: what a kernel checks, what the CPU has, what data decides, stays out."""

    def f(x, table, indices, other):
        h = torch.nn.functional.embedding(indices, table) + x
        h = torch.tanh(h) * 2
        h = unsafe(h) + h.cpu().to("cuda:0")
        return torch.softmax(h, -1), other + 1

    caplog.set_level("INFO", "intarsia")
    with FakeTensorMode(), intarsia.record_compilations() as compilations:
        x, table = torch.empty(67, 32, device="cuda:0"), torch.empty(9, 32, device="cuda:0")
        indices = torch.empty(67, dtype=torch.int64, device="cuda:0")
        compiled = torch.compile(f, backend="intarsia", mode="reduce-overhead")
        with contextlib.suppress(RuntimeError), torch.no_grad():  # fake tensors have no memory
            compiled(x, table, indices, torch.empty(3, device="cuda:1"))
    plans = [c.program.plan_text for c in compilations]
    obstacles = [c.program.capture_obstacle("cuda") for c in compilations]
    assert len(plans) == 4
    assert "aten::embedding" in obstacles[0]
    assert "tanh" in plans[1] and obstacles[1] == ""
    assert "cudagraphs::unsafe" in plans[2]
    assert "softmax" in plans[3] and obstacles[3] == ""
    # The last piece is on two GPUs.
    for reason in (
        "it works on cuda:0 and cuda:1",
        "checks indices",
        "has the tag cudagraph_unsafe",
        "works on cpu",
    ):
        assert reason in caplog.text
