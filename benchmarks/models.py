# ===- models.py - Public architectures, small and without weights -----------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Public models at toy sizes, made offline: what a compiler meets in practice.

Those of the ``transformers`` package are built from their configuration classes with
random weights; the others are written with ``torch.nn``. Each is a module and the
arguments of one call, whose result is turned into a scalar loss by `loss_of`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Model = tuple[nn.Module, dict[str, Any]]


def loss_of(result: Any) -> Tensor:
    """A scalar that depends on every floating-point result."""
    if isinstance(result, Tensor):
        return result.float().mean() if result.is_floating_point() else torch.zeros(())
    if getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, dict):
        result = list(result.values())
    elif dataclasses.is_dataclass(result):
        result = [getattr(result, field.name) for field in dataclasses.fields(result)]
    if isinstance(result, (list, tuple)):
        return sum((loss_of(x) for x in result if x is not None), torch.zeros(()))
    return torch.zeros(())


# --- From transformers' configurations ---------------------------------------------

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}


def tokens(count: int = 3, length: int = 13) -> Tensor:
    return torch.randint(3, 96, (count, length))


def language(name: str, head: str, **settings: Any) -> Model:
    """A model that reads tokens and is trained to predict them."""
    import transformers

    ids = tokens()
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, f"{name}{head}")(config)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if head.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ConditionalGeneration")):
        inputs["labels"] = ids
    elif head.endswith("ForSequenceClassification"):
        inputs["labels"] = torch.randint(0, 2, (ids.shape[0],))
    if head.endswith(("ForCausalLM", "LMHeadModel")):
        inputs["use_cache"] = False
    return model, inputs


def vision(name: str, head: str, size: int = 32, **settings: Any) -> Model:
    import transformers

    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, f"{name}{head}")(config)
    inputs: dict[str, Any] = {"pixel_values": torch.randn(2, 3, size, size)}
    if head.endswith("ForImageClassification"):
        inputs["labels"] = torch.randint(0, 2, (2,))
    return model, inputs


def t5() -> Model:
    return language(
        "T5",
        "ForConditionalGeneration",
        vocab_size=96,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )


def whisper() -> Model:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=96,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=20,
        max_target_positions=20,
        num_mel_bins=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    return model, {"input_features": torch.randn(2, 16, 40), "labels": tokens(2, 11)}


def clip() -> Model:
    import transformers

    part = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    part = {**part, "num_attention_heads": 4, "projection_dim": 16}
    config = transformers.CLIPConfig(
        text_config={**part, "vocab_size": 96, "max_position_embeddings": 64},
        vision_config={**part, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    inputs = {"input_ids": tokens(2), "pixel_values": torch.randn(2, 3, 32, 32)}
    return transformers.CLIPModel(config), {**inputs, "return_loss": True}


# --- Written here -------------------------------------------------------------------


class Call(nn.Module):
    """A module whose loss is computed beside it."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.function = function

    def forward(self, **inputs: Any) -> Any:
        return self.function(self.module, **inputs)


class UNet(nn.Module):
    """Down and up again, with group norm, skips and nearest or bilinear upsampling."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.Sequential(nn.Conv2d(24, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        from torch.nn.functional import avg_pool2d, interpolate

        a = self.down(x)
        b = self.middle(avg_pool2d(a, 2))
        b = interpolate(b, scale_factor=2.0, mode=self.mode)
        return self.last(self.up(torch.cat([a, b], 1)))


class MessagePassing(nn.Module):
    """Edges send messages, nodes add them up."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU())
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.LayerNorm(width), nn.ELU())

    def forward(self, x: Tensor, position: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        offset = position[source] - position[target]
        distance = offset.square().sum(-1, keepdim=True).clamp_min(1e-6).sqrt()
        for _ in range(2):
            message = self.message(torch.cat([x[source], x[target], distance], -1))
            x = x + self.update(torch.cat([x, self.collect(message, target, x.shape[0])], -1))
        return x

    def collect(self, message: Tensor, target: Tensor, nodes: int) -> Tensor:
        """The mean of the messages (edges, width) to each node."""
        total = message.new_zeros(nodes, message.shape[1]).index_add(0, target, message)
        ones = torch.ones_like(message[:, :1])
        count = message.new_zeros(nodes, 1).index_add(0, target, ones)
        return total / count.clamp(min=1)


class Recommender(nn.Module):
    """Embeddings, their pairwise products, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(4))
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(8 + 10, 16), nn.BatchNorm1d(16), nn.PReLU(), nn.Linear(16, 1)
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        parts = [x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(5, 5, offset=-1)
        return self.top(torch.cat([x, products[:, rows, columns]], 1))


class Autoencoder(nn.Module):
    """Variational: sampled in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 32), nn.Softplus(), nn.Linear(32, 16))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 20))

    def forward(self, x: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits as bce

        mean, log_variance = self.encode(x).chunk(2, -1)
        sample = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
        return bce(self.decode(sample), x, reduction="sum") + divergence.sum()


def classifier(module: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(x), target, label_smoothing=0.1)


def convolutional() -> Model:
    """VGG-like, with dropout and pooling."""
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardswish()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10)]
    inputs = {"x": torch.randn(4, 3, 16, 16), "target": torch.randint(0, 10, (4,))}
    return Call(nn.Sequential(*layers), classifier), inputs


def transformer() -> Model:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Call(module, lambda m, x: m(x).square().mean()), {"x": torch.randn(3, 13, 32)}


def detector() -> Model:
    """A head's losses: focal, smooth L1 and overlap of boxes."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 9, 1))

    def loss(module: nn.Module, x: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits, one_hot, smooth_l1_loss

        out = module(x).flatten(2).transpose(1, 2)
        logits, found = out[..., :5], out[..., 5:].sigmoid()
        target = one_hot(labels, 5).float()
        entropy = binary_cross_entropy_with_logits(logits, target, reduction="none")
        focus = (1 - torch.exp(-entropy)) ** 2
        low = torch.maximum(found[..., :2], boxes[..., :2])
        high = torch.minimum(found[..., 2:], boxes[..., 2:])
        overlap = (high - low).clamp(min=0).prod(-1)
        return (focus * entropy).mean() + smooth_l1_loss(found, boxes) - overlap.mean()

    inputs = {"x": torch.randn(2, 3, 8, 8), "boxes": torch.rand(2, 64, 4)}
    return Call(module, loss), {**inputs, "labels": torch.randint(0, 5, (2, 64))}


def optimizer_step() -> Model:
    """AdamW on a small set of parameters."""
    weights = [torch.randn(8, 16), torch.randn(16)]

    def step(_: nn.Module, **state: Tensor) -> list[Tensor]:
        updated = []
        for i in range(len(weights)):
            weight, grad = state[f"w{i}"], state[f"g{i}"]
            mean = torch.lerp(state[f"m{i}"], grad, 0.1)
            square = state[f"v{i}"] * 0.999 + 0.001 * grad * grad
            scale = (square / (1 - 0.999 ** state["step"])).sqrt() + 1e-8
            updated += [weight * 0.9999 - 1e-3 * mean / scale, mean, square]
        return updated

    inputs = {"step": torch.tensor(3.0)}
    for i, weight in enumerate(weights):
        inputs |= {f"{name}{i}": torch.rand_like(weight) for name in "wgmv"}
    return Call(nn.Identity(), step), inputs


def graph_network() -> Model:
    inputs = {"x": torch.randn(11, 16), "position": torch.randn(11, 3)}
    return MessagePassing(), {**inputs, "edges": torch.randint(0, 11, (2, 40))}


MODELS: dict[str, Callable[[], Model]] = {
    "bert": lambda: language("Bert", "ForMaskedLM", **SMALL),
    "distilbert": lambda: language(
        "DistilBert",
        "ForSequenceClassification",
        vocab_size=96,
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=4,
    ),
    "deberta": lambda: language("DebertaV2", "Model", **SMALL),
    "gpt2": lambda: language("GPT2", "LMHeadModel", vocab_size=96, n_embd=32, n_layer=2, n_head=4),
    "llama": lambda: language("Llama", "ForCausalLM", **GROUPED),
    "mistral": lambda: language("Mistral", "ForCausalLM", **GROUPED, sliding_window=8),
    "qwen2": lambda: language("Qwen2", "ForCausalLM", **GROUPED),
    "gemma": lambda: language("Gemma", "ForCausalLM", **GROUPED, head_dim=8),
    "phi": lambda: language("Phi", "ForCausalLM", **GROUPED),
    "falcon": lambda: language(
        "Falcon",
        "ForCausalLM",
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        alibi=True,
    ),
    "mamba": lambda: language(
        "Mamba", "ForCausalLM", vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=4
    ),
    "t5": t5,
    "whisper": whisper,
    "clip": clip,
    "vit": lambda: vision(
        "ViT",
        "ForImageClassification",
        image_size=32,
        patch_size=8,
        **{k: v for k, v in SMALL.items() if k[0] in "hin"},
    ),
    "resnet": lambda: vision(
        "ResNet", "ForImageClassification", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]
    ),
    "convnext": lambda: vision(
        "ConvNext", "ForImageClassification", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2
    ),
    "swin": lambda: vision(
        "Swin",
        "ForImageClassification",
        image_size=32,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
    ),
    "mobilenet": lambda: vision(
        "MobileNetV2", "ForImageClassification", image_size=32, depth_multiplier=0.25
    ),
    "segformer": lambda: vision(
        "Segformer",
        "ForSemanticSegmentation",
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
    ),
    "transformer": transformer,
    "vgg": convolutional,
    "unet": lambda: (UNet("nearest"), {"x": torch.randn(2, 3, 16, 16)}),
    "unet bilinear": lambda: (UNet("bilinear"), {"x": torch.randn(2, 3, 16, 16)}),
    "graph network": graph_network,
    "recommender": lambda: (
        Recommender(),
        {"dense": torch.randn(6, 5), "sparse": torch.randint(0, 50, (6, 4))},
    ),
    "autoencoder": lambda: (Autoencoder(), {"x": torch.rand(6, 20)}),
    "detector": detector,
    "adamw": optimizer_step,
}
