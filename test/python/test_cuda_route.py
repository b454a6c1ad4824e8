"""CUDA: programs traced with no GPU become kernels for it, in files and in torch.compile."""

from __future__ import annotations

import contextlib
import ctypes
import json
import pickle
import re
import shutil
import subprocess
import zipfile

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

import intarsia
from intarsia import backend
from intarsia.errors import CompileError, LoadError
from intarsia.options import Options


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
    # Four kernels; the batch is a symbol, so each has an entry for large sizes, too.
    assert text.count(".visible .entry") == 2 * text.count("_wide(\n") == 8
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
            "--emit=ptx writes the module of one --arch to -o",
        ),
        (("--target", "cuda", "--arch", "sm_80,sm_80", "-o", "x"), "--arch names sm_80 twice"),
        (("--target", "cuda", "--cpu", "x86-64-v2,x86-64-v3", "-o", "x"), "takes one --cpu"),
        (("--emit=ptx",), "--emit=ptx needs --target cuda"),
        (("--target", "cuda", "--emit=ptx", "--arch", "sm_1"), "unknown CUDA architecture 'sm_1'"),
        (
            ("--target", "cuda", "--emit=ptx", "--arch", "sm_60"),
            "it is a name such as sm_80 or sm_90, sm_70 or later",
        ),
        (("--target", "cuda", "--emit=ptx", "--no-fuse"), "every node is a call"),
        (("--target", "tpu", "--emit=fused"), 'the target is "cpu" or "cuda", not "tpu"'),
    ],
)
def test_errors(exported, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = intarsia_compile(exported, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_on_the_cpu_has_no_cuda_kernels(tmp_path):
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(3),))
    torch.export.save(program, tmp_path / "cpu.pt2")
    done = intarsia_compile(tmp_path / "cpu.pt2", "--target", "cuda", "--emit=ptx")
    assert done.returncode == 1
    assert "no tensor of the program is on CUDA" in done.stderr
    assert "--retarget cpu=cuda:0" in done.stderr


def records(path, ending):
    with zipfile.ZipFile(path) as archive:
        return {
            info.filename.partition("data/intarsia/")[2]: archive.read(info)
            for info in archive.infolist()
            if info.filename.endswith(ending)
        }


def test_a_file_for_several_gpus(exported, tmp_path, monkeypatch):
    """Without a toolkit each GPU has PTX; with one, machine code, and PTX for later ones."""
    monkeypatch.setenv("CUDA_HOME", "")
    options = {"target": "cuda", "archs": ["sm_80", "sm_90"]}
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/nowhere")
        path = intarsia.aot_compile(exported, tmp_path / "ptx.pt2", **options)
    assert set(records(path, ".ptx")) == {"cuda/kernels.sm_80.ptx", "cuda/kernels.sm_90.ptx"}
    assert not records(path, ".cubin")
    assert not records(path, "kernels.so")
    (target,) = json.loads(records(path, "metadata.json")["metadata.json"])["targets"]
    assert target["images"][0] == {"arch": "sm_80", "file": "kernels.sm_80.ptx"}
    assert b'"threads"' in records(path, "plan.json")["cuda/plan.json"]
    if shutil.which("ptxas"):
        paths = [
            intarsia.aot_compile(exported, tmp_path / name / "m.pt2", **options)
            for name in ("a", "b")
            if not (tmp_path / name).mkdir()
        ]
        assert set(records(paths[0], ".ptx")) == {"cuda/kernels.sm_90.ptx"}
        cubins = records(paths[0], ".cubin")
        assert set(cubins) == {"cuda/kernels.sm_80.cubin", "cuda/kernels.sm_90.cubin"}
        assert all(code.startswith(b"\x7fELF") for code in cubins.values())
        assert len({open(path, "rb").read() for path in paths}) == 1


def test_without_a_driver(exported, tmp_path, monkeypatch):
    """An error that says what the file has; the process goes on."""
    monkeypatch.setenv("INTARSIA_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    path = intarsia.aot_compile(exported, tmp_path / "m.pt2", target="cuda", archs=["sm_90a"])
    with pytest.raises(LoadError, match=r"kernels for CUDA \(sm_90a.*driver cannot be loaded"):
        intarsia.load(path)
    x = torch.ones(3)
    program = torch.export.export(torch.nn.ReLU(), (x,))
    assert intarsia.load(intarsia.aot_compile(program, tmp_path / "cpu.pt2"))(x).equal(x)
    with pytest.raises(CompileError, match="--retarget is FROM=TO"):
        intarsia.aot_compile(program, tmp_path / "x.pt2", target="cuda", retarget="cuda:0")


class Moved(torch.nn.Module):
    """A written input, factories that do or don't say where."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def forward(self, x, count):
        count.add_(1)
        steps = torch.arange(10, device=self.device) + torch.zeros(10, device=self.device)
        return torch.softmax(x + steps, -1).to(self.device), x.new_ones(2), count * 2


def test_a_moved_program_is_the_one_of_the_other_device(tmp_path):
    """--retarget gives the plan that an export on the other device gives."""
    plans = {}
    for device in ("cpu", "cuda:0"):
        with FakeTensorMode():
            inputs = torch.ones(4, 10, device=device), torch.ones(3, device=device)
            program = torch.export.export(Moved(device), inputs)
        program._example_inputs = None
        path = tmp_path / f"{device[:4]}.pt2"
        torch.export.save(program, path)
        moved = ["--retarget", "cpu=cuda:0"] if device == "cpu" else []
        done = intarsia_compile(path, "--target", "cuda", "--emit=plan", *moved)
        assert done.returncode == 0, done.stderr
        plans[device] = done.stdout
    assert plans["cpu"] == plans["cuda:0"]
    assert "on cuda:0" in plans["cpu"]


class Cast(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.linear(x, x)


def test_autocast_moves_with_the_program(tmp_path):
    # Without a GPU PyTorch turns autocast of CUDA off, and an export would not have it.
    torch.export.save(torch.export.export(Cast(), (torch.ones(4, 10),)), tmp_path / "m.pt2")
    done = intarsia_compile(tmp_path / "m.pt2", "--emit=plan", "--retarget", "cpu=cuda:0")
    assert 'autocast "cuda" true' in done.stdout
    assert '"cpu"' not in done.stdout


def both(x, y):
    """On the CPU, and on CUDA."""
    h = torch.tanh(x * 2 + 1)
    return h, torch.softmax(torch.exp(y) + y, -1), h.to("cuda:0") * y


def on_both(tmp_path):
    with FakeTensorMode():
        return make_fx(both)(torch.empty(4, 8), torch.empty(4, 8, device="cuda:0"))


def test_torch_compile_makes_kernels_for_both(tmp_path):
    gm = on_both(tmp_path)

    def compiled(**options):
        return backend._compile_graph(
            gm, [], kind="inference", stem="g", settings=Options(**options), user_names=[]
        )

    program = compiled()
    plan = program.plan_text
    assert plan.count("(cuda)") == 2
    assert plan.count("(cpu)") == 1
    assert len(re.findall(r"launch \d+ @.* threads \d+", plan)) == 2
    assert "call aten::_to_copy" in plan
    assert "launch" not in compiled(fuse=False).plan_text
    # As PyTorch's cache keeps it, with the code for CUDA.
    again = pickle.loads(pickle.dumps(program))
    assert again.plan_text == plan
    assert len(pickle.dumps(program)) > len(pickle.dumps(compiled(fuse=False))) + 2000


def test_torch_compile_launches_kernels_of_triton():
    """Without Python, but for what takes a GPU to decide."""
    pytest.importorskip("triton")
    import triton_kernels

    def f(x, y):
        h = triton_kernels.add_op(x * 2, y[1:]) + 1
        out = h.clone()
        triton_kernels.scale_rows_op(out, 0.5)
        return h, out

    with FakeTensorMode(), intarsia.record_compilations() as compilations:
        x, y = torch.empty(100, 48, device="cuda:0"), torch.empty(101, 48, device="cuda:0")
        for function in (f, lambda x, y: triton_kernels.double_op(x)):
            with contextlib.suppress(RuntimeError):  # fake tensors have no memory
                torch.compile(function, backend="intarsia")(x, y)
    program, autotuned = (compilation.program for compilation in compilations)
    plan = program.plan_text
    assert "call triton_kernels" not in plan
    assert plan.count("launch_foreign") == 2
    # Sizes are known: of each kernel what differs is whether pointers are aligned.
    variants = re.findall(r"variant (\S+) @add\((.*)\) threads (\d+)", plan)
    assert [v[1:] for v in variants] == [
        ("*/16, */16, */16, i32/16", "64"),
        ("*, *, *, i32/16", "64"),
    ]
    assert "@scale_rows(*, i32/16, i32, i32/16, f32, u1)" in plan
    assert pickle.loads(pickle.dumps(program)).plan_text == plan
    assert "python higher_order::triton_kernel_wrapper_functional" in autotuned.plan_text


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
