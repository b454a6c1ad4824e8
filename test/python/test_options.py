"""Options and modes of torch.compile, the environment variable, dumps."""

from __future__ import annotations

import pytest
import torch

import intarsia
from intarsia.options import Options


def test_defaults():
    assert Options.resolve() == Options()
    assert Options.resolve("default", {}) == Options()


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_are_accepted(mode):
    f = torch.compile(lambda x: x + 1, backend="intarsia", mode=mode)
    assert torch.equal(f(torch.zeros(2)), torch.ones(2))


def test_unknown_mode():
    with pytest.raises(intarsia.OptionError, match="did you mean 'max-autotune'"):
        Options.resolve("max-autotun")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fues": False}, "option 'fues' does not exist .did you mean 'fuse'"),
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
