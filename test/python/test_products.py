# ===- test_products.py - Whose library computes a product --------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Products of float32 matrices in eager's library and in oneDNN."""

import contextlib

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import intarsia
from intarsia import _products

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN"
)

LIBRARY = "mkldnn::_linear_pointwise"


def matrix(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def libraries_of(run, *inputs):
    """The results, and the operators called for the products."""
    with torch.no_grad():
        run(*inputs)  # compiles
        with torch.profiler.profile() as profile:
            got = run(*inputs)
    names = {event.name for event in profile.events()}
    return got, names & {LIBRARY, "aten::mm", "aten::addmm", "aten::linear", "aten::matmul"}


def compiled(function, products, **how):
    torch._dynamo.reset()
    return torch.compile(function, backend="intarsia", options={"products": products}, **how)


def loaded(function, inputs, folder, products):
    class Module(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    program = torch.export.export(Module(), inputs)
    return intarsia.load(intarsia.aot_compile(program, folder / "m.pt2", products=products))


#: Each is large enough for oneDNN.
PRODUCTS = {
    "mm": (torch.mm, (matrix(64, 256), matrix(256, 256))),
    "transposed right": (lambda x, y: x @ y.t(), (matrix(64, 256), matrix(256, 256))),
    "transposed left": (lambda x, y: x.t() @ y, (matrix(256, 256), matrix(256, 256))),
    "every other row": (lambda x, y: x[::2] @ y[:, ::2], (matrix(256, 256), matrix(256, 512))),
    "one row, repeated": (lambda x, y: x @ y, (matrix(1, 256).expand(128, 256), matrix(256, 256))),
    "addmm": (torch.addmm, (matrix(256), matrix(64, 256), matrix(256, 256))),
    "linear": (F.linear, (matrix(4, 16, 256), matrix(256, 256), matrix(256))),
    "no bias": (F.linear, (matrix(64, 256), matrix(256, 256))),
    "a row": (F.linear, (matrix(1, 2048), matrix(4096, 2048))),
    "folded": (torch.matmul, (matrix(2, 32, 256), matrix(256, 256))),
}


def check(got, want, reference):
    """As near to the right values as eager's are, with its strides."""
    assert got.stride() == want.stride()
    error, allowed = ((x - reference).abs().max().item() for x in (got.double(), want.double()))
    assert error <= 4 * allowed + 1e-6  # of sums in another order


@pytest.mark.parametrize("door", ["compile", "file"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_either_library(door, name, tmp_path):
    function, inputs = PRODUCTS[name]
    want = function(*inputs)
    reference = function(*(x.double() for x in inputs))
    for products, expected in (("onednn", True), ("eager", False)):
        if door == "compile":
            run = compiled(function, products)
        else:
            run = loaded(function, inputs, tmp_path, products)
        got, libraries = libraries_of(run, *inputs)
        assert (LIBRARY in libraries) == expected
        assert bool(libraries - {LIBRARY}) != expected
        check(got, want, reference)
        if not expected:
            assert torch.equal(got, want)


def test_gradients():
    x = matrix(64, 256).requires_grad_()
    module = torch.nn.Linear(256, 256)
    run = compiled(module, "onednn")
    run(x).square().sum().backward()
    got = [x.grad, *(p.grad for p in module.parameters())]
    x.grad = None
    module.zero_grad()
    module(x).square().sum().backward()
    want = [x.grad, *(p.grad for p in module.parameters())]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


#: Products that stay eager's, bit for bit, whatever is asked.
STAY = {
    "small": (torch.mm, (matrix(16, 16), matrix(16, 16))),
    "few rows": (torch.mm, (matrix(2, 1024), matrix(1024, 4096))),
    "a row, across": (torch.mm, (matrix(1, 2048), matrix(2048, 4096))),
    "few columns": (torch.mm, (matrix(4096, 1024), matrix(1024, 1))),
    "doubles": (torch.mm, (matrix(64, 256).double(), matrix(256, 256).double())),
    "half": (torch.mm, (matrix(64, 256).bfloat16(), matrix(256, 256).bfloat16())),
    "scaled": (
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5),
        (matrix(256), matrix(64, 256), matrix(256, 256)),
    ),
    "a matrix added": (torch.addmm, (matrix(64, 256), matrix(64, 256), matrix(256, 256))),
    "bias with gaps": (
        lambda b, x, y: torch.addmm(b[::2], x, y),
        (matrix(512), matrix(64, 256), matrix(256, 256)),
    ),
    "bias of one number": (
        lambda b, x, y: torch.addmm(b.expand(256), x, y),
        (matrix(1), matrix(64, 256), matrix(256, 256)),
    ),
    "no inner dimension": (torch.mm, (matrix(4096, 0), matrix(0, 4096))),
    "no rows": (torch.mm, (matrix(0, 4096), matrix(4096, 4096))),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_eager(name):
    function, inputs = STAY[name]
    run = compiled(function, "onednn")
    got, libraries = libraries_of(run, *inputs)
    want = function(*inputs)
    assert LIBRARY not in libraries
    assert torch.equal(got, want) and got.stride() == want.stride()


def test_lazy_bits_stay_eager(tmp_path):
    inputs = (torch.complex(matrix(256, 256), matrix(256, 256)).conj().imag, matrix(256, 256))
    assert inputs[0].is_neg()
    got, libraries = libraries_of(loaded(torch.mm, inputs, tmp_path, "onednn"), *inputs)
    assert LIBRARY not in libraries
    assert torch.equal(got, torch.mm(*inputs))


def test_new_sizes_must_be_worth_their_code():
    run = compiled(torch.mm, "onednn", dynamic=True)
    for rows, expected in ((64, False), (600, True)):
        inputs = (matrix(rows, 256), matrix(256, 256))
        got, libraries = libraries_of(run, *inputs)
        assert (LIBRARY in libraries) == expected
        check(got, torch.mm(*inputs), inputs[0].double() @ inputs[1].double())


@contextlib.contextmanager
def low_precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


SETTINGS = [low_precision, lambda: torch.backends.mkldnn.flags(enabled=False)]


@pytest.mark.parametrize("setting", SETTINGS, ids=["precision", "disabled"])
def test_settings_of_pytorch_are_kept(setting):
    inputs = PRODUCTS["mm"][1]
    run = compiled(torch.mm, "onednn")
    assert LIBRARY in libraries_of(run, *inputs)[1]
    with setting():
        got, libraries = libraries_of(run, *inputs)
        assert LIBRARY not in libraries
        assert torch.equal(got, torch.mm(*inputs))


def test_modes_see_the_program_s_operators():
    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op)
            return op(*args, **(kwargs or {}))

    inputs = PRODUCTS["mm"][1]
    run = compiled(torch.mm, "onednn")
    run(*inputs)
    with Seeing():
        run(*inputs)
    assert torch.ops.mkldnn._linear_pointwise.default not in seen


def test_auto_is_one_of_the_two():
    function, inputs = PRODUCTS["addmm"]
    results = {p: compiled(function, p)(*inputs) for p in ("auto", "eager", "onednn")}
    assert torch.equal(results["auto"], compiled(function, "auto")(*inputs))
    assert any(torch.equal(results["auto"], results[p]) for p in ("eager", "onednn"))


def test_a_file_times_nothing(tmp_path):
    program = torch.export.export(torch.nn.Linear(4, 4), (matrix(2, 4),))
    with pytest.raises(intarsia.OptionError, match="a file takes 'auto'"):
        intarsia.aot_compile(program, tmp_path / "m.pt2", products="fastest")


@pytest.mark.parametrize("setting", SETTINGS, ids=["precision", "disabled"])
def test_settings_are_asked_before_timing(setting, monkeypatch):
    monkeypatch.setattr(_products, "_times", lambda product, threads: (2.0, 1.0))
    inputs = PRODUCTS["mm"][1]
    for allowed, around in ((True, contextlib.nullcontext), (False, setting)):
        with around():
            # What PyTorch's cache has of the other setting is another program.
            _, libraries = libraries_of(compiled(torch.mm, "fastest"), *inputs)
            assert (LIBRARY in libraries) == allowed
