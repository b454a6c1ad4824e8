"""CUDA: programs traced with no GPU become PTX; what runs stays PyTorch's calls."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.export import Dim


class Chain(torch.nn.Module):
    def forward(self, x, a, b, indices):
        y = torch.softmax(torch.tanh(x * a + b), -1)
        z = torch.native_layer_norm(x, (10,), a, b, 1e-5)[0]
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


def test_several_gpus(exported):
    done = intarsia_compile(exported, "--target", "cuda", "--arch", "sm_80,sm_90", "--emit=ptx")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(".target")] == [
        ".target sm_80",
        ".target sm_90",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--target", "cuda", "--arch", "sm_80,sm_90", "--emit=ptx", "-o", "x"),
            "several --arch go with --emit=ptx without -o",
        ),
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


PROGRAM = """
!x = !intarsia.tensor<[s0, 10]xf32>
!row = !intarsia.tensor<[10]xf32>
!h = !intarsia.tensor<[s0, 10]xbf16>
!box = !intarsia.tensor<[s0, 2, 5]xf32>
func.func @softmax(%x: !x, %a: !row) -> !x attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %a) : (!x, !row) -> !x
  %1 = intarsia.call "aten::tanh"(self = %0) : (!x) -> !x
  %2 = intarsia.call "aten::_softmax"(self = %1, dim = -1, half_to_float = false) : (!x) -> !x
  return %2 : !x
}
func.func @gelu(%h: !h) -> !h attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::gelu"(self = %h, approximate = "none") : (!h) -> !h
  return %0 : !h
}
func.func @columns(%x: !x) -> !row attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = false, dtype = none)
    : (!x) -> !row
  return %0 : !row
}
func.func @whole(%x: !box) -> !intarsia.tensor<[]xf32>
    attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!box) -> !intarsia.tensor<[]xf32>
  return %0 : !intarsia.tensor<[]xf32>
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_loops_without_lanes(tmp_path):
    """The loops of a GPU's thread give eager's values when the CPU runs them."""

    def run(*command, stdin):
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True)

    module = run("intarsia-opt", "--lower", "--fuse", "--cpu=vector-bits=32", stdin=PROGRAM).stdout
    assert "vector<" not in module
    (tmp_path / "k.s").write_text(
        run("intarsia-translate", "--kernels-to-asm", stdin=module).stdout
    )
    library = str(tmp_path / "k.so")
    subprocess.run(["cc", "-shared", tmp_path / "k.s", "-o", library], check=True)
    kernels = ctypes.CDLL(library)
    decisions = re.findall(r'domain = #intarsia.expr<"(.*?)">.* symbol = "(\w+)"', module)
    domains = {name: domain for domain, name in decisions}

    def launch(number, *tensors):
        name = next(name for name in domains if name.startswith(f"k{number}_"))
        pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
        domain = ctypes.c_int64(eval(domains[name], {"s0": 7}))
        assert (
            kernels[name](pointers, (ctypes.c_int64 * 1)(7), ctypes.c_int64(0), domain, None) == 0
        )
        return tensors[-1]

    x, a = torch.randn(7, 10), torch.randn(10)
    h = x.bfloat16()
    want = torch.softmax(torch.tanh(x * a), -1)
    torch.testing.assert_close(launch(0, x, a, torch.empty_like(x)), want)
    torch.testing.assert_close(launch(1, h, torch.empty_like(h)), torch.nn.functional.gelu(h))
    torch.testing.assert_close(launch(2, x, torch.empty(10)), x.sum(0))
    torch.testing.assert_close(launch(3, x, torch.empty(())), x.sum())
