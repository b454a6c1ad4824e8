"""aot_compile's freeze= and dtype=, and what a file refuses when it is loaded or called."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import zipfile
import zlib

import operators as ops
import pytest
import torch
from conftest import assert_same
from torch import nn

import intarsia
from intarsia.errors import CompileError, GuardError, LoadError, OptionError


def compile_to(path, module, args, **options):
    with torch.no_grad():
        program = torch.export.export(module, args)
    return intarsia.load(intarsia.aot_compile(program, path, **options))


# --- freeze ------------------------------------------------------------------------


class Frozen(nn.Module):
    """A normalised weight, a table, a custom operator of a weight, a written buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.alias = self.weight
        self.scale = nn.Parameter(torch.rand(4, 1))
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x):
        self.steps += 1
        w = self.scale * self.weight / self.weight.norm(dim=1, keepdim=True)
        table = torch.outer(torch.arange(4.0), self.scale.flatten().exp()).sin()
        mine = ops.scaled_tanh(self.alias.exp(), 2.0)
        return nn.functional.linear(x, w) + table[2], mine.sum(0), w * 2, self.steps.exp()


def test_what_depends_on_weights_is_computed_once(tmp_path):
    torch.manual_seed(0)
    module, x = Frozen(), torch.randn(3, 6)
    plain = compile_to(tmp_path / "plain.pt2", module, (x,))
    frozen = compile_to(tmp_path / "frozen.pt2", module, (x,), freeze=True)
    with torch.no_grad():
        for _ in range(2):
            want = module(x)
            assert_same(plain(x), want)
            assert_same(frozen(x), want)
    assert "norm" in plain.plan_text
    assert "norm" not in frozen.plan_text
    assert "test::scaled_tanh" in frozen.plan_text  # a custom operator is always called
    assert set(frozen.weights) == set(plain.weights) == set(dict(module.state_dict()))
    with pytest.raises(GuardError, match="no weight 'frozen:0'"):
        frozen.instance({"frozen:0": x})


def test_replaced_weights_are_frozen_again(tmp_path):
    torch.manual_seed(0)
    module, x = Frozen(), torch.randn(3, 6)
    frozen = compile_to(tmp_path / "m.pt2", module, (x,), freeze=True)
    before = frozen(x)
    weight = torch.randn(6, 4).t()
    other = frozen.instance({"alias": weight})  # a tied name, other strides
    with torch.no_grad():
        module.weight.copy_(weight)
        module.steps.zero_()
        want = module(x)
    assert_same(other(x), want)
    assert not torch.equal(before[0], want[0])
    assert_same(frozen(x)[:3], before[:3])


class Packed(nn.Module):
    """Weights as they are, transposed, tied, made of others, and one that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 160), nn.Linear(160, 128, bias=False)
        self.matrix = nn.Parameter(torch.randn(128, 160))
        self.register_buffer("written", torch.randn(160, 128))

    def forward(self, x):
        self.written.mul_(0.5)
        y = self.first(x).relu()
        y = self.second(y) + y @ self.written
        y = y.flatten(0, 1) @ self.matrix + nn.functional.linear(x, self.first.weight).flatten(0, 1)
        return y @ self.matrix.t(), y @ nn.functional.normalize(self.second.weight).t()


@pytest.mark.parametrize("decomposed", [True, False])
def test_products_take_packed_weights(tmp_path, decomposed):
    torch.manual_seed(0)
    module, x = Packed(), torch.randn(4, 16, 128)
    source = torch.export.export(module, (x,))
    if decomposed:
        source = source.run_decompositions()
    packed = intarsia.load(intarsia.aot_compile(source, tmp_path / "m.pt2", freeze=True))
    assert packed.plan_text.count("mkldnn::_linear_pointwise") == 6  # not with `written`
    assert "packed:0" not in packed.weights
    with pytest.raises(GuardError, match="no weight 'packed:0'"):
        packed.instance({"packed:0": x})
    weight = torch.randn(128, 160)
    other = packed.instance({"matrix": weight})
    changed = copy.deepcopy(module)
    with torch.no_grad():
        changed.matrix.copy_(weight)
        for _ in range(2):
            torch.testing.assert_close(packed(x), module(x), rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(other(x), changed(x), rtol=1e-3, atol=1e-3)


def test_a_frozen_file_beside_its_weights(tmp_path):
    module, x = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), torch.randn(3, 6)
    with torch.no_grad():
        program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    path = intarsia.aot_compile(
        tmp_path / "m.pt2", tmp_path / "code.pt2", code_only=True, freeze=True
    )
    loaded = intarsia.load(path)
    assert_same(loaded(x), module(x).detach())
    assert loaded.plan_text.count("call ") == 1
    with pytest.raises(CompileError, match="nothing is frozen"):
        intarsia.aot_compile(tmp_path / "m.pt2", tmp_path / "x.pt2", freeze=True, fuse=False)


# --- dtype -------------------------------------------------------------------------


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.other = self.fc.weight
        self.register_buffer("index", torch.tensor([2, 0]))

    def forward(self, x, mask):
        y = self.fc(x).masked_fill(mask, torch.finfo(x.dtype).min)
        y = y.softmax(-1) + torch.zeros(4) + x.new_ones(4) + torch.arange(4).to(x.dtype)
        return ops.scaled_tanh(y, 2.0) @ self.other, y[:, self.index], mask.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("decomposed", [False, True])
def test_dtype(tmp_path, dtype, decomposed):
    torch.manual_seed(0)
    module = Mixed().eval()
    x, mask = torch.randn(3, 6), torch.tensor([True, False, False, False])
    batch = torch.export.Dim("batch", max=8)
    with torch.no_grad():
        program = torch.export.export(module, (x, mask), dynamic_shapes=({0: batch}, None))
    if decomposed:
        program = program.run_decompositions({})
    path = intarsia.aot_compile(program, tmp_path / "m.pt2", dtype=dtype)
    loaded = intarsia.load(path)
    inside = torch.export.load(path).module()  # the converted program
    weights = loaded.weights
    assert weights["fc.weight"].dtype == dtype and weights["index"].dtype == torch.int64
    assert weights["other"].data_ptr() == weights["fc.weight"].data_ptr()
    for rows in (3, 5):
        x = torch.randn(rows, 6, dtype=dtype)
        with torch.no_grad():
            got, want = loaded(x, mask), inside(x, mask)
        assert_same(got, want)
        assert [t.dtype for t in got] == [dtype, dtype, torch.bool]
    with pytest.raises(GuardError, match="float32"):
        loaded(x.float(), mask)
    assert program.state_dict["fc.weight"].dtype == torch.float32  # the caller's is untouched


class Decomposes(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)


class Branches(nn.Module):
    def forward(self, p, x):
        return torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,))


def test_dtypes_that_are_refused(tmp_path):
    x = torch.eye(3)
    with torch.no_grad():
        program = torch.export.export(Decomposes(), (x,))
        branches = torch.export.export(Branches(), (torch.tensor(True), x))
    with pytest.raises(
        CompileError, match=r"(?s)linalg_inv.*not defined for .*bfloat16.*linalg.inv"
    ):
        intarsia.aot_compile(program, tmp_path / "m.pt2", dtype="bfloat16")
    with pytest.raises(CompileError, match="control flow"):
        intarsia.aot_compile(branches, tmp_path / "m.pt2", dtype="bfloat16")
    with pytest.raises(OptionError, match=r"dtype must be one of float32, .*'int8'"):
        intarsia.aot_compile(program, tmp_path / "m.pt2", dtype="int8")
    with pytest.raises(OptionError, match="keeps the weights as they are"):
        intarsia.aot_compile("m.pt2", tmp_path / "m.pt2", dtype="bfloat16", code_only=True)
    assert not list(tmp_path.iterdir())


# --- What a file refuses -----------------------------------------------------------


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    path = tmp_path_factory.mktemp("linear") / "m.pt2"
    with torch.no_grad():
        program = torch.export.export(nn.Linear(3, 3), (torch.ones(2, 3),))
    return intarsia.aot_compile(program, path)


@pytest.mark.parametrize(
    "value", [torch.ones(2, 3).to_sparse(), torch.ones(2, 3).to_sparse_csr(), "nested"]
)
def test_inputs_without_strides(linear, value):
    if isinstance(value, str):
        value = torch.nested.nested_tensor([torch.ones(3), torch.ones(3)])
    with pytest.raises(GuardError, match=r'input "input".*(sparse|nested)'):
        intarsia.load(linear)(value)


def test_structures_are_readable(linear):
    with pytest.raises(GuardError) as caught:
        intarsia.load(linear)({"a": [torch.ones(2, 3)]})
    assert "it takes ((*,), {}), it was given (({'a': [*]},), {})" in str(caught.value)
    with pytest.raises(GuardError, match="it takes 1 positional argument, 2 were given"):
        intarsia.load(linear)(torch.ones(2, 3), torch.ones(2, 3))


def edited(path, target, edit, name="metadata.json"):
    """The archive with one record changed, and with the checksums that fit."""
    with zipfile.ZipFile(path) as old:
        records = {info.filename: old.read(info) for info in old.infolist()}
    changed = next(record for record in records if record.endswith(name))
    records[changed] = json.dumps(edit(json.loads(records[changed]))).encode()
    code = [name for name in records if "/data/intarsia/" in name and "metadata" not in name]
    lines = "".join(
        f"{name.split('/', 1)[1]} {len(records[name])} {zlib.crc32(records[name])}\n"
        for name in code
    )
    metadata = next(record for record in records if record.endswith("metadata.json"))
    digest = f"{sum(len(records[name]) for name in code)}-{zlib.crc32(lines.encode())}"
    records[metadata] = json.dumps({**json.loads(records[metadata]), "codeDigest": digest}).encode()
    with zipfile.ZipFile(target, "w") as new:
        for record, data in records.items():
            new.writestr(record, data)
    return target


def test_versions_of_pytorch(linear, tmp_path):
    def newer(metadata):
        assert torch.__version__.startswith(metadata["torchMin"] + ".")
        return {**metadata, "torchMin": "99.1", "torchEnd": "99.2"}

    path = edited(linear, tmp_path / "newer.pt2", newer)
    with pytest.raises(LoadError, match=r"newer.pt2' runs with PyTorch from 99.1 up to, but"):
        intarsia.load(path)


@pytest.mark.parametrize(
    "change", [{"torchMin": "abc"}, {"torchEnd": "2..1"}, {"torchEnd": ""}], ids=str
)
def test_versions_that_are_none(linear, tmp_path, change):
    path = edited(linear, tmp_path / "v.pt2", lambda metadata: {**metadata, **change})
    with pytest.raises(LoadError, match=r"v\.pt2'.*(is no version|only one is there)"):
        intarsia.load(path)


def test_devices_that_are_none(linear, tmp_path):
    path = edited(
        linear,
        tmp_path / "d.pt2",
        lambda plan: json.loads(json.dumps(plan).replace('"cpu"', '"toaster:x"')),
        "plan.json",
    )
    with pytest.raises(LoadError, match=r"d\.pt2'.*toaster:x"):
        intarsia.load(path)


def test_text_that_is_compressed_away(linear, tmp_path):
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(linear) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("metadata.json"):
                data = b" " * (20 << 20) + data
            new.writestr(info.filename, data, zipfile.ZIP_DEFLATED)
    with pytest.raises(LoadError, match=r"metadata\.json.*are compressed to"):
        intarsia.load(path)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadError, match="is not a regular file"):
        intarsia.load(tmp_path / "pipe")
    with pytest.raises(LoadError, match="is not a regular file"):
        intarsia.aot_compile(tmp_path / "pipe", tmp_path / "out.pt2")


#: Files of another kind, what they are said to be when they are compiled and when loaded.
OTHERS = {
    "weights": "torch.save: weights or an object, no program. Export the module",
    "script": "TorchScript",
    "pickle": "is no archive, but a pickle",
    "safetensors": "is no archive, but a safetensors file: weights without a program",
    "array": "is no archive, but a .npy file",
    "text": "is no archive; torch.export.save and intarsia-compile write archives",
    "nothing": "is empty",
    "half": "is cut short",
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_another_kind(tmp_path, kind):
    linear, path = nn.Linear(2, 2), tmp_path / "other"
    state = linear.state_dict()
    if kind == "safetensors":
        header = b'{"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    elif kind == "script":
        torch.jit.save(torch.jit.script(linear), path)
    elif kind == "array":
        path.write_bytes(b"\x93NUMPY\1\0" + b" " * 120)
    elif kind in ("text", "nothing"):
        path.write_text("no model" * 40 if kind == "text" else "")
    else:
        torch.save(state, path, _use_new_zipfile_serialization=kind != "pickle")
        if kind == "half":
            path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(LoadError) as compiling:
        intarsia.aot_compile(path, tmp_path / "out.pt2")
    with pytest.raises(LoadError) as loading:
        intarsia.load(path)
    for error in (compiling, loading):
        assert OTHERS[kind].partition(". Export")[0] in str(error.value)
        assert ("Export the module" in str(error.value)) == (kind in ("weights", "script"))


def test_code_without_its_program(tmp_path):
    source, code = tmp_path / "m.pt2", tmp_path / "code.pt2"
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), source)
    intarsia.aot_compile(source, code, code_only=True)
    with pytest.raises(LoadError, match="leaves the program in another one"):
        intarsia.aot_compile(code, tmp_path / "out.pt2")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"archs": ["sm_90"]}, "archs needs target"),
        ({"cpu": "x86-64-v4", "cpus": ["x86-64-v3"]}, "cpus and cpu both name processors"),
        ({"cudagraphs": True}, "cudagraphs is for torch.compile"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_would_be_ignored(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        intarsia.aot_compile(tmp_path / "m.pt2", tmp_path / "out.pt2", **options)


# --- Instances of instances --------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
def test_an_instance_of_an_instance(tmp_path, freeze):
    """It has the weights of the one that it is made of, but the file's buffers."""

    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.ones(70))
            self.tied = self.a
            self.b = nn.Parameter(torch.ones(70))
            self.register_buffer("n", torch.zeros(70))

        def forward(self, x):
            self.n += 1
            return self.a.exp() * x, self.b.exp() * x, self.n + 0

    x = torch.rand(70)
    loaded = compile_to(tmp_path / "m.pt2", Weights(), (x,), freeze=freeze)

    def is_like(program, a, b, n):
        want = torch.full((70,), a).exp() * x, torch.full((70,), b).exp() * x, torch.full((70,), n)
        assert_same(program(x), want)

    one = loaded.instance({"a": torch.full((70,), 5.0), "n": torch.full((70,), 10.0)})
    two = one.instance({"b": torch.full((70,), 7.0)})
    three = two.instance({"tied": torch.full((70,), 2.0)})
    is_like(one, 5.0, 1.0, 11.0)
    is_like(two, 5.0, 7.0, 1.0)
    is_like(three, 2.0, 7.0, 1.0)
    is_like(two.instance(), 5.0, 7.0, 1.0)
    is_like(loaded, 1.0, 1.0, 1.0)
    with pytest.raises(GuardError, match="weight 'b' is a strided tensor"):
        two.instance({"b": torch.ones(70).to_sparse()})


@pytest.mark.parametrize("text", ["[99, {}]", "[1, {}]", "no JSON"])
def test_damaged_structures(linear, tmp_path, text):
    path = edited(linear, tmp_path / "d.pt2", lambda plan: {**plan, "inSpec": text}, "plan.json")
    with pytest.raises(LoadError, match=r"d\.pt2': the structure of its inputs or outputs is"):
        intarsia.load(path)


def test_plans_that_do_not_verify(linear, tmp_path):
    def reads_nothing(plan):
        plan["functions"][0]["steps"][0]["args"][0]["slot"] = 99
        return plan

    path = edited(linear, tmp_path / "v.pt2", reads_nothing, "plan.json")
    with pytest.raises(LoadError, match=r"v\.pt2'.*malformed plan"):
        intarsia.load(path)


def test_processors_are_listed(linear, tmp_path):
    def alien(metadata):
        (target,) = metadata["targets"]
        return {
            **metadata,
            "targets": [
                {**target, "cpu": name, "features": [feature]}
                for name, feature in (("big", "avx9000"), ("small", "quantum1"))
            ],
        }

    path = edited(linear, tmp_path / "alien.pt2", alien)
    with pytest.raises(LoadError, match=r"(?s)big needs avx9000\n  small needs quantum1"):
        intarsia.load(path)


def test_a_schema_that_has_changed(tmp_path):
    script = """
import sys, torch, intarsia
torch.library.define("changed::op", sys.argv[2])
@torch.library.impl("changed::op", "CompositeExplicitAutograd")
def op(x, n=1): return x + n
torch.library.register_fake("changed::op", lambda x, n=1: torch.empty_like(x))
class M(torch.nn.Module):
    def forward(self, x): return torch.ops.changed.op(x)
if sys.argv[3] == "write":
    intarsia.aot_compile(torch.export.export(M(), (torch.ones(2),)), sys.argv[1])
else:
    intarsia.load(sys.argv[1])
"""
    command = [sys.executable, "-c", script, str(tmp_path / "m.pt2")]
    subprocess.run([*command, "(Tensor x) -> Tensor", "write"], check=True)
    done = subprocess.run(
        [*command, "(Tensor x, int n) -> Tensor", "read"], capture_output=True, text=True
    )
    assert "LoadError" in done.stderr
    for schema in ("changed::op(Tensor x) -> Tensor", "changed::op(Tensor x, int n) -> Tensor"):
        assert schema in done.stderr


def test_an_operator_of_python_is_named_as_such(tmp_path):
    path = compile_python_operator(tmp_path)
    script = "import sys, intarsia; intarsia.load(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert "test_gone2::plus   compiled for: test_gone2::plus(Tensor x) -> Tensor" in done.stderr
    assert "registered from Python" in done.stderr
    assert "import the module that registers it and call intarsia.load" in done.stderr
    assert "--op-library" not in done.stderr


def compile_python_operator(folder) -> str:
    @torch.library.custom_op("test_gone2::plus", mutates_args=())
    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    plus.register_fake(torch.empty_like)

    class Plus(nn.Module):
        def forward(self, x):
            return plus(x)

    path = folder / "plus.pt2"
    return intarsia.aot_compile(torch.export.export(Plus(), (torch.ones(2),)), path)


def test_names_that_are_not_utf8(linear, tmp_path):
    content = open(linear, "rb").read()
    name = b"data/intarsia/cpu/plan.json"
    assert content.count(name) == 2
    damaged = tmp_path / "names.pt2"
    damaged.write_bytes(content.replace(name, name.replace(b"plan", b"\xff\xfe\xfd\xfc")))
    with pytest.raises(LoadError, match=r"names\.pt2' was changed after it was compiled"):
        intarsia.load(damaged)
    again = content.replace(b"data/intarsia", b"data/\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8")
    damaged.write_bytes(again.replace(b"models/model.json", b"models/\xff/../.json"))
    with pytest.raises(LoadError, match=r"names\.pt2"):
        intarsia.aot_compile(damaged, tmp_path / "out.pt2")
    assert not (tmp_path / "out.pt2").exists()


def test_damaged_weights_are_found_when_that_is_asked_for(tmp_path):
    path = tmp_path / "damaged.pt2"
    module = nn.Linear(64, 64)
    compile_to(path, module, (torch.randn(2, 64),))
    content = bytearray(path.read_bytes())
    weight = module.weight.detach().numpy().tobytes()
    content[content.index(weight) + 7] ^= 1
    path.write_bytes(content)
    intarsia.load(path)
    with pytest.raises(LoadError, match=r"damaged\.pt2.*data/weights"):
        intarsia.load(path, verify=True)
