"""Calls from several threads, first compilation in a thread, forked workers."""

from __future__ import annotations

import multiprocessing
import threading
import time

import operators as ops
import torch


def run_in_threads(work, count=4):
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not failures, failures


def test_threads(compile_with):
    def f(x):
        return ops.scaled_tanh(x + 1, 2.0).relu() - x

    compiled = compile_with(f)
    compiled(torch.ones(4, 3))

    def work(i):
        for j in range(20):
            x = torch.full((4, 3), float(i * 100 + j))
            assert torch.equal(compiled(x), f(x))

    run_in_threads(work)


def test_first_compilation_in_threads(compile_with):
    def f(x):
        return (x * 2).exp() + ops.scaled_tanh(x, 1.0)

    compiled = compile_with(f)
    run_in_threads(
        lambda i: torch.testing.assert_close(compiled(torch.ones(i + 2)), f(torch.ones(i + 2)))
    )


def test_first_training_in_threads(compile_with):
    """Each with its own sizes, forward and backward."""

    def f(x, w):
        return (ops.scaled_tanh(x @ w, 2.0).softmax(-1) * x).sum()

    compiled = compile_with(f)

    def work(i):
        x = torch.randn(i + 2, 4, requires_grad=True)
        w = torch.randn(4, 4, requires_grad=True)
        got, want = (torch.autograd.grad(g(x, w), (x, w)) for g in (compiled, f))
        torch.testing.assert_close(got, want)

    run_in_threads(work)


def test_gil_is_released(compile_with):
    """Other Python threads make progress while a program runs."""
    compiled = compile_with(lambda x: (x @ x @ x @ x).sum())
    x = torch.randn(700, 700)
    compiled(x)
    ticks, stop = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    for _ in range(5):
        compiled(x)
    assert ticks > before
    stop.set()
    thread.join()


def test_reentry(compile_with):
    """A kernel that itself calls a compiled function."""
    inner = compile_with(lambda x: x.exp() + 1)
    inner(torch.zeros(3))

    @torch.library.custom_op("test::reenters", mutates_args=())
    def reenters(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    reenters.register_fake(lambda x: torch.empty_like(x))
    x = torch.randn(3)
    got = compile_with(lambda x: reenters(x * 2) * 3)(x)
    torch.testing.assert_close(got, ((x * 2).exp() + 1) * 3)


def test_fork(compile_with):
    """A forked worker uses what was compiled, and compiles."""

    def f(x):
        return ops.scaled_tanh(x.relu() + 1, 0.5) - x

    compiled = compile_with(f)
    x = torch.randn(6, 2)
    torch.testing.assert_close(compiled(x), f(x))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child():
        torch.set_num_threads(1)
        y, z = torch.randn(6, 2), torch.randn(5, 2)
        queue.put(torch.allclose(compiled(y), f(y)) and torch.allclose(compiled(z), f(z)))

    process = context.Process(target=child, daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert queue.get() is True
    torch.testing.assert_close(compiled(x), f(x))
