"""Bad input: each is one clear error that names the operator or argument and the remedy."""

from __future__ import annotations

import re
import traceback
import warnings

import operators as ops
import pytest
import torch

import intarsia
import intarsia.backend


def whole_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_hierarchy():
    for kind in (
        intarsia.CompileError,
        intarsia.ContractError,
        intarsia.GuardError,
        intarsia.LoadError,
        intarsia.OptionError,
    ):
        assert issubclass(kind, intarsia.IntarsiaError) and kind.__doc__


def test_no_fake(compile_with):
    with pytest.raises(Exception) as caught:
        compile_with(lambda x: torch.ops.test.no_fake(x * 2, 3)[0])(torch.ones(3))
    text = whole_text(caught.value)
    assert "test::no_fake" in text
    assert "no_fake(Tensor x, int n, *, float scale=1." in text
    assert '@torch.library.register_fake("test::no_fake")' in text
    assert "def _(x, n, *, scale):" in text
    assert "return torch.empty_like(x), [torch.empty_like(x)]" in text


def test_no_fake_of_a_python_operator(compile_with):
    with pytest.raises(Exception) as caught:
        compile_with(lambda x: ops.no_fake_python(x * 2))(torch.ones(3))
    assert '@torch.library.register_fake("test::no_fake_python")' in whole_text(caught.value)


raising = torch.library.Library("raising", "FRAGMENT")
raising.define("called(Tensor x) -> Tensor")
raising.impl("called", lambda x: x * 2, "CompositeExplicitAutograd")
raising.define("calling(Tensor x) -> Tensor")
raising.impl("calling", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("raising::calling", torch.empty_like, lib=raising)
torch.library.register_autograd(
    "raising::calling", lambda ctx, grad: torch.ops.raising.called(grad), lib=raising
)


@torch.library.register_fake("raising::called", lib=raising)
def _fake_of_called(x):
    raise ArithmeticError("no fake today")


@pytest.mark.parametrize("name", ["called", "calling"])
def test_a_fake_that_raises(name):
    """It is named, also where a backward formula calls the operator."""
    op = getattr(torch.ops.raising, name)
    x = torch.ones(3, requires_grad=name == "calling")
    with pytest.raises(Exception, match="no fake today") as caught:
        torch.compile(lambda x: op(x * 2), backend="intarsia", fullgraph=True)(x)
    text = whole_text(caught.value)
    assert "the fake implementation of raising::called" in text
    line = _fake_of_called.__code__.co_firstlineno
    assert f"test_errors.py:{line}) raised this" in text


def test_no_fake_outside_a_full_graph(compile_with):
    """Dynamo runs the operator outside the graph; the user is told why."""
    intarsia.backend._hooks._warned.clear()
    f = compile_with(lambda x: torch.ops.test.no_fake(x * 2, 3)[0], fullgraph=False)
    with pytest.warns(UserWarning, match="test::no_fake has no fake implementation"):
        assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))


def test_other_backends_keep_their_messages():
    intarsia.backend._hooks.install()
    with pytest.raises(Exception) as caught:
        f = torch.compile(lambda x: ops.no_fake_python(x), backend="eager", fullgraph=True)
        f(torch.ones(3))
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wrong_dtype", ["float64", "float32"]),
        ("wrong_size", ["[2]", "[3]"]),
        ("returns_input", ["shares memory", "'x'"]),
    ],
)
def test_kernel_breaks_its_contract(compile_with, name, expected):
    op = getattr(torch.ops.test, name)
    f = compile_with(lambda x: op(x * 2) + 1)
    with pytest.raises(intarsia.ContractError) as caught:
        f(torch.ones(3))
    text = str(caught.value)
    assert f"test::{name}" in text
    assert "test_errors.py" in text
    for word in expected:
        assert word in text


def test_other_strides_are_a_warning(compile_with, fuse):
    # One for each operator and process: this one is nobody else's.
    name = f"strided_{'fused' if fuse else 'unfused'}"
    ops.library.define(f"{name}(Tensor x) -> Tensor")
    ops.library.impl(name, lambda x: x.t().contiguous().t(), "CompositeExplicitAutograd")
    torch.library.register_fake(f"test::{name}", torch.empty_like)
    op = getattr(torch.ops.test, name)
    f = compile_with(lambda x: op(x * 2) + 1)
    with pytest.warns(UserWarning, match=f"test::{name}") as caught:
        y = f(torch.ones(3, 4))
    assert {warning.filename for warning in caught} == {__file__}
    assert y.is_contiguous() and torch.equal(y, torch.full((3, 4), 3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(torch.ones(3, 4))


def test_other_strides_are_an_error_when_strict(compile_with):
    f = compile_with(lambda x: torch.ops.test.wrong_strides(x * 2) + 1, options={"strict": True})
    with pytest.raises(intarsia.ContractError, match="test::wrong_strides"):
        f(torch.ones(3, 4))


def test_kernel_exceptions_keep_type_and_text(compile_with):
    f = compile_with(lambda x: ops.fails(x * 2) + 1)
    with pytest.raises(KeyError, match="the kernel's own words") as caught:
        f(torch.ones(3))
    notes = "\n".join(caught.value.__notes__)
    assert "test::fails" in notes and "test_errors.py" in notes
    assert "fails" in whole_text(caught.value)


def test_aten_exceptions_keep_type_and_text(compile_with):
    f = compile_with(lambda x, i: x.index_select(0, i) + 1)
    x = torch.ones(3, 2)
    f(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError) as caught:
        f(x, torch.tensor([0, 7]))
    # A kernel of our own says it in its message.
    assert "aten::index_select" in whole_text(caught.value)
    assert "test_errors.py" in whole_text(caught.value)


def test_program_survives_an_error(compile_with):
    f = compile_with(lambda x, i: x.index_select(0, i) + 1)
    x = torch.ones(3, 2)
    with pytest.raises(IndexError):
        f(x, torch.tensor([0, 7]))
    assert torch.equal(f(x, torch.tensor([0, 1])), torch.full((2, 2), 2.0))


def test_wrong_number_of_inputs():
    with intarsia.record_compilations() as compilations:
        torch.compile(lambda x: x + 1, backend="intarsia")(torch.ones(3))
    program = compilations[0].program
    with pytest.raises(intarsia.GuardError, match="1 inputs, 2 were given"):
        program([torch.ones(3), torch.ones(3)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3, dtype=torch.float64), ["float64", "float32"]),
        (torch.ones(3, 1), ["2", "1"]),
        (torch.ones(4), ["4", "3"]),
        (torch.ones(3, device="meta"), ["meta", "cpu"]),
        (3.0, ["tensor"]),
    ],
)
def test_input_that_does_not_fit(value, words):
    with intarsia.record_compilations() as compilations:
        torch.compile(lambda x: x + 1, backend="intarsia")(torch.ones(3))
    program = compilations[0].program
    with pytest.raises(intarsia.GuardError) as caught:
        program([value])
    text = str(caught.value).lower()
    assert "x" in text
    for word in words:
        assert word in text
    # And it still runs.
    assert torch.equal(program([torch.ones(3)])[0], torch.full((3,), 2.0))


def test_skeleton_of_an_operator_without_tensors():
    torch.library.define("test::made", "(SymInt n) -> Tensor")
    text = intarsia.backend._hooks.missing_fake_advice("unsupported operator: test.made.default")
    assert "def _(n):" in text and "return torch.empty(...)" in text


INDEXED = {
    "index": lambda x, i: x[:, i],
    "negative": lambda x, i: x[:, -i - 1],
    "index_select": lambda x, i: x.t().index_select(0, i),
    "gather": lambda x, i: x.gather(1, i.expand(2, 2)),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x.t()),
    "scatter": lambda x, i: x.scatter(1, i[:1].expand(2, 1) + 6, 1.0),
    "nll_loss": lambda x, i: torch.nn.functional.nll_loss(x, i),
    "vector": lambda x, i: x[:, torch.arange(70).remainder(5).index_fill(0, i + 40, 7)],
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range(compile_with, name, dynamic):
    """The error has eager's type, and says what eager says and more."""

    def f(x, i):
        return INDEXED[name](x * 2, i) + 1

    x, i = torch.ones(2, 5), torch.tensor([1, 7])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        f(x, i)
    with pytest.raises((IndexError, RuntimeError)) as caught:
        compile_with(f, dynamic=dynamic)(x, i)
    assert isinstance(caught.value, IndexError) == isinstance(eager.value, IndexError)
    # Eager counts the dimensions of a tensor that it has permuted.
    said, text = (re.sub(r"dimension \d", "dimension", str(e.value)) for e in (eager, caught))
    assert said.rstrip(".") in text
    if isinstance(caught.value, intarsia.IntarsiaError):
        assert ("-8" if name == "negative" else "7") in text and "size 5" in text
        assert "test_errors.py" in text
