"""CUDA: programs traced with no GPU become PTX; what runs stays PyTorch's calls."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.export import Dim


class Chain(torch.nn.Module):
    def forward(self, x, a, b, indices):
        y = torch.softmax(torch.tanh(x * a + b), -1)
        z = torch.nn.functional.layer_norm(x, (10,), a, b)
        h = torch.nn.functional.silu(x.bfloat16()) * 2
        return y, z, h, torch.nn.functional.embedding(indices, x)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A program on cuda:0, exported with tensors that have no data."""
    with FakeTensorMode():
        x = torch.empty(6, 10, device="cuda:0")
        row = torch.empty(10, device="cuda:0")
        indices = torch.empty(7, dtype=torch.int64, device="cuda:0")
        shapes = {"x": {0: Dim("rows", min=2)}, "a": None, "b": None, "indices": None}
        program = torch.export.export(Chain(), (x, row, row, indices), dynamic_shapes=shapes)
    program._example_inputs = None  # fake ones cannot be saved
    path = tmp_path_factory.mktemp("cuda") / "chain.pt2"
    torch.export.save(program, path)
    return path


def intarsia_compile(*args):
    return subprocess.run(["intarsia-compile", *map(str, args)], capture_output=True, text=True)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptx(exported, tmp_path, arch):
    ptx = tmp_path / "k.ptx"
    done = intarsia_compile(exported, "--target", "cuda", "--arch", arch, "--emit=ptx", "-o", ptx)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = ptx.read_text()
    assert f".target {arch}" in text
    assert text.count(".visible .entry") == 4
    assert ".extern .func" not in text
    if shutil.which("ptxas"):
        subprocess.run(["ptxas", f"-arch={arch}", ptx, "-o", tmp_path / "k.cubin"], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "cuda", "-o", "x.pt2"), "cannot launch CUDA kernels yet"),
        (("--target", "cuda", "--emit=fused", "-o", "x"), "cannot launch CUDA kernels yet"),
        (("--target", "cuda", "--emit=asm"), "--target cuda has no stage 'asm'"),
        (("--emit=ptx",), "--emit=ptx needs --target cuda"),
        (("--target", "cuda", "--emit=ptx", "--arch", "sm_1"), "unknown CUDA architecture 'sm_1'"),
        (("--target", "cuda", "--emit=ptx", "--no-fuse"), "every node is a call"),
        (("--target", "tpu", "--emit=fused"), 'the target is "cpu" or "cuda", not "tpu"'),
    ],
)
def test_errors(exported, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = intarsia_compile(exported, *arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_on_the_cpu_has_no_cuda_kernels(tmp_path):
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(3),))
    torch.export.save(program, tmp_path / "cpu.pt2")
    done = intarsia_compile(tmp_path / "cpu.pt2", "--target", "cuda", "--emit=ptx")
    assert done.returncode == 1
    assert "the program has no kernels for CUDA" in done.stderr


def test_operators_on_cuda_stay_calls(exported):
    """An ordinary artifact has no kernels for tensors that are on CUDA."""
    done = intarsia_compile(exported, "--emit=plan")
    assert done.returncode == 0, done.stderr
    assert "launch" not in done.stdout
    assert "aten::tanh" in done.stdout
