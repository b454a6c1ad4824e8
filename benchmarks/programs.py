# ===- programs.py - Programs of realistic size to time -----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Programs that `suite.py` times, each with a registered C++ operator inside.

Written with ``torch.nn`` and random weights, at sizes between a laptop's and a
server's. `PROGRAMS` makes each anew, so that candidates share no state.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from build_operators import ROOT, operator_library
from models import MessagePassing
from torch import Tensor, nn
from torch.nn import functional as F

ops = torch.ops.intarsia_programs


@dataclasses.dataclass
class Program:
    """What one step of a program is."""

    module: Callable[..., Any]
    inputs: Sequence[tuple[Any, ...]]  # one call a step; several are taken in turn
    training: bool = False  # a step is forward and backward
    dynamic: bool | None = None  # as torch.compile takes it
    fullgraph: bool = True  # whether it is one graph

    def clone(self) -> Program:
        """The same program with memory of its own."""
        return copy.deepcopy(self)


def load_operators() -> None:
    if hasattr(ops, "doubled"):
        return
    torch.ops.load_library(operator_library("programs"))
    fake = torch.library.register_fake
    fake("intarsia_programs::append")(lambda cache, rows, position: None)
    fake("intarsia_programs::swiglu")(lambda gate, up: torch.empty_like(gate))
    fake("intarsia_programs::swiglu_backward")(
        lambda grad, gate, up: (torch.empty_like(gate), torch.empty_like(up))
    )
    fake("intarsia_programs::scatter_sum")(
        lambda messages, target, nodes: messages.new_empty(nodes, messages.shape[1])
    )
    fake("intarsia_programs::doubled")(lambda x: torch.empty_like(x))
    torch.library.register_autograd(
        "intarsia_programs::swiglu",
        lambda ctx, grad: ops.swiglu_backward(grad, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    torch.library.register_autograd("intarsia_programs::doubled", lambda ctx, grad: grad + grad)


# --- A Llama-like decoder -----------------------------------------------------------

HIDDEN, HEADS, GROUPS, LAYERS, WORDS = 512, 8, 4, 2, 4096
WIDTH = HIDDEN // HEADS


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Attention(nn.Module):
    def __init__(self, cached: int) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.key = nn.Linear(HIDDEN, GROUPS * WIDTH, bias=False)
        self.value = nn.Linear(HIDDEN, GROUPS * WIDTH, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.register_buffer("keys", torch.zeros(1, GROUPS, cached, WIDTH))
        self.register_buffer("values", torch.zeros(1, GROUPS, cached, WIDTH))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, position: int | None) -> Tensor:
        batch, length, _ = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, -1, WIDTH).transpose(1, 2)

        query = rotate(heads(self.query(x)), cos, sin)
        key, value = rotate(heads(self.key(x)), cos, sin), heads(self.value(x))
        if position is not None:
            ops.append(self.keys, key, position)
            ops.append(self.values, value, position)
            key = self.keys[:, :, : position + length]
            value = self.values[:, :, : position + length]
        key = key.repeat_interleave(HEADS // GROUPS, 1)
        value = value.repeat_interleave(HEADS // GROUPS, 1)
        # The comparison of a symbolic size is none of Python's booleans; a branch on it is.
        causal = {"is_causal": True} if length > 1 else {}
        attended = F.scaled_dot_product_attention(query, key, value, **causal)
        return self.out(attended.transpose(1, 2).reshape(batch, length, HIDDEN))


class Decoder(nn.Module):
    """Embedding, blocks of attention and SwiGLU, and the logits of the next words."""

    def __init__(self, cached: int = 1) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": RMSNorm(),
                    "attention": Attention(cached),
                    "after": RMSNorm(),
                    "gate": nn.Linear(HIDDEN, 1376, bias=False),
                    "up": nn.Linear(HIDDEN, 1376, bias=False),
                    "down": nn.Linear(1376, HIDDEN, bias=False),
                }
            )
            for _ in range(LAYERS)
        )
        self.last = RMSNorm()

    def forward(self, tokens: Tensor, position: int | None = None) -> Tensor:
        x = self.words(tokens)
        start = 0 if position is None else position
        places = torch.arange(start, start + tokens.shape[1], dtype=torch.float32)
        rates = 10000 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float32) / WIDTH)
        angles = torch.cat([places[:, None] * rates, places[:, None] * rates], -1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = x + layer["attention"](layer["before"](x), cos, sin, position)
            y = layer["after"](x)
            x = x + layer["down"](ops.swiglu(layer["gate"](y), layer["up"](y)))
        return F.linear(self.last(x), self.words.weight)


class NextWordLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder()

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.decoder(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def words(count: int, length: int) -> Tensor:
    return torch.randint(0, WORDS, (count, length))


# --- Convolutions --------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.short = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.short(x))


class ResNet(nn.Module):
    """The shape of ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.stem_norm = nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        self.blocks = nn.Sequential(
            *(
                Residual(widths[i] if first else widths[i + 1], widths[i + 1], stride)
                for i in range(4)
                for first, stride in ((True, 2 if i else 1), (False, 1))
            )
        )
        self.head = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        return self.head(ops.doubled(self.blocks(x).mean((2, 3))))


class Classified(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = ResNet()

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), labels)


# --- Others --------------------------------------------------------------------------


class GraphNetwork(MessagePassing):
    """Two rounds of messages along edges, added up by a registered operator."""

    def collect(self, message: Tensor, target: Tensor, nodes: int) -> Tensor:
        return ops.scatter_sum(message, target, nodes)


def graph(nodes: int, edges: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(nodes, 64), torch.randn(nodes, 3), torch.randint(0, nodes, (2, edges))


class Chain(nn.Module):
    """200 operators on tiny tensors, a registered one in every ten."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for i in range(20):
            x = torch.tanh(x * 0.5 + y) - x * x
            x = torch.sigmoid(x) * (1.0 + i) + y.abs()
            x = ops.doubled(x)
        return x


def sentence_encoder() -> Program:
    sys.path.insert(0, str(ROOT / "examples" / "demo"))
    import encoder
    import operators

    operators.load()
    ids = torch.randint(1000, 30000, (8, 32))
    mask = torch.ones_like(ids)
    mask[:, 24:] = 0
    return Program(encoder.SentenceEncoder.pretrained().eval(), [(ids, mask)])


def faster_rcnn() -> Program:
    import torchvision

    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5
    )
    return Program(model.eval(), [([torch.rand(3, 160, 160)],)], fullgraph=False)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "sentence encoder 8x32": sentence_encoder,
    "decoder, prefill 1x128": lambda: Program(Decoder(256).eval(), [(words(1, 128), 0)]),
    "decoder, one token": lambda: Program(
        Decoder(256).eval(), [(words(1, 1), at) for at in range(128, 136)], dynamic=True
    ),
    "decoder, training 2x64": lambda: Program(NextWordLoss(), [(words(2, 65),)], training=True),
    "ResNet 2x3x96x96": lambda: Program(ResNet().eval(), [(torch.randn(2, 3, 96, 96),)]),
    "ResNet, training 4x3x64x64": lambda: Program(
        Classified(),
        [(torch.randn(4, 3, 64, 64), torch.randint(0, 1000, (4,)))],
        training=True,
    ),
    "Faster R-CNN": faster_rcnn,
    "graph network, dynamic": lambda: Program(
        GraphNetwork(64).eval(), [graph(2000, 12000), graph(1900, 11000)], dynamic=True
    ),
    "200 operators on 4x8": lambda: Program(Chain(), [(torch.randn(4, 8), torch.randn(4, 8))]),
}

__all__ = ["PROGRAMS", "Program", "load_operators"]
