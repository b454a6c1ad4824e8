"""Options and modes of torch.compile, the environment variable, dumps."""

from __future__ import annotations

import pytest
import torch

import intarsia
from intarsia import _products
from intarsia.options import Options


def test_defaults():
    assert Options.resolve() == Options()
    assert Options.resolve("default", {}) == Options()


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_are_accepted(mode):
    f = torch.compile(lambda x: x + 1, backend="intarsia", mode=mode)
    assert torch.equal(f(torch.zeros(2)), torch.ones(2))


class Products(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(128, 96)
        self.plain = torch.nn.Parameter(torch.randn(96, 64))

    def forward(self, x):
        return torch.tanh(self.linear(x)) @ self.plain


@pytest.mark.parametrize("onednn_wins", [True, False])
def test_the_faster_library_computes_products(monkeypatch, onednn_wins):
    def times(product, threads):
        timed.append(product)
        assert threads == torch.get_num_threads()
        real = _products._time(product)  # runs both
        assert all(0 < seconds < 60 for seconds in real)
        return (2.0, 1.0) if onednn_wins else (1.0, 0.97)

    timed = []
    monkeypatch.setattr(_products, "_times", times)
    torch.manual_seed(0)
    module, x = Products(), torch.randn(96, 128, requires_grad=True)
    state = torch.get_rng_state()
    with (
        intarsia.record_compilations() as compilations,
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        compiled = torch.compile(module, backend="intarsia", mode="max-autotune")
        y = compiled(x)
        got = torch.autograd.grad(y.square().sum(), [x, *module.parameters()])
    assert torch.equal(torch.get_rng_state(), state)
    want_y = module(x)
    want = torch.autograd.grad(want_y.square().sum(), [x, *module.parameters()])
    torch.testing.assert_close([y, *got], [want_y, *want], rtol=1e-3, atol=1e-3)
    # Forward: with a bias and a transposed weight, and without; each has two gradients.
    plans = "".join(c.program.plan_text for c in compilations)
    assert len(timed) == 6
    assert plans.count("mkldnn::_linear_pointwise") == (6 if onednn_wins else 0)
    assert plans.count("aten::mm") + plans.count("aten::addmm") == (0 if onednn_wins else 6)


def test_products_stay_where_eager_computes_them(monkeypatch):
    def refuse(*product):
        raise AssertionError(f"timed {product}")

    monkeypatch.setattr(_products, "_times", refuse)
    matrix = torch.randn(96, 96)
    double, small = matrix.double(), torch.randn(4, 4)
    mode = {"backend": "intarsia", "mode": "max-autotune"}
    for left, right in [(double, double), (matrix.bfloat16(), matrix.bfloat16()), (small, small)]:
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(torch.mm, **mode)(left, right), left @ right)
    torch.compile(torch.mm, **mode, dynamic=True)(matrix, matrix)
    torch.compile(torch.mm, backend="intarsia")(matrix, matrix)
    torch.compile(lambda x: torch.addmm(x, x, x, beta=0.5), **mode)(matrix)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    torch.compile(lambda x: x @ x + 1, **mode)(matrix)


def test_unknown_mode():
    with pytest.raises(intarsia.OptionError, match="did you mean 'max-autotune'"):
        Options.resolve("max-autotun")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fues": False}, "option 'fues' does not exist .did you mean 'fuse'"),
        ({"max_autotune": True}, "does not exist .it is a mode: mode='max-autotune'"),
        ({"dumpdir": "x"}, "did you mean 'dump_dir'"),
        ({"fuse": 1}, "'fuse' must be True or False, not 1"),
        ({"numerics": "fast"}, "'numerics' must be one of 'eager', 'fused', not 'fast'"),
        ({"emulate": "rocm"}, "'emulate' must be one of '', 'cuda', not 'rocm'"),
        ({"cpu": None}, "'cpu' must be a string"),
        ({"dump_dir": 3}, "'dump_dir' must be a path"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(intarsia.OptionError, match=message):
        Options.resolve(None, options)


def test_bad_option_through_torch_compile():
    f = torch.compile(lambda x: x + 1, backend="intarsia", options={"fues": False})
    with pytest.raises(Exception, match="did you mean 'fuse'"):
        f(torch.ones(2))


def test_dump_dir(tmp_path):
    options = {"dump_dir": tmp_path}
    with intarsia.record_compilations() as compilations:
        torch.compile(lambda x: x.exp() + 1, backend="intarsia", options=options)(torch.ones(2))
    folder = tmp_path / compilations[0].name
    assert compilations[0].dump_dir == str(folder)
    assert "aten::exp" in (folder / "imported.mlir").read_text()
    assert (folder / "plan.txt").read_text()


@pytest.mark.parametrize("variable", [False, True], ids=["option", "variable"])
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, variable):
    file = tmp_path / "file"
    file.write_text("")
    if variable:
        monkeypatch.setenv("INTARSIA_DEBUG", str(file / "dumps"))
    options = None if variable else {"dump_dir": file / "dumps"}
    f = torch.compile(lambda x: x + 1, backend="intarsia", options=options)
    name = "INTARSIA_DEBUG" if variable else "'dump_dir'"
    with pytest.raises(Exception, match=f"{name}: the folder .*dumps' cannot be written: Not a"):
        f(torch.ones(2))


def test_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_DEBUG", str(tmp_path))
    torch.compile(lambda x: x.exp() + 2, backend="intarsia")(torch.ones(2))
    assert list(tmp_path.glob("*/imported.mlir"))
