"""Decoders for `model_exports.py` that the exporter's own Llama cannot be: Granite's multipliers, Gemma 2's soft caps
and windows, layers without rope, a cache that is given and returned; and its example of Gemma 4."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from modules import Ids, Module, Shape, examples
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

ROWS = 40  # of tables, more than the largest S: a slice that may be all of a table is not exported
VOCABULARY, MOST, WIDTH, HEADS, KV_HEADS, HEAD_DIM = 64, 33, 32, 4, 2, 8


@dataclass(frozen=True)
class Config:
    layers: int = 2
    embedding: float = 1.0  # multipliers, as Granite has them
    residual: float = 1.0
    logits: float = 1.0
    attention: float = HEAD_DIM**-0.5
    score_cap: float = 0.0  # c * tanh(x / c)
    logit_cap: float = 0.0
    windows: dict[int, int] = field(default_factory=dict)  # layer: how many keys it sees
    plain: tuple[int, ...] = ()  # layers without rope


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x is [B, heads, S, HEAD_DIM]; cos and sin are [S, HEAD_DIM]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


class Layer(nn.Module):
    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        self.config, self.number = config, number
        self.norm1, self.norm2 = RmsNorm(WIDTH), RmsNorm(WIDTH)
        self.query = nn.Linear(WIDTH, HEADS * HEAD_DIM, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False) for _ in range(2))
        self.dense = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        config, (b, s, _) = self.config, x.shape
        y = self.norm1(x)
        q = self.query(y).view(b, s, HEADS, HEAD_DIM).transpose(1, 2)
        k, v = (project(y).view(b, s, KV_HEADS, HEAD_DIM).transpose(1, 2) for project in (self.key, self.value))
        if self.number not in config.plain:
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (each.repeat_interleave(HEADS // KV_HEADS, dim=1) for each in (k, v))
        scores = capped(q @ k.transpose(-1, -2) * config.attention, config.score_cap)
        y = (torch.softmax(scores + mask, dim=-1) @ v).transpose(1, 2).reshape(b, s, HEADS * HEAD_DIM)
        x = x + self.dense(y) * config.residual
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)) * config.residual


class Decoder(nn.Module):
    config = Config()

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), RmsNorm(WIDTH)
        self.layers = nn.ModuleList(Layer(self.config, n) for n in range(self.config.layers))
        angles = torch.outer(torch.arange(ROWS), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        distance = torch.arange(ROWS)[:, None] - torch.arange(ROWS)[None]
        for n in range(self.config.layers):
            seen = (distance >= 0) & (distance < self.config.windows.get(n, ROWS))
            self.register_buffer(f"mask{n}", torch.zeros(ROWS, ROWS).masked_fill(~seen, -1e9))

    def forward(self, ids: Tensor) -> Tensor:
        s = ids.size(1)
        x = self.tokens(ids) * self.config.embedding
        for n, layer in enumerate(self.layers):
            x = layer(x, self.cos[:s], self.sin[:s], getattr(self, f"mask{n}")[:s, :s])
        logits = functional.linear(self.norm(x), self.tokens.weight) / self.config.logits
        return capped(logits, self.config.logit_cap)


class Granite(Decoder):
    """A decoder with multipliers of embeddings, residuals, scores and logits"""

    config = Config(embedding=12.0, residual=0.22, logits=8.0, attention=0.0156)


class Gemma2(Decoder):
    """A decoder with soft caps of scores and logits, and a window of 5 in every other layer"""

    config = Config(layers=3, score_cap=5.0, logit_cap=3.0, windows={0: 5, 2: 5}, embedding=WIDTH**0.5)


class SmolLm3(Decoder):
    """A decoder whose every other layer has no rope"""

    config = Config(layers=3, plain=(1,))


class GivenCache(nn.Module):
    """A GPT-2 that is given the keys and values of the past, and returns them longer; S and the past live"""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(64, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv, self.dense = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, past = ids.size(1), keys.size(2)
        place = torch.arange(s) + past
        x = self.tokens(ids) + self.positions(place)
        q, k, v = (
            y.view(1, s, HEADS, HEAD_DIM).transpose(1, 2) for y in self.qkv(self.norms[0](x)).split(WIDTH, dim=-1)
        )
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        seen = torch.arange(s + past)[None] <= place[:, None]
        y = functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.dense(y.transpose(1, 2).reshape(1, s, WIDTH))
        x = x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return functional.linear(self.norms[2](x), self.tokens.weight), keys, values


class Gemma4(nn.Module):
    """The exporter's Gemma 4: windows, embeddings per layer, keys of earlier layers, a soft cap"""

    def __init__(self) -> None:
        from executorch.examples.models.gemma4.text_decoder.gemma4_config import Gemma4Config
        from executorch.examples.models.gemma4.text_decoder.gemma4_transformer import Gemma4ForCausalLM

        super().__init__()
        config = Gemma4Config(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=HEADS,
            num_key_value_heads=1,
            head_dim=HEAD_DIM,
            global_head_dim=2 * HEAD_DIM,
            layer_types=["sliding_attention", "full_attention"] * 2,
            sliding_window=5,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCABULARY,
            max_seq_len=ROWS,
            max_context_len=ROWS,
            enable_dynamic_shape=True,
        )
        self.model = Gemma4ForCausalLM(config)

    def forward(self, ids: Tensor, position: Tensor) -> Tensor:
        return self.model(ids, position)


S, PAST, SHORT = Dim("S", min=1, max=MOST), Dim("P", min=1, max=40), Dim("S", min=1, max=24)


def tokens(*sizes: int) -> list[tuple[str, tuple[Shape, ...]]]:
    return [("forward", (Ids((1, s), VOCABULARY),)) for s in sizes]


def decoder(make: type[nn.Module]) -> Module:
    methods = {"forward": (examples(Ids((1, 7), VOCABULARY)), ({1: S},))}
    return Module(make, methods, tokens(7, MOST, 1, 13, 2, 17, 1, MOST))


def given(s: int, past: int) -> tuple[Shape, ...]:
    return Ids((1, s), VOCABULARY), (1, HEADS, past, HEAD_DIM), (1, HEADS, past, HEAD_DIM)


def given_cache(**options: Any) -> Module:
    methods = {"forward": (examples(*given(5, 7)), ({1: SHORT}, {2: PAST}, {2: PAST}))}
    return Module(GivenCache, methods, [("forward", given(*sizes)) for sizes in PASTS], **options)


def gemma4(**options: Any) -> Module:
    steps = [(0, 7), (7, 1), (8, 1), (9, 13), (0, MOST), (0, 1), (1, 17), (18, 1)]  # position, S
    methods = {"forward": (examples(Ids((1, 7), VOCABULARY), 0), ({1: S}, None))}
    return Module(Gemma4, methods, [("forward", (Ids((1, s), VOCABULARY), at)) for at, s in steps], **options)


PASTS = [(5, 7), (24, 40), (1, 1), (1, 39), (13, 1), (7, 20), (1, 40)]  # S, past

DECODERS: dict[str, Module] = {
    "granite": decoder(Granite),
    "gemma2": decoder(Gemma2),
    "smollm3": decoder(SmolLm3),
    "given_cache": given_cache(),
    "given_cache_portable": given_cache(delegate=False),
    "gemma4": gemma4(),
    "gemma4_xnnpack": gemma4(backend="xnnpack"),
}
