"""aot_compile and load: the file door, from Python."""

from __future__ import annotations

import os
import subprocess
import sys

import operators as ops
import pytest
import torch
from conftest import assert_same
from torch.export import Dim

import intarsia
from intarsia.errors import CompileError, ContractError, GuardError, LoadError, OptionError


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x, scale: float = 1.5, *, extra):
        self.steps += 1
        y = ops.scaled_tanh(self.fc(x), 2.0) * scale
        return {"y": y + extra["a"], "rest": (extra["b"][0].sum(), self.steps + 0, None, 7)}


def example(batch=3):
    return (torch.randn(batch, 4), 1.5), {"extra": {"a": torch.randn(3), "b": [torch.randn(2)]}}


@pytest.fixture
def artifact(tmp_path, fuse):
    """A compiled file, and the module it was made of."""
    torch.manual_seed(0)
    model = Model().eval()
    args, kwargs = example()
    shapes = {"x": {0: Dim("batch", max=64)}, "scale": None, "extra": {"a": None, "b": [None]}}
    program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    path = tmp_path / "model.compiled.pt2"
    assert intarsia.aot_compile(program, path, fuse=fuse) == str(path)
    return path, model


def test_round_trip(artifact):
    path, model = artifact
    loaded = intarsia.load(path)
    for batch in (3, 2, 17, 64):
        args, kwargs = example(batch)
        with torch.no_grad():
            want = model(*args, **kwargs)
        assert_same(loaded(*args, **kwargs), want)
    assert "test::scaled_tanh" in loaded.plan_text
    assert "x" in repr(loaded)


def test_each_load_has_its_own_buffers(artifact):
    path, _ = artifact
    args, kwargs = example()
    first, second = intarsia.load(path), intarsia.load(path)
    assert first(*args, **kwargs)["rest"][1] == 1
    assert first(*args, **kwargs)["rest"][1] == 2
    assert second(*args, **kwargs)["rest"][1] == 1


def test_file_to_file(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    x = torch.randn(2, 4)
    source, target = tmp_path / "m.pt2", tmp_path / "m.compiled.pt2"
    torch.export.save(torch.export.export(model, (x,)), source)
    intarsia.aot_compile(source, target)
    with torch.no_grad():
        assert_same(intarsia.load(target)(x), model(x))
    # The exported program is still in it.
    assert_same(torch.export.load(target).module()(x).detach(), model(x).detach())


def test_arguments_that_do_not_fit(artifact):
    path, _ = artifact
    loaded = intarsia.load(path)
    (x, _), kwargs = example()
    for args, words in [
        ((x.double(), 1.5), ["x", "float64", "float32"]),
        ((x[:, :3], 1.5), ["x", "3", "4"]),
        ((x[0], 1.5), ["x"]),
        ((torch.randn(65, 4), 1.5), ["65", "64"]),
        ((x, 2.5), ["scale", "2.5", "1.5"]),
    ]:
        with pytest.raises(intarsia.GuardError) as caught:
            loaded(*args, **kwargs)
        for word in words:
            assert word in str(caught.value)
    with pytest.raises(intarsia.GuardError, match="extra"):
        loaded(x, 1.5)
    with pytest.raises(intarsia.GuardError, match="structure"):
        loaded(x, 1.5, extra={"a": kwargs["extra"]["a"], "b": []})


def test_file_cut_short(artifact, tmp_path):
    path, _ = artifact
    damaged = tmp_path / "damaged.pt2"
    content = path.read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        damaged.write_bytes(content[:size])
        with pytest.raises(intarsia.LoadError, match=r"damaged\.pt2"):
            intarsia.load(damaged)
        with pytest.raises(intarsia.LoadError, match=r"damaged\.pt2"):
            intarsia.aot_compile(damaged, tmp_path / "out.pt2")
    assert not (tmp_path / "out.pt2").exists()


def test_a_module_is_exported_first(tmp_path):
    with pytest.raises(TypeError, match=r"intarsia\.export\(module, inputs\)"):
        intarsia.aot_compile(torch.nn.Linear(2, 2), tmp_path / "out.pt2")
    assert issubclass(intarsia.IndexOutOfRangeError, IndexError)


def test_file_that_was_never_compiled(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), path)
    with pytest.raises(intarsia.LoadError, match=r"intarsia-compile"):
        intarsia.load(path)


def test_no_such_file(tmp_path):
    with pytest.raises(intarsia.LoadError, match=r"missing\.pt2"):
        intarsia.load(tmp_path / "missing.pt2")


def test_operator_that_is_not_registered(tmp_path):
    library = torch.library.Library("test_gone", "DEF")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + 1, "CompositeExplicitAutograd")
    torch.library.register_fake("test_gone::plus", torch.empty_like, lib=library)

    class Plus(torch.nn.Module):
        def forward(self, x):
            return torch.ops.test_gone.plus(x)

    path = tmp_path / "m.pt2"
    program = torch.export.export(Plus(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "exported.pt2")
    intarsia.aot_compile(program, path)
    library._destroy()
    with pytest.raises(intarsia.LoadError, match="test_gone::plus"):
        intarsia.load(path)
    with pytest.raises(intarsia.IntarsiaError, match="test_gone::plus"):
        intarsia.aot_compile(tmp_path / "exported.pt2", tmp_path / "again.pt2")
    assert not (tmp_path / "again.pt2").exists()


def test_unknown_option(tmp_path):
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(intarsia.OptionError, match="did you mean 'fuse'"):
        intarsia.aot_compile(program, tmp_path / "x.pt2", fues=False)


def test_instances_and_weights(tmp_path):
    module = torch.nn.BatchNorm1d(4)
    program = torch.export.export(module, (torch.randn(3, 4),))
    path = intarsia.aot_compile(program, tmp_path / "m.pt2", cpus=["native", "x86-64-v2"])
    first = intarsia.load(path)
    x = torch.randn(5, 4)[:3]
    assert set(first.weights) == {
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
    }  # fmt: skip
    for steps in (1, 2):
        assert_same(first(x), module(x).detach())
        assert first.weights["num_batches_tracked"].item() == steps
    second = first.instance()
    assert second.weights["num_batches_tracked"].item() == 0
    assert second.weights["weight"].data_ptr() == first.weights["weight"].data_ptr()

    weight = torch.randn(4)
    third = second.instance({"weight": weight, "bias": torch.ones(8)[::2]})
    y = third(x)
    assert third.weights["weight"].data_ptr() == weight.data_ptr()
    fresh = torch.nn.BatchNorm1d(4)
    with torch.no_grad():
        fresh.weight.copy_(weight)
        fresh.bias.fill_(1)
    assert_same(y, fresh(x).detach())
    with pytest.raises(GuardError, match=r"no weight 'wieght'; it has: .*running_mean"):
        first.instance({"wieght": weight})
    with pytest.raises(GuardError, match=r"float32 \[4\] on cpu, not of float32 \[3\] on cpu"):
        first.instance({"weight": weight[:3]})
    with pytest.raises(TypeError, match="must be a Tensor, not float"):
        first.instance({"weight": 1.0})


def test_code_without_weights(tmp_path):
    module = torch.nn.Linear(300, 300)
    source = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(2, 300),)), source)
    path = intarsia.aot_compile(source, tmp_path / "code.pt2", code_only=True)
    assert os.path.getsize(path) < 100_000 < os.path.getsize(source)
    x = torch.randn(2, 300)
    assert_same(intarsia.load(path)(x), module(x).detach())
    other = torch.nn.Linear(300, 300)
    torch.export.save(torch.export.export(other, (x,)), source)
    with pytest.raises(LoadError, match="that file has changed"):
        intarsia.load(path)
    with pytest.raises(OptionError, match="needs the path of a saved program"):
        intarsia.aot_compile(torch.export.export(module, (x,)), path, code_only=True)


def test_a_structure_that_is_not_registered(tmp_path):
    script = """
import collections, sys, torch, intarsia
Pair = collections.namedtuple("Pair", "a b")
torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="demo.Pair")
class M(torch.nn.Module):
    def forward(self, x): return Pair(x + 1, x)
intarsia.aot_compile(torch.export.export(M(), (torch.ones(2),)), sys.argv[1])
"""
    path = str(tmp_path / "pair.pt2")
    subprocess.run([sys.executable, "-c", script, path], check=True)
    with pytest.raises(LoadError, match=r"pair.pt2': .*demo.Pair"):
        intarsia.load(path)


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(3, 3, bias=False)
        self.b = torch.nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_tied_weights_are_replaced_together(tmp_path):
    module, x = Tied(), torch.randn(2, 3)
    program = torch.export.export(module, (x,))
    first = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    weight = torch.randn(3, 3)
    for names in (["a.weight"], ["b.weight"], ["a.weight", "b.weight"]):
        second = first.instance(dict.fromkeys(names, weight))
        torch.testing.assert_close(second(x), x @ weight.t() @ weight.t())
        assert all(w.data_ptr() == weight.data_ptr() for w in second.weights.values())
    with pytest.raises(GuardError, match="are one tensor: replace them by one"):
        first.instance({"a.weight": weight, "b.weight": weight.clone()})


def test_names_instead_of_lists_of_names(tmp_path):
    program = torch.export.export(Tied(), (torch.randn(2, 3),))
    with pytest.raises(OptionError, match="cpus must be a list of strings, not 'native'"):
        intarsia.aot_compile(program, tmp_path / "m.pt2", cpus="native")
    with pytest.raises(OptionError, match="op_libraries must be a list"):
        intarsia.load(tmp_path / "m.pt2", op_libraries="/x.so")


def test_the_output_is_a_regular_file(tmp_path):
    program = torch.export.export(Tied(), (torch.randn(2, 3),))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe.*is no regular file"):
        intarsia.aot_compile(program, tmp_path / "pipe")
    (tmp_path / "real.pt2").write_text("old")
    os.symlink("real.pt2", tmp_path / "link.pt2")
    intarsia.aot_compile(program, tmp_path / "link.pt2")
    assert (tmp_path / "link.pt2").is_symlink()
    intarsia.load(tmp_path / "real.pt2")


class Checked(torch.nn.Module):
    def forward(self, a):
        k = a[0].item()
        torch._check(k < 10)
        torch._check(k >= 0)
        return a + k


def test_a_check_of_a_value_fails(tmp_path):
    program = torch.export.export(Checked(), (torch.tensor([3, 4]),))
    compiled = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    assert compiled(torch.tensor([9, 4])).tolist() == [18, 13]
    with pytest.raises(GuardError, match=r"is 10, but .*torch\._check.* from 0 to 9"):
        compiled(torch.tensor([10, 4]))


SEEN: list[str] = []


@torch.library.custom_op("exported::batched", mutates_args=())
def batched(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(f"batched {list(x.shape)}")
    return x * 2


batched.register_fake(torch.empty_like)
batched.register_vmap(lambda info, dims, x: (batched(x), dims[0]))


@torch.library.custom_op("exported::unused", mutates_args=())
def unused(x: torch.Tensor) -> torch.Tensor:
    SEEN.append("unused")
    return x.clone()


unused.register_fake(torch.empty_like)


class Vmapped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        unused(x)
        torch.rand(2)
        self.total.add_(x.sum(0))
        y = torch.vmap(lambda row: batched(row.sin()) + 1)(x) * 2
        return y, self.total + torch.rand(3), torch.vmap(torch.vmap(batched))(x[:, :, None])


@pytest.mark.parametrize("how", ["exported", "exported by us", "saved"])
def test_vmap_in_a_program_that_was_not_decomposed(tmp_path, how):
    exporter = intarsia.export if how == "exported by us" else torch.export.export
    shapes = ({0: torch.export.Dim.AUTO},)
    program = exporter(Vmapped(), (torch.ones(2, 3),), dynamic_shapes=shapes)
    if how == "saved":
        torch.export.save(program, tmp_path / "m.pt2")
        program = tmp_path / "m.pt2"
    loaded, eager = intarsia.load(intarsia.aot_compile(program, tmp_path / "c.pt2")), Vmapped()
    for rows in (2, 5):
        seen = []
        for function in (loaded, eager):
            SEEN.clear()
            torch.manual_seed(0)
            results = function(torch.linspace(0, 1, rows * 3).view(rows, 3))
            seen.append((results, list(SEEN), torch.rand(1)))
        assert_same(*seen)


class ByFunction(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def written(x):
    y = x.clone()
    y[1] = 7.0
    return y * 2


# What eager refuses for a size or an index that the tracer let pass: function, example,
# dynamic dimensions, arguments that eager refuses, arguments that it takes.
ROWS = torch.arange(60.0).reshape(10, 6)
REFUSED = {
    "select": (lambda x: x[1] * 2, (ROWS[:5],), True, (ROWS[4:5],), (ROWS[:2],)),
    "select from the end": (lambda x: x[-2] * 2, (ROWS[:5],), True, (ROWS[4:5],), (ROWS[:2],)),
    "select of nothing": (lambda x: x[:, 0] + x[0, 0], (ROWS[:5],), True, (ROWS[:0],), (ROWS[:1],)),
    "write": (written, (ROWS[:5],), True, (ROWS[4:5],), (ROWS[:2],)),
    "maximum": (lambda x: x.amax(0) + 1, (ROWS[:5],), True, (ROWS[:0],), (ROWS[:1],)),
    "position": (lambda x: x.argmax(0), (ROWS[:5],), True, (ROWS[:0],), (ROWS[:1],)),
    "chosen row": (
        lambda x, i: x[i.item()] * 2,
        (ROWS[:9], torch.tensor(3)),
        False,
        (ROWS[:9], torch.tensor(9)),
        (ROWS[:9], torch.tensor(-9)),
    ),
    "chosen column": (
        lambda x, i: x[:, i.item()] * 2,
        (ROWS, torch.tensor(3)),
        False,
        (ROWS, torch.tensor(1 << 40)),
        (ROWS, torch.tensor(-1)),
    ),
    "scattered row": (
        lambda x, i: torch.select_scatter(x, x[0] + 1, 0, i.item()),
        (ROWS, torch.tensor(3)),
        False,
        (ROWS, torch.tensor(-11)),
        (ROWS, torch.tensor(-10)),
    ),
    "scattered slice": (
        lambda x, i: torch.slice_scatter(x, x[:2] + 1, 0, i.item(), i.item() + 2),
        (ROWS, torch.tensor(3)),
        False,
        (ROWS, torch.tensor(9)),
        (ROWS, torch.tensor(8)),
    ),
    "memory": (
        lambda x: torch.as_strided(x, (3, 6), (6, 1)) + 1,
        (ROWS[:5].clone(),),
        True,
        (ROWS[:2].clone(),),
        (ROWS[:3].clone(),),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_eager_refuses_of_a_size(case, fuse, tmp_path):
    function, example, is_dynamic, refused, taken = REFUSED[case]
    module = ByFunction(function)
    shapes = ({0: Dim.AUTO},) if is_dynamic else None
    program = torch.export.export(module, example, dynamic_shapes=(shapes,) if shapes else None)
    compiled = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse))
    assert_same(compiled(*taken), module(*taken))
    with pytest.raises((IndexError, RuntimeError)) as eager:
        module(*refused)
    with pytest.raises((IndexError, RuntimeError)) as ours:
        compiled(*refused)
    assert isinstance(ours.value, IndexError) == isinstance(eager.value, IndexError)


def test_a_dimension_that_was_not_squeezed(tmp_path, fuse):
    """Of size 1 it would be: results with another rank are refused."""
    module = ByFunction(lambda x: x.squeeze(0) * 2)
    program = torch.export.export(module, (ROWS[:5],), dynamic_shapes=(({0: Dim("b")},),))
    compiled = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse))
    assert_same(compiled(ROWS), module(ROWS))
    with pytest.raises(GuardError, match=r"squeeze\(\): dimension 0 of size \w+ was traced as one"):
        compiled(ROWS[:1])


def conversions(x, h):
    y = torch.where(x > 0, x, 1.0).bfloat16()
    return y, y * 2, x.half(), h.float() + 1, torch.nn.functional.layer_norm(x, [40], x[0], x[1])


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_low_precision_on_other_processors(tmp_path, cpu):
    """Denormals too, which instructions for bfloat16 take for zero."""
    torch.manual_seed(0)
    x = torch.randn(5, 40) * 10.0 ** torch.randint(-45, 5, (5, 40))
    args = (x, torch.randn(70).half())
    module = ByFunction(conversions)
    path = intarsia.aot_compile(torch.export.export(module, args), tmp_path / "m.pt2", cpus=[cpu])
    assert_same(intarsia.load(path)(*args)[:4], module(*args)[:4], exact=True)


def test_a_processor_that_is_too_old(tmp_path):
    program = torch.export.export(ByFunction(torch.exp), (torch.ones(3),))
    with pytest.raises(intarsia.CompileError, match=r"need SSE4\.1, .* level is x86-64-v2"):
        intarsia.aot_compile(program, tmp_path / "m.pt2", cpus=["x86-64"])


@pytest.mark.parametrize("decompose", [False, True])
def test_slices_by_a_number_of_the_data(tmp_path, decompose, fuse):
    """Their sizes and offsets are known when they have run; slices clamp, as eager's."""

    class Slices(torch.nn.Module):
        def forward(self, x, i):
            k = i.item()
            written = x * 3
            written[k : k + 2] = 7.0
            made = x.exp() + 1
            return (
                x[k : k + 1] * 2,
                x[k:] * 2,
                x[-k:] - 1,
                x[k::2] + 0,
                torch.cat([x[:k], x[k + 1 :]]),
                made[k:].tanh() + 1,
                written,
            )

    module, x = Slices(), torch.randn(9, 70)
    program = torch.export.export(module, (x, torch.tensor(3)))
    if decompose:
        program = program.run_decompositions()
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2", fuse=fuse))
    for k in (0, 1, 3, 8, 9, 10, 40, -1, -2, -9, -10):
        assert_same(loaded(x, torch.tensor(k)), module(x, torch.tensor(k)))


def test_narrow_by_a_number_of_the_data(tmp_path):
    class Narrow(torch.nn.Module):
        def forward(self, x, i):
            return x.narrow(0, i.item(), 2) + 1

    module, x = Narrow(), torch.randn(9, 70)
    program = torch.export.export(module, (x, torch.tensor(3)))
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    for k in (0, 7, -2, -9):
        assert_same(loaded(x, torch.tensor(k)), module(x, torch.tensor(k)))
    for k in (8, 9, -1, -10):
        with pytest.raises(GuardError, match=f"{k}"):
            loaded(x, torch.tensor(k))


def test_guards_of_a_strict_export(tmp_path):
    """They name inputs by their place among all, None and constants included."""

    class Prefix(torch.nn.Module):
        def forward(self, pair, x, nothing, number, y, *, k):
            n = y.shape[0]
            return x[:n] * number + y + k[:n] + pair["a"]

    module, auto = Prefix(), Dim.AUTO

    def inputs(n, x, k):
        pair = {"b": torch.ones(1), "a": torch.ones(3)}
        return (pair, torch.randn(x, 3), None, 3, torch.randn(n, 3)), {"k": torch.randn(k, 3)}

    args, kwargs = inputs(4, 9, 7)
    shapes = ({"b": None, "a": None}, {0: auto}, None, None, {0: auto}, {0: auto})
    program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=True)
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    for n, x, k in ((5, 5, 5), (2, 10, 3)):
        args, kwargs = inputs(n, x, k)
        assert_same(loaded(*args, **kwargs), module(*args, **kwargs))
    for n, x, k in ((5, 3, 9), (5, 9, 3)):
        args, kwargs = inputs(n, x, k)
        with pytest.raises(GuardError, match="flat_args"):
            loaded(*args, **kwargs)


@pytest.mark.parametrize(
    ("strict", "function"),
    [
        (False, torch.nn.functional.linear),
        (True, torch.nn.functional.linear),
        (True, lambda x, w: x.bfloat16().prod(0)),
    ],
    ids=["linear", "linear_strict", "prod_strict"],
)
def test_autocast_of_a_strict_export(tmp_path, strict, function):
    """PyTorch records the dtypes there as if there were no autocast: never those."""

    class Cast(torch.nn.Module):
        def forward(self, x, w):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = function(x, w)
            return y * 2

    module, args = Cast(), (torch.randn(3, 4), torch.randn(4, 4))
    program = torch.export.export(module, args, strict=strict)
    path = tmp_path / "m.pt2"
    if strict:
        with pytest.raises((CompileError, ContractError), match=r"Export with strict=False"):
            intarsia.load(intarsia.aot_compile(program, path))(*args)
    else:
        assert_same(intarsia.load(intarsia.aot_compile(program, path))(*args), module(*args))


def test_keys_in_another_order(tmp_path):
    """As the exported module takes them; what differs in more is refused."""

    class Keys(torch.nn.Module):
        def forward(self, d, pair):
            return d["b"] - d["a"], pair[0]["y"] / pair[0]["x"], d

    module = Keys()
    one, two = torch.randn(70), torch.rand(70) + 1
    d, pair = {"b": one, "a": two}, [{"x": two, "y": one}]
    program = torch.export.export(module, (d, pair))
    loaded = intarsia.load(intarsia.aot_compile(program, tmp_path / "m.pt2"))
    turned = {"a": two, "b": one}, [{"y": one, "x": two}]
    assert_same(loaded(*turned), program.module()(*turned))
    for wrong in ({"a": two}, {"a": two, "c": one}, {"a": two, "b": [one]}):
        with pytest.raises(GuardError, match="structure"):
            loaded(wrong, pair)


def test_the_name_of_a_file_is_not_in_it(tmp_path):
    program = torch.export.export(torch.nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
    source = tmp_path / "m.pt2"
    torch.export.save(program, source)
    one = intarsia.aot_compile(source, tmp_path / "one.pt2", cpus=["x86-64-v3"])
    two = intarsia.aot_compile(source, tmp_path / "..two", cpus=["x86-64-v3"])
    with open(one, "rb") as first, open(two, "rb") as second:
        assert first.read() == second.read()
    torch.export.load(one)
