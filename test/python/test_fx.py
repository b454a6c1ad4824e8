"""Reader B alone: what becomes of an AOTAutograd graph as data."""

from __future__ import annotations

import json
from typing import Any

import operators as ops
import torch
from torch._dynamo.backends.common import aot_autograd

from intarsia import _fx
from intarsia.backend import readable_source


def read(function: Any, *inputs: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    """The first graph that AOTAutograd makes of a function: (program, objects)."""
    found: list[_fx.ReadGraph] = []

    def compiler(gm: torch.fx.GraphModule, _: Any) -> Any:
        found.append(_fx.read_graph(gm))
        return gm.forward

    backend = aot_autograd(fw_compiler=compiler)
    torch.compile(function, backend=backend, fullgraph=True, **kwargs)(*inputs)
    return json.loads(found[0].json), found[0].objects


def node(program: Any, target: str) -> Any:
    (result,) = [n for n in program["graph"]["nodes"] if n["target"] == target]
    return result


def test_names_values_and_sources():
    program, _ = read(lambda x: ops.scaled_tanh(x * 2, 1.5), torch.randn(2, 3))
    graph = program["graph"]
    call = node(program, "test::scaled_tanh")
    assert call["args"] == [
        ["", {"kind": "value", "value": "mul"}],
        ["", {"kind": "float", "value": 1.5}],
    ]
    assert call["outputs"] == [{"kind": "value", "name": call["name"]}]
    meta = graph["values"][call["name"]]["tensor"]
    assert (meta["dtype"], meta["sizes"], meta["strides"]) == ("f32", [2, 3], [3, 1])
    assert call["stack"][-1]["file"] == __file__
    assert "scaled_tanh" in call["stack"][-1]["code"]
    assert call["eagerStrides"] == [[3, 1]]
    assert "eagerStrides" not in node(program, "aten::mul.Tensor")
    assert graph["outputs"] == [{"kind": "value", "value": call["name"]}]


def test_symbols_and_ranges():
    program, _ = read(lambda x: x.view(-1) + x.shape[0], torch.randn(4, 3), dynamic=True)
    sizes = [v["tensor"]["sizes"] for v in program["graph"]["values"].values() if "tensor" in v]
    assert any(isinstance(s, str) and s.startswith("Symbol('s") for s in sizes[0])
    assert any(isinstance(s, str) and s.startswith("Mul(") for size in sizes for s in size)
    assert {"symbol", "min"} <= set(program["ranges"][0])


def test_several_results():
    program, _ = read(lambda x: torch.topk(x, 2).values, torch.randn(5))
    outputs = node(program, "aten::topk")["outputs"]
    assert [o["kind"] for o in outputs] == ["value", "value"]
    assert program["graph"]["outputs"][0]["value"] == outputs[0]["name"]
    # The unused result is still described, so that it can be checked.
    assert program["graph"]["values"][outputs[1]["name"]]["tensor"]["dtype"] == "i64"
    assert not any(n["target"].startswith("_operator") for n in program["graph"]["nodes"])


def test_list_and_missing_results():
    program, _ = read(lambda x: ops.split3(x, [x])[1], torch.randn(3))
    (output,) = node(program, "test::split3")["outputs"]
    assert output["kind"] == "list" and len(output["list"]) == 2
    program, _ = read(lambda x: torch.ops.test.maybe(x, False)[0], torch.randn(3))
    outputs = node(program, "test::maybe")["outputs"]
    assert [o["kind"] for o in outputs] == ["value", "none"]


def test_constants_are_weights():
    program, objects = read(lambda x: x + torch.tensor([1.0, 2.0]), torch.randn(2))
    (weight,) = program["weights"]
    assert torch.equal(objects[weight["object"]], torch.tensor([1.0, 2.0]))
    assert program["inputs"][-1]["kind"] == "constant"
    assert program["graph"]["inputs"][-1] == program["inputs"][-1]["name"]


def test_floats_that_json_cannot_hold():
    program, _ = read(lambda x: ops.scaled_tanh(x, float("-inf")), torch.randn(2))
    assert node(program, "test::scaled_tanh")["args"][1][1]["value"] == "-inf"


def test_unbacked_symbols():
    program, _ = read(lambda x: ops.nonzero_rows(x) + 1, torch.randn(4, 2))
    ((symbol, output, path),) = node(program, "test::nonzero_rows")["unbackedBindings"]
    assert symbol.startswith("u") and output == 0 and path == "size:0"
    program, _ = read(lambda x: ops.count_positive(x)[0], torch.randn(4))
    ((_, output, path),) = node(program, "test::count_positive")["unbackedBindings"]
    assert output == 1 and path == "value"


def test_subgraphs():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    program, _ = read(f, torch.randn(3))
    call = node(program, "higher_order::cond")
    names = [a["value"] for _, a in call["args"] if a["kind"] == "graph"]
    assert len(names) == 2 and set(names) <= set(program["graphs"])


def test_unknown_higher_order_operator_is_a_callable():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 16, 8)
    program, objects = read(lambda q: flex_attention(q, q, q), q)
    (call,) = [n for n in program["graph"]["nodes"] if n["target"].startswith("higher_order::")]
    name, argument = call["args"][0]
    assert name == "callable"
    assert objects[argument["value"]].__name__ == "flex_attention"
    # The tensors that it takes are values of the graph; its subgraphs are its own.
    assert {a["kind"] for _, a in call["args"][1:]} == {"value"}
    assert len(call["outputs"]) == 3
    assert not program["graphs"]


def test_paths():
    from torch.fx.experimental.symbolic_shapes import CallMethodKey, ConvertIntKey, DivideByKey
    from torch.utils._pytree import SequenceKey

    size = [CallMethodKey("size"), SequenceKey(1)]
    assert _fx._binding_path([]) == "value"
    assert _fx._binding_path(size) == "size:1"
    assert _fx._binding_path([SequenceKey(2), *size]) == "item:2:size:1"
    assert _fx._binding_path([CallMethodKey("storage_offset")]) == "offset"
    assert _fx._binding_path([ConvertIntKey()]) == "value:bool"
    assert _fx._binding_path([*size, DivideByKey(4)]) == "size:1/4"


def test_readable_names():
    source = "L['self']._modules['fc']._parameters['weight']"
    assert readable_source(source) == "self.fc.weight"
    assert readable_source("L['x']") == "x"
    assert _fx.readable_module_path("L['self']._modules['layers']._modules['0'].attn") == (
        "layers.0.attn"
    )


def test_ten_thousand_nodes():
    """The reader does not recurse, and its work does not grow with the square."""

    def chain(n):
        gm = torch.fx.symbolic_trace(lambda x: x)
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(3, device="meta")
        for _ in range(n):
            y = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2.0))
            y.meta["val"] = x.meta["val"]
            x = y
        graph.output((x,))
        return torch.fx.GraphModule(gm, graph)

    small, large = (
        len(json.loads(_fx.read_graph(chain(n)).json)["graph"]["nodes"]) for n in (10, 10000)
    )
    assert (small, large) == (10, 10000)
