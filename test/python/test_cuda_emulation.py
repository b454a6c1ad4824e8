# ===- test_cuda_emulation.py - CUDA's kernels, run on the CPU ----------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The code of CUDA kernels, before NVVM, against eager.

Each thread of a grid is emulated on the CPU (``gpu-to-simt``), with its barriers and
shuffles, and each access to memory is held against the buffer that it belongs to. Any
other test does the same with ``INTARSIA_EMULATE=cuda``; here is one program for each
kind of kernel, at sizes that are not those of warps, blocks and vectors.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections import defaultdict

import pytest
import torch
from conftest import TOLERANCES
from test_numerics import test_eight_bit_floats as check_eight_bit_floats

import intarsia

# Known to the compiler, and symbols: positions have 32 bits, then 64 (with more than
# 10000 elements, here).
SIZES = [(7, 13), (1, 1), (33, 257), (3, 2049), (300, 4), (64, 64)]
SYMBOLIC = [(7, 13), (43, 257)]


def pointwise(x, row, column):
    h = x.bfloat16()
    return (
        torch.tanh(x * row + column),
        h * 3 + torch.sigmoid(h),
        (x > 0) & (row < column),
        (x * 100).to(torch.int32) // 7,
        x.t() + column.t().contiguous(),
        (x.double() * 2).exp(),
        torch.cat([x, x * 2, x[:, :1]], 1),
        torch.nn.functional.pad(x, (1, 2, 0, 3)) - 1,
    )


def rows(x, row, column):
    softmax = torch.softmax(torch.tanh(x) * row, -1)
    norm = torch.nn.functional.layer_norm(x, x.shape[1:], row.flatten(), row.flatten() * 2)
    return (
        softmax,
        norm,
        torch.softmax(x.bfloat16(), -1),
        x.sum(-1),
        x.double().var(-1),
        (x * x).mean(-1, keepdim=True) + x,
        x.argmax(-1),
        (x > 1).any(-1),
        x.max(-1).values - x.min(-1).values,
        torch.log_softmax(x + column, -1).half(),
    )


def columns(x, row, column):
    return (
        x.sum(0),
        torch.softmax(x, 0),
        (x * column).amax(0),
        x.argmin(0),
        x.bfloat16().mean(0),
        x.sum(),
        (x.double() * row).sum(),
        (x.t() * 2).sum(-1),
    )


def along_rows(x, row, column):
    return (
        x.cumsum(-1),
        x.cumsum(0),
        x.cummax(-1).values,
        x.cummin(0).indices,
        (x * row).exp().cumsum(-1) / x.exp().sum(-1, keepdim=True),
        (x.bfloat16() * 0.1).cumprod(-1),
        (x * 10).to(torch.int8).cumsum(1) + 1,
        x.reshape(-1).logcumsumexp(0),
        x.flip(1) + x,
        x.roll(3, 1) * row,
    )


def gathers(x, row, column):
    index = (x.abs() * 1000).long() % x.shape[1]
    rows = index[:, 0] % x.shape[0]
    return (
        torch.nn.functional.embedding(rows, x),
        x.gather(1, index) * 2,
        x[rows, index[:, 0]] + 1,
        torch.softmax(x[rows], -1),
    )


@pytest.mark.parametrize("program", [pointwise, rows, columns, along_rows, gathers])
@pytest.mark.parametrize(
    ("size", "dynamic"),
    [(size, False) for size in SIZES] + [(size, True) for size in SYMBOLIC],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_kernels(program, size, dynamic):
    x = torch.randn(size)
    arguments = x, torch.randn(1, size[1]), torch.randn(size[0], 1)
    options = {"emulate": "cuda"}
    compiled = torch.compile(program, backend="intarsia", options=options, dynamic=dynamic)
    results = zip(compiled(*arguments), program(*arguments), strict=True)
    for number, (got, want) in enumerate(results):
        rtol, atol = TOLERANCES.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            got,
            want,
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda m, n=number: f"result {n}: {m}",
        )


def transposes(x, y):
    """Of [b, n, m] and [b, m, n]."""
    across = x.mT + y  # lies as x does
    images = x.unsqueeze(1).expand(-1, 3, -1, -1) + y.mT.unsqueeze(1)
    return (
        across,
        across.contiguous(),
        x.mT.contiguous(),
        (x.mT == y).contiguous(),
        x.permute(2, 0, 1).contiguous().double(),
        images.permute(0, 2, 3, 1).contiguous(),  # channels last
        torch.cat([x.mT, y], 1),
        (x[:, 1:, ::2].mT + 1).contiguous(),
    )


@pytest.mark.parametrize(
    ("dtype", "size", "dynamic"),
    [("float32", (1, 33, 70), False), ("float32", (3, 65, 17), False)]
    + [("float32", (2, 16, 96), True), ("bfloat16", (3, 65, 17), True)]
    + [(dtype, (2, 45, 70), False) for dtype in ("float16", "int8", "bool", "complex64")],
)
def test_transposes(dtype, size, dynamic):
    """Bit for bit: nothing but places is computed."""
    batch, n, m = size
    x = (torch.randn(size) * 3).to(getattr(torch, dtype))
    y = (torch.randn(batch, m, n) * 3).to(getattr(torch, dtype))
    options = {"emulate": "cuda"}
    compiled = torch.compile(transposes, backend="intarsia", options=options, dynamic=dynamic)
    for got, want in zip(compiled(x, y), transposes(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert got.stride() == want.stride()


def few_long_rows(x, row):
    h = x.bfloat16()
    return (
        (x * 2).sum(),
        h.mean(),
        h.float().mean(0),
        (x + row).sum(-1, keepdim=True),
        (x * row).exp().sum(0),
        (x > 1).sum(),
        x.amax(),
        x.amin(-1),
        (x * 100).int().amax(),
        (x * 100).to(torch.int16).sum(),
        x.sum(1).softmax(0) + x.mean(),
        (x > 1.49).any(),
        x.isnan().any(-1, keepdim=True),
        (x > 0.4).all(),
        x.all(0),
        torch.count_nonzero(x > 1),
        torch.linalg.vector_norm(x * 2),
        h.norm(),
        torch.linalg.vector_norm(x, ord=1, dim=-1),
        torch.linalg.vector_norm(x, ord=float("inf")),
        torch.nn.functional.mse_loss(x * row, x),
        torch.nn.functional.smooth_l1_loss(h, h * 2, reduction="sum", beta=0.5),
    )


def long_variances(x, row):
    return (
        (x + row).var(),
        x.std(0, keepdim=True, correction=0),
        *torch.var_mean(x.bfloat16(), -1),
        *torch.std_mean(x.double(), 1, keepdim=True, correction=2),
        torch.var_mean(x, correction=0)[1],
    )


@pytest.mark.parametrize("size", [(4, 100000), (3, 100003), (20011, 33)])
def test_few_long_rows(size):
    """In two stages, of which neither is PyTorch's."""
    check_long_rows(few_long_rows, torch.rand(size) + 0.5, torch.rand(1, size[1]))


@pytest.mark.parametrize("size", [(4, 100000), (20020, 33)])
def test_long_variances(size):
    check_long_rows(long_variances, torch.rand(size) + 0.5, torch.rand(1, size[1]))


def check_long_rows(program, x, row):
    with intarsia.record_compilations() as compilations:
        compiled = torch.compile(program, backend="intarsia", options={"emulate": "cuda"})
        results = compiled(x, row)
    plan = compilations[0].program.plan_text
    # A result of a piece each, then of those; one entry of one kernel may do for several.
    assert not re.search(r"call aten::(?!_to_copy)", plan), plan
    for number, (got, want) in enumerate(zip(results, program(x, row), strict=True)):
        rtol, atol = TOLERANCES.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            got, want, rtol=rtol, atol=atol, msg=lambda m, n=number: f"result {n}: {m}"
        )


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats(dtype):
    options = {"emulate": "cuda"}
    check_eight_bit_floats(
        lambda function: torch.compile(function, backend="intarsia", options=options),
        getattr(torch, dtype),
    )


def test_more_transposes_than_shared_memory():
    """What finds no place in it is read where it lies."""
    inputs = [torch.randn(70, 45).double() for _ in range(8)]

    def program(*inputs):
        return sum(x.t() for x in inputs[1:]).contiguous() * inputs[0].reshape(45, 70)

    compiled = torch.compile(program, backend="intarsia", options={"emulate": "cuda"})
    torch.testing.assert_close(compiled(*inputs), program(*inputs))


# --- Faults of kernels ---------------------------------------------------------------

KERNEL = """
!t = !intarsia.tensor<[64]xi32>
func.func @main(%x: !t) -> !t {{
  %r = intarsia.kernel(%x) ops ["aten::neg"] decisions {{symbol = "k", threads = 64,
      grid = #intarsia.expr<"1">, domain = #intarsia.expr<"1">}} : (!t) -> !t {{
  ^bb0(%a: tensor<64xi32>):
    intarsia.yield %a : tensor<64xi32>
  }}
  return %r : !t
}}
gpu.module @kernels {{
  gpu.func @k(%in: !llvm.ptr, %out: !llvm.ptr, %end: i64, %status: !llvm.ptr)
      workgroup(%shared: memref<64xi32, #gpu.address_space<workgroup>>) kernel {{
    %t = gpu.thread_id x
    %i = arith.index_cast %t : index to i64
    %one = arith.constant 1 : i64
    %c1 = arith.constant 1 : i32
    %c32 = arith.constant 32 : i32
    %first = arith.constant 40 : i64
    %at = llvm.getelementptr %in[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %to = llvm.getelementptr %out[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %v = llvm.load %at {{alignment = 4 : i64}} : !llvm.ptr -> i32
    {code}
    llvm.store %r, %to {{alignment = 4 : i64}} : i32, !llvm.ptr
    gpu.return
  }}
}}
"""
NEXT = "%n = arith.addi %i, %one : i64\n%p = llvm.getelementptr %in[%n] : (!llvm.ptr, i64) -> "
FAULTS = {
    "nothing": ("%r = arith.addi %v, %v : i32", 0),
    "outside": (f"{NEXT}!llvm.ptr, i32\n%r = llvm.load %p : !llvm.ptr -> i32", 1),
    "misaligned": (
        f"{NEXT}!llvm.ptr, i8\n%r = llvm.load %p {{alignment = 4 : i64}} : !llvm.ptr -> i32",
        2,
    ),
    "some_at_a_barrier": (
        "%some = arith.cmpi slt, %i, %first : i64\n"
        "scf.if %some { gpu.barrier }\n%r = arith.addi %v, %v : i32",
        3,
    ),
    "half_a_warp_shuffles": (
        "%some = arith.cmpi slt, %i, %first : i64\n"
        "%r = scf.if %some -> i32 {\n"
        "  %s, %valid = gpu.shuffle xor %v, %c1, %c32 : i32\n"
        "  scf.yield %s : i32\n} else { scf.yield %v : i32 }",
        3,
    ),
}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, tmp_path):
    """The emulation sees what a GPU would not forgive."""
    code, number = FAULTS[fault]
    kernel = load(KERNEL.format(code=code), "--gpu-to-simt", tmp_path)["k"]
    source, target = torch.arange(64, dtype=torch.int32), torch.empty(64, dtype=torch.int32)
    assert launch(kernel, [source, target], [], 1) == number


# --- What a warp moves at once -------------------------------------------------------

PROGRAM = """
!x = !intarsia.tensor<[64, 1000]xf32>
!h = !intarsia.tensor<[64, 1000]xbf16>
!o = !intarsia.tensor<[33, 1001]xf32>
!t = !intarsia.tensor<[1000, 64]xf32>
!xt = !intarsia.tensor<[1000, 64]xf32, strides = [1, 1000]>
!c = !intarsia.tensor<[1000]xf32>
!r = !intarsia.tensor<[64]xf32>
!i = !intarsia.tensor<[64]xi64>
!hs = !intarsia.tensor<[64, 960]xbf16>
!ht = !intarsia.tensor<[960, 64]xbf16>
!hx = !intarsia.tensor<[960, 64]xbf16, strides = [1, 960]>
!n = !intarsia.tensor<[2, 40, 16, 48]xf32>
!np = !intarsia.tensor<[2, 16, 48, 40]xf32, strides = [30720, 48, 1, 768]>
!nc = !intarsia.tensor<[2, 16, 48, 40]xf32>
func.func @add(%x: !x, %y: !x) -> !x {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!x, !x) -> !x
  return %0 : !x
}
func.func @half(%h: !h) -> !h {
  %0 = intarsia.call "aten::exp"(self = %h) : (!h) -> !h
  return %0 : !h
}
func.func @bias(%x: !x, %c: !c) -> !x {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %c) : (!x, !c) -> !x
  return %0 : !x
}
func.func @softmax(%x: !x) -> !x {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -1, half_to_float = false) : (!x) -> !x
  return %0 : !x
}
func.func @odd_rows(%o: !o) -> !o {
  %0 = intarsia.call "aten::_softmax"(self = %o, dim = -1, half_to_float = false) : (!o) -> !o
  return %0 : !o
}
func.func @columns(%x: !x) -> !c {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = false, dtype = none)
    : (!x) -> !c
  return %0 : !c
}
func.func @rows(%x: !x) -> !r {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1], keepdim = false, dtype = none)
    : (!x) -> !r
  return %0 : !r
}
func.func @embedding(%x: !x, %i: !i) -> !x {
  %0 = intarsia.call "aten::embedding"(weight = %x, indices = %i, padding_idx = -1,
    scale_grad_by_freq = false, sparse = false) : (!x, !i) -> !x
  return %0 : !x
}
func.func @transposed(%x: !x, %t: !t) -> !t {
  %0 = intarsia.call "aten::t"(self = %x) {views = array<i64: 0>} : (!x) -> !xt
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %t, alpha = 1) : (!xt, !t) -> !t
  return %1 : !t
}
func.func @half_transposed(%h: !hs) -> !ht {
  %0 = intarsia.call "aten::t"(self = %h) {views = array<i64: 0>} : (!hs) -> !hx
  %1 = intarsia.call "aten::neg"(self = %0) : (!hx) -> !hx
  %2 = intarsia.call "aten::clone"(self = %1,
    memory_format = #intarsia.memory_format<"contiguous">) : (!hx) -> !ht
  return %2 : !ht
}
func.func @channels_last(%n: !n) -> !nc {
  %0 = intarsia.call "aten::permute"(self = %n, dims = [0, 2, 3, 1]) {views = array<i64: 0>}
    : (!n) -> !np
  %1 = intarsia.call "aten::relu"(self = %0) : (!np) -> !np
  %2 = intarsia.call "aten::clone"(self = %1,
    memory_format = #intarsia.memory_format<"contiguous">) : (!np) -> !nc
  return %2 : !nc
}
func.func @stored_across(%x: !x, %t: !t) -> (!xt, !t) {
  %0 = intarsia.call "aten::t"(self = %x) {views = array<i64: 0>} : (!x) -> !xt
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %t, alpha = 1) : (!xt, !t) -> !xt
  %2 = intarsia.call "aten::clone"(self = %1,
    memory_format = #intarsia.memory_format<"contiguous">) : (!xt) -> !t
  return %1, %2 : !xt, !t
}
func.func @softmax_across(%t: !x) -> !t {
  %0 = intarsia.call "aten::t"(self = %t) {views = array<i64: 0>} : (!x) -> !xt
  %1 = intarsia.call "aten::_softmax"(self = %0, dim = -1, half_to_float = false) : (!xt) -> !xt
  %2 = intarsia.call "aten::clone"(self = %1,
    memory_format = #intarsia.memory_format<"contiguous">) : (!xt) -> !t
  return %2 : !t
}
"""
#: Of the bytes in the sectors of memory (32 each) that a warp touches at once, the
#: share that it wanted, at least.
SHARES = {
    "add": 0.99,
    "half": 0.99,
    "mul": 0.99,
    "softmax": 0.97,
    "softmax_odd": 0.8,  # rows that begin inside a sector: five of them for four's bytes
    "sum_columns": 0.97,
    "sum_rows": 0.97,
    "embedding": 0.9,  # the row that a warp reads is named by 8 bytes of a sector
    "transposed": 0.99,
    "half_transposed": 0.99,
    "channels_last": 0.99,
    "stored_across": 0.99,
    # Read side by side in three passes, and written across: 4 bytes of a sector.
    "softmax_across": 0.36,
}
#: Those of which each tensor alone has that share.
BOTH_SIDES = ("transposed", "half_transposed", "channels_last", "stored_across")


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    return load(PROGRAM, "--lower --fuse --simt=traces", folder), folder


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("number", range(len(SHARES)), ids=list(SHARES))
def test_coalescing(number, traced):
    library, folder = traced
    module = (folder / "k.mlir").read_text()
    kernel = dict(
        enumerate(re.findall(r'domain = #intarsia.expr<"(\d+)">.*?symbol = "(\w+)"', module))
    )
    domain, name = kernel[number]
    x, y = torch.randn(64, 1000), torch.randn(64, 1000)
    odd = torch.randn(33, 1001)
    arguments = [
        (x, y, x + y),
        (x.bfloat16(), x.bfloat16().exp()),
        (x, y[0], x * y[0]),
        (x, torch.softmax(x, -1)),
        (odd, torch.softmax(odd, -1)),
        (x, x.sum(0)),
        (x, x.sum(1)),
        (x, index := torch.arange(64).flip(0), x[index]),
        (x, y.reshape(1000, 64), (x.t() + y.reshape(1000, 64)).contiguous()),
        (h := torch.randn(64, 960).bfloat16(), -h.t().contiguous()),
        (n := torch.randn(2, 40, 16, 48), n.permute(0, 2, 3, 1).relu().contiguous()),
        (x, y.reshape(1000, 64), z := x.t() + y.reshape(1000, 64), z.contiguous()),
        (x, torch.softmax(x.t(), -1).contiguous()),
    ][number]
    results = 2 if list(SHARES)[number] == "stored_across" else 1
    inputs, wanted = arguments[:-results], arguments[-results:]
    got = [torch.empty_like(want) for want in wanted]
    capacity = 1 << 20
    trace = torch.zeros(2 + 4 * capacity, dtype=torch.int64)
    trace[1] = capacity
    ctypes.c_int64.in_dll(library, "intarsia_simt_trace").value = trace.data_ptr()
    assert launch(library[name], [*inputs, *got], [], int(domain)) == 0
    for one, want in zip(got, wanted, strict=True):
        assert one.stride() == want.stride()
        torch.testing.assert_close(one, want)
    count = int(trace[0])
    assert 0 < count <= capacity
    # Of each tensor, or of all; what is shared by a block is elsewhere.
    case, records = list(SHARES)[number], trace[2 : 2 + 4 * count].reshape(-1, 4)
    places = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in (*inputs, *got)]
    parts = [(begin <= records[:, 2]) & (records[:, 2] < end) for begin, end in places]
    if case not in BOTH_SIDES:
        parts = [torch.stack(parts).any(0)]
    shares = [wanted_share(records[part].tolist()) for part in parts]
    assert min(shares) >= SHARES[case], shares


def wanted_share(records):
    """The bytes that a warp's threads want at once over those of the sectors they are in."""
    turns: dict[tuple[int, int], int] = defaultdict(int)
    together: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for thread, access, address, size in records:
        turn = turns[thread, access]
        turns[thread, access] += 1
        together[thread // 32, access, turn].append((address, size))
    wanted = moved = 0
    for pieces in together.values():
        bytes_ = {a for address, size in pieces for a in range(address, address + size)}
        wanted += len(bytes_)
        moved += 32 * len({a // 32 for a in bytes_})
    return wanted / moved


def load(text, pipeline, folder):
    """The kernels of a module as a library; the module is in the folder, too."""

    def run(*command, stdin):
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True)

    if pipeline == "--gpu-to-simt":
        pipeline = "--pass-pipeline=builtin.module(gpu-to-simt,builtin.module(cpu-to-llvm))"
    module = run("intarsia-opt", *pipeline.split(), stdin=text).stdout
    (folder / "k.mlir").write_text(module)
    (folder / "k.s").write_text(run("intarsia-translate", "--kernels-to-asm", stdin=module).stdout)
    subprocess.run(["cc", "-shared", folder / "k.s", "-o", folder / "k.so"], check=True)
    return ctypes.CDLL(str(folder / "k.so"))


def launch(kernel, tensors, symbols, domain):
    """Runs the whole grid; returns what the kernel does."""
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    values = (ctypes.c_int64 * max(len(symbols), 1))(*symbols)
    scratch = torch.empty(1 << 20, dtype=torch.int64)
    end, zero = ctypes.c_int64(domain), ctypes.c_int64(0)
    return kernel(pointers, values, zero, end, ctypes.c_void_p(scratch.data_ptr()))
