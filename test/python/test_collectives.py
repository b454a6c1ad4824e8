"""Functional collectives: opaque calls, whose wait comes as late as it may."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from conftest import assert_same

import intarsia

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="PyTorch without distributed")


def reduced(x, w):
    y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = (w @ w).exp()  # needs nothing of the others
    return y + 1, z, (y.view(-1) * z.sum()).relu()


def gathered(x, w):
    whole = funcol.all_gather_tensor(x.sin(), 0, dist.group.WORLD)
    part = funcol.reduce_scatter_tensor(torch.cat([w, w]) + 0, "avg", 0, dist.group.WORLD)
    return whole.sum(0), part.exp() + whole[0]


def coalesced(x, w):
    a, b = funcol.all_reduce_coalesced([x + 1, w * 2], "max", dist.group.WORLD)
    c = funcol.broadcast(w + dist.get_rank(), 0, dist.group.WORLD)
    return a * b, c - 1


def in_place(x, w):
    y = x * 2
    dist.all_reduce(y)
    w.mul_(2)
    return y + w


def several(x, w):
    a = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
    b = funcol.all_reduce(w * 3, "sum", dist.group.WORLD)
    c = funcol.all_gather_tensor(x + w, 0, dist.group.WORLD)
    z = (w @ w).exp()
    return c.sum(0) + a, b + 1, z


PROGRAMS = [reduced, gathered, coalesced, in_place, several]


def inputs(rank: int):
    torch.manual_seed(rank)
    return torch.randn(4, 4), torch.randn(4, 4)


def check_all(fuse: bool) -> None:
    """Every program against eager, in a process that has joined a group."""
    for program in PROGRAMS:
        torch._dynamo.reset()
        with intarsia.record_compilations() as compilations, torch.no_grad():
            compiled = torch.compile(
                program, backend="intarsia", fullgraph=True, options={"fuse": fuse}
            )
            for _ in range(2):
                eager, ours = inputs(dist.get_rank()), inputs(dist.get_rank())
                assert_same(compiled(*ours), program(*eager))
                assert_same(ours, eager)
        (compilation,) = compilations
        assert "_c10d_functional::wait_tensor" in compilation.program.plan_text


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_one_process(alone, fuse):
    check_all(fuse)


def test_the_wait_is_late(alone):
    """What does not need the result runs between the start and the wait."""
    with intarsia.record_compilations() as compilations, torch.no_grad():
        torch.compile(reduced, backend="intarsia", fullgraph=True)(*inputs(0))
    steps = compilations[0].program.plan_text.splitlines()
    start, product, wait = (
        next(i for i, step in enumerate(steps) if text in step)
        for text in ("_c10d_functional::all_reduce", "aten::mm", "wait_tensor")
    )
    assert start < product < wait


def test_several_are_in_flight(alone):
    with intarsia.record_compilations() as compilations, torch.no_grad():
        torch.compile(several, backend="intarsia", fullgraph=True)(*inputs(0))
    order = [
        name
        for step in compilations[0].program.plan_text.splitlines()
        for name in ("all_reduce", "all_gather", "aten::mm", "wait_tensor")
        if f"::{name.rpartition(':')[2]}" in step and " = call " in step
    ]
    assert order == ["all_reduce"] * 2 + ["all_gather", "aten::mm"] + ["wait_tensor"] * 3


def test_training(alone, fuse):
    def f(x, w):
        whole = funcol.all_gather_tensor_autograd(x * w, 0, dist.group.WORLD)
        return (whole.sin() * 2).sum()

    grads = []
    for function in (f, torch.compile(f, backend="intarsia", options={"fuse": fuse})):
        x, w = (t.requires_grad_() for t in inputs(0))
        function(x, w).backward()
        grads.append((x.grad, w.grad))
    assert_same(grads[1], grads[0])


def test_file(alone, tmp_path, fuse):
    """In a file, too: the group is named by what the process has joined."""

    class Model(torch.nn.Module):
        def forward(self, x, w):
            return reduced(x, w)

    program = torch.export.export(Model(), inputs(0)).run_decompositions()
    path = intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse)
    with torch.no_grad():
        assert_same(intarsia.load(path)(*inputs(1)), reduced(*inputs(1)))


def test_two_processes():
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [p.returncode for p in processes] == [0, 0], "\n".join(outputs)


if __name__ == "__main__":
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for way in (False, True):
        check_all(way)
    dist.destroy_process_group()
