# ===- test_programs.py - Programs that people write, eager and compiled -----===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Training with public libraries: losses, gradients and buffers are those of eager.

Nothing is downloaded: the weights are random, the models small. Run with
``./dev conformance programs``; a test is skipped only where its library is missing.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import intarsia

SGD = functools.partial(torch.optim.SGD, lr=1e-2)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.set_num_threads(1)
    torch.manual_seed(5)


@dataclasses.dataclass
class Trained:
    losses: list[float]
    gradients: dict[str, torch.Tensor | None]  # of the first step
    buffers: dict[str, torch.Tensor]


def train(
    model: nn.Module,
    forward: Callable[..., Any],
    batches: Sequence[Any],
    loss_of: Callable[[Callable[..., Any], Any], torch.Tensor],
    optimiser: torch.optim.Optimizer,
    steps: int,
) -> Trained:
    torch.manual_seed(1)
    losses: list[float] = []
    gradients: dict[str, torch.Tensor | None] = {}
    for step in range(steps):
        optimiser.zero_grad()
        loss = loss_of(forward, batches[step % len(batches)])
        loss.backward()
        if step == 0:
            for name, parameter in model.named_parameters():
                gradients[name] = None if parameter.grad is None else parameter.grad.clone()
        optimiser.step()
        losses.append(loss.item())
    return Trained(losses, gradients, dict(model.named_buffers()))


def check_training(
    model: nn.Module,
    batches: Sequence[Any],
    loss_of: Callable[[Callable[..., Any], Any], torch.Tensor],
    *,
    steps: int,
    tolerance: float,
    optimiser: Callable[..., torch.optim.Optimizer] = SGD,
    **compile_with: Any,
) -> list[intarsia.Compilation]:
    """Trains `model` and a copy of it compiled; returns what was compiled."""
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="intarsia", **compile_with)
    want = train(model, model, batches, loss_of, optimiser(model.parameters()), steps)
    with intarsia.record_compilations() as compilations:
        got = train(twin, compiled, batches, loss_of, optimiser(twin.parameters()), steps)
    torch.testing.assert_close(got.losses, want.losses, rtol=tolerance, atol=tolerance)
    assert got.losses[0] != got.losses[-1]
    largest = max(g.abs().max().item() for g in want.gradients.values() if g is not None)
    for gotten, wanted, scale in (
        (got.gradients, want.gradients, largest),
        (got.buffers, want.buffers, 1.0),
    ):
        assert gotten.keys() == wanted.keys()
        for name, value in wanted.items():
            # What is 0 but for rounding is compared with the size of the others.
            torch.testing.assert_close(
                gotten[name],
                value,
                rtol=tolerance,
                atol=tolerance * scale,
                msg=lambda text, name=name: f"{name}: {text}",
            )
    assert compilations
    return compilations


def graphs(compilations: Sequence[intarsia.Compilation], kind: str) -> int:
    return sum(c.kind == kind for c in compilations)


# --- transformers ---------------------------------------------------------------------


def tokens(length: int = 16, **others: torch.Tensor) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 128, (2, length))
    return {"input_ids": ids, "labels": ids, **others}


def language_model(name: str) -> tuple[nn.Module, list[Any]]:
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "max_position_embeddings": 64, "intermediate_size": 96}
    grouped = {"num_key_value_heads": 2}
    if name == "T5":
        config = transformers.T5Config(
            vocab_size=128,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
        return transformers.T5ForConditionalGeneration(config), [tokens() for _ in range(3)]
    if name == "Bert":
        config = transformers.BertConfig(**common, **heads, num_labels=3)
        labels = {"labels": torch.randint(0, 3, (2,)), "attention_mask": torch.ones(2, 16).long()}
        batches = [tokens() | labels for _ in range(3)]
        return transformers.BertForSequenceClassification(config), batches
    if name == "ViT":
        config = transformers.ViTConfig(
            **(common | heads), image_size=32, patch_size=8, num_labels=3
        )
        batches = [
            {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 3, (2,))}
            for _ in range(3)
        ]
        return transformers.ViTForImageClassification(config), batches
    options = common if name == "Mamba" else common | heads | grouped
    if name == "Mixtral":
        options = options | {"num_local_experts": 4}
    config = getattr(transformers, f"{name}Config")(**options)
    return getattr(transformers, f"{name}ForCausalLM")(config), [tokens() for _ in range(3)]


@pytest.mark.parametrize("name", ["Llama", "Mixtral", "Mamba", "T5", "Bert", "ViT"])
def test_transformers(name: str) -> None:
    """Twenty steps, dropout included: the random numbers are eager's."""
    model, batches = language_model(name)
    compilations = check_training(
        model,
        batches,
        lambda forward, batch: forward(**batch).loss,
        steps=20,
        tolerance=1e-4,
        optimiser=functools.partial(torch.optim.AdamW, lr=1e-3),
        fullgraph=True,
    )
    assert graphs(compilations, "forward") <= 2


# --- timm -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, options",
    [
        ("resnet18", {}),
        ("mobilenetv3_small_050", {}),
        ("swin_tiny_patch4_window7_224", {"window_size": 4, "depths": (1, 1, 1, 1)}),
        ("vit_tiny_patch16_224", {"depth": 2}),
    ],
)
def test_timm(name: str, options: dict[str, Any]) -> None:
    """In float64, so that a difference is one of meaning."""
    timm = pytest.importorskip("timm")
    if "vit" in name or "swin" in name:
        options = {**options, "img_size": 64}
    model = timm.create_model(name, num_classes=5, **options).double()
    batches = [
        (torch.randn(4, 3, 64, 64, dtype=torch.float64), torch.randint(0, 5, (4,)))
        for _ in range(2)
    ]
    compilations = check_training(
        model,
        batches,
        lambda forward, batch: F.cross_entropy(forward(batch[0]), batch[1]),
        steps=3,
        tolerance=1e-6,
        mode="max-autotune",
        fullgraph=True,
    )
    assert graphs(compilations, "forward") == 1


# --- torch_geometric ------------------------------------------------------------------


class GraphNet(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        from torch_geometric.nn import global_max_pool, global_mean_pool

        h = self.norm(self.first(x, edges).relu())
        h = self.second(h, edges).relu()
        return self.head(global_mean_pool(h, batch, 2) + global_max_pool(h, batch, 2))


#: The layers whose programs no data-dependent size breaks.
WHOLE = ("SAGEConv", "GINConv", "GraphConv", "TransformerConv")


@pytest.mark.parametrize("name", [*WHOLE, "GCNConv", "GATConv"])
def test_torch_geometric(name: str) -> None:
    """Graphs of eight sizes: two programs, of the first size and of all others."""
    layers = pytest.importorskip("torch_geometric.nn")

    def convolution(inputs: int) -> nn.Module:
        if name == "GINConv":
            return layers.GINConv(nn.Sequential(nn.Linear(inputs, 16), nn.ReLU()))
        heads = {"heads": 2} if name in ("GATConv", "TransformerConv") else {}
        return getattr(layers, name)(inputs, 16 // heads.get("heads", 1), **heads)

    def graph(nodes: int, edges: int) -> tuple[Any, ...]:
        batch = torch.arange(nodes) * 2 // nodes
        ends = torch.randint(0, nodes, (2, edges))
        return torch.randn(nodes, 8), ends, batch, torch.randint(0, 3, (2,))

    batches = [graph(20 + 3 * i, 50 + 7 * i) for i in range(8)]
    compilations = check_training(
        GraphNet(convolution(8), convolution(16)),
        batches,
        lambda forward, batch: F.cross_entropy(forward(*batch[:3]), batch[3]),
        steps=12,
        tolerance=1e-4,
        fullgraph=name in WHOLE,
    )
    if name in WHOLE:
        assert graphs(compilations, "forward") <= 2
        return
    # Dynamo breaks at self-loops, whose number depends on the data; each piece has two
    # programs, as above.
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert all("nonzero" in reason for reason in breaks)
    assert graphs(compilations, "forward") <= 12


# --- torchvision ----------------------------------------------------------------------


def detector(kind: str) -> nn.Module:
    torchvision = pytest.importorskip("torchvision")
    from torchvision.models import detection
    from torchvision.models.detection.rpn import AnchorGenerator

    backbone = torchvision.models.mobilenet_v3_small(
        weights=None, norm_layer=torchvision.ops.FrozenBatchNorm2d
    ).features[:6]
    backbone.out_channels = 40
    sizes: dict[str, Any] = {"num_classes": 4, "min_size": 64, "max_size": 96}
    anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((0.5, 1.0, 2.0),))
    if kind == "RetinaNet":
        return detection.RetinaNet(backbone, anchor_generator=anchors, **sizes)
    return detection.FasterRCNN(
        backbone,
        rpn_anchor_generator=anchors,
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 5, 2),
        rpn_pre_nms_top_n_train=100,
        rpn_post_nms_top_n_train=50,
        box_batch_size_per_image=32,
        **sizes,
    )


@pytest.mark.parametrize("kind", ["FasterRCNN", "RetinaNet"])
def test_torchvision_detection(kind: str) -> None:
    """Images of three sizes; nms and roi_align stay calls of torchvision's operators."""

    def target(height: int, width: int, count: int) -> dict[str, torch.Tensor]:
        size = torch.tensor([width, height])
        corner = torch.rand(count, 2) * size / 2
        boxes = torch.cat([corner, corner + torch.rand(count, 2) * size * 0.4 + 4], 1)
        return {"boxes": boxes, "labels": torch.randint(1, 4, (count,))}

    def batch(height: int, width: int, count: int) -> tuple[Any, Any]:
        images = [torch.rand(3, height, width), torch.rand(3, width, height)]
        return images, [target(height, width, count), target(width, height, count + 1)]

    model = detector(kind)
    compilations = check_training(
        model,
        [batch(64, 80, 2), batch(64, 80, 3), batch(72, 64, 1)],
        lambda forward, batch: sum(forward(*batch).values()),
        steps=6,
        tolerance=1e-3,
    )
    plans = "".join(c.program.plan_text for c in compilations)
    assert ("call torchvision::roi_align" in plans) == (kind == "FasterRCNN")


# --- Quantised weights ----------------------------------------------------------------


class Quantised(nn.Module):
    def __init__(self, linear: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = linear(64, 128), linear(128, 64)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.second(F.gelu(self.first(x)))
        return self.head(torch.tanh(self.norm(x + h)))


def check_quantised(
    model: nn.Module, *, training: bool, dtype: torch.dtype, tolerance: float = 0.0
) -> str:
    """Outputs and gradients are eager's; returns the plans."""
    x = torch.randn(6, 64, dtype=dtype)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="intarsia", fullgraph=True)
    tolerance = tolerance or (2e-2 if dtype == torch.bfloat16 else 1e-4)
    results = []
    with intarsia.record_compilations() as compilations:
        for forward, owner in ((model, model), (compiled, twin)):
            leaf = x.clone().requires_grad_(training)
            y = forward(leaf)
            result = [y.detach()]
            if training:
                y.float().square().sum().backward()
                result += [leaf.grad, *(p.grad for p in owner.parameters() if p.requires_grad)]
            with torch.no_grad():
                result.append(forward(x))
            results.append(result)
    for got, want in zip(results[1], results[0], strict=True):
        scale = 0.0 if want is None else want.abs().max().item()
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * scale)
    return "".join(c.program.plan_text for c in compilations)


@pytest.mark.parametrize("kind", ["nf4", "fp4", "int8"])
def test_bitsandbytes(kind: str) -> None:
    """Four and eight bits: its operators stay calls; four bits train what is before them."""
    bitsandbytes = pytest.importorskip("bitsandbytes")

    def linear(inputs: int, outputs: int) -> nn.Module:
        weights = nn.Linear(inputs, outputs).state_dict()
        if kind == "int8":
            layer = bitsandbytes.nn.Linear8bitLt(inputs, outputs, has_fp16_weights=False)
        else:
            layer = bitsandbytes.nn.Linear4bit(
                inputs, outputs, quant_type=kind, compute_dtype=torch.float32
            )
        layer.load_state_dict(weights)
        return layer

    model = Quantised(linear).to("cpu")
    plans = check_quantised(model, training=kind != "int8", dtype=torch.float32)
    # On the CPU, eight bits are made of PyTorch's own operators.
    assert ("call bitsandbytes::" in plans) == (kind != "int8")


@pytest.mark.parametrize("kind", ["int8", "int8-dynamic", "float8", "int4"])
def test_torchao(kind: str) -> None:
    """Weights that are tensor subclasses, which AOTAutograd takes apart."""
    quantization = pytest.importorskip("torchao.quantization")
    config = {
        "int8": lambda: quantization.Int8WeightOnlyConfig(),
        "int8-dynamic": lambda: quantization.Int8DynamicActivationInt8WeightConfig(),
        "float8": lambda: quantization.Float8WeightOnlyConfig(),
        "int4": lambda: quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4),
    }[kind]()
    dtype = torch.bfloat16 if kind == "float8" else torch.float32
    model = Quantised(nn.Linear).eval().to(dtype)
    quantization.quantize_(model, config)
    # An activation that differs in its last bit may be rounded to the next integer.
    tolerance = 1e-2 if kind == "int8-dynamic" else 0.0
    check_quantised(model, training=False, dtype=dtype, tolerance=tolerance)


def test_torchao_trains_with_fake_quantisation() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    from torchao.quantization.qat import QATConfig

    base = quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=quantization.PerGroup(32)
    )
    model = Quantised(nn.Linear)
    quantization.quantize_(model, QATConfig(base, step="prepare"))
    check_quantised(model, training=True, dtype=torch.float32)
