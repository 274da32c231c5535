"""Whole small models for `make_programs.py`, written as their usual implementations are, with random weights."""

from __future__ import annotations

from itertools import pairwise

import torch
from modules import Ids, Module, Pixels, Places, Shape, examples
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from hightide.formats.whisper_ggml import WhisperSizes
from hightide.speech.whisper_torch import AudioEncoder, TextDecoder


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, hidden: Tensor | None = None) -> Tensor:
    """q, k and v are [B, S, heads * n]; a score is left out where `hidden` is true.

    With bmm, as nn.MultiheadAttention: a 4-D matmul has an expand, which ends a delegate.
    """
    b, s, width = q.shape
    q, k, v = (x.view(b, s, heads, -1).transpose(1, 2).reshape(b * heads, s, width // heads) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) * (width // heads) ** -0.5
    if hidden is not None:
        scores = scores.view(b, heads, s, s).masked_fill(hidden, -1e9).view(b * heads, s, s)
    y = torch.bmm(torch.softmax(scores, dim=-1), v)
    return y.view(b, heads, s, width // heads).transpose(1, 2).reshape(b, s, width)


def scatter_weights(model: nn.Module) -> None:
    """Norms and biases other than ones and zeros, and running statistics as of a trained model."""
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("running_var"):
            nn.init.uniform_(x, 0.5, 2)
        elif name.endswith(("running_mean", "bias")):
            nn.init.normal_(x, std=0.2)
        elif x.dim() == 1 and x.is_floating_point():
            nn.init.normal_(x, 1, 0.2)


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.norm1(x + self.dense(attend(self.query(x), self.key(x), self.value(x), self.heads, hidden)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder with an attention mask; batch and length live."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(61, 24), nn.Embedding(33, 24), nn.Embedding(2, 24)
        self.register_buffer("position_ids", torch.arange(33)[None])
        self.norm = nn.LayerNorm(24, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(24, 3) for _ in range(2))
        self.pooler = nn.Linear(24, 24)
        scatter_weights(self)

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) + self.types(types) + self.positions(self.position_ids[:, : ids.size(1)])
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :] == 0)
        return x, torch.tanh(self.pooler(x[:, 0]))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.dense = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        x = x + self.dense(attend(*self.qkv(self.norm1(x)).chunk(3, dim=-1), self.heads, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """A causal decoder with learned positions and tied embeddings; length live."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(67, 26), nn.Embedding(48, 26)
        self.register_buffer("future", torch.ones(48, 48, dtype=torch.bool).triu(1)[None, None])
        self.blocks = nn.ModuleList(GptBlock(26, 2) for _ in range(2))
        self.norm = nn.LayerNorm(26)
        scatter_weights(self)

    def forward(self, ids: Tensor) -> Tensor:
        s = ids.size(1)
        x = self.tokens(ids) + self.positions(torch.arange(s))
        for block in self.blocks:
            x = block(x, self.future[:, :, :s, :s])
        return functional.linear(self.norm(x), self.tokens.weight)


class Vit(nn.Module):
    """Patches by a convolution, a class token before them; batch live."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 6, stride=6)
        self.first = nn.Parameter(torch.randn(1, 1, 24))
        self.positions = nn.Parameter(torch.randn(1, 13, 24))
        self.blocks = nn.ModuleList(GptBlock(24, 3) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        first = self.first + x[:, :1] * 0  # an expand to the batch makes a delegate of a lone SymInt, not exportable
        x = torch.cat([first, x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def conv(wide: int, out: int, size: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = None):
    layers = [nn.Conv2d(wide, out, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    def __init__(self, wide: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(wide, out, 3, stride, act=nn.ReLU), conv(out, out, 3))
        self.skip = conv(wide, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Module):
    """Its eight blocks in four stages; batch, height and width live."""

    def __init__(self) -> None:
        super().__init__()
        widths = (4, 4, 6, 8, 13)
        self.stem = nn.Sequential(conv(3, 4, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, stride=2, padding=1))
        stages = [
            (Residual(wide, out, 1 if i == 0 else 2), Residual(out, out, 1))
            for i, (wide, out) in enumerate(pairwise(widths))
        ]
        self.blocks = nn.Sequential(*(block for stage in stages for block in stage))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(13, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(image))), 1))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, width // 4), nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(torch.relu(self.down(x.mean(dim=(2, 3)))))
        return x * functional.hardsigmoid(scale)[:, :, None, None]


class Inverted(nn.Module):
    def __init__(self, wide: int, inner: int, out: int, size: int, stride: int, excite: bool, act: type[nn.Module]):
        super().__init__()
        self.residual = stride == 1 and wide == out
        self.body = nn.Sequential(
            conv(wide, inner, 1, act=act),
            conv(inner, inner, size, stride, groups=inner, act=act),
            *([SqueezeExcite(inner)] if excite else []),
            conv(inner, out, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV3(nn.Module):
    """Depthwise and pointwise convolutions, hardswish, squeeze and excite; batch, height and width live."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 8, 3, 2, act=nn.Hardswish),
            Inverted(8, 16, 8, 3, 1, True, nn.ReLU),
            Inverted(8, 22, 10, 3, 2, False, nn.ReLU),
            Inverted(10, 30, 10, 5, 1, True, nn.Hardswish),
            Inverted(10, 30, 12, 5, 2, True, nn.Hardswish),
            Inverted(12, 34, 12, 5, 1, True, nn.Hardswish),
            conv(12, 40, 1, act=nn.Hardswish),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Linear(40, 26), nn.Hardswish(), nn.Linear(26, 10))
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.body(image)), 1))


class Int8Cnn(nn.Module):
    """Plain, depthwise and pointwise convolutions, a residual and a head in 8 bits; batch, height and width live."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(12, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.stem(image))
        x = x + torch.relu(self.pointwise(self.depthwise(x)))
        x = torch.relu(self.down(x))
        return self.head(x.mean(dim=(2, 3)))


class Whisper(nn.Module):
    """Speech to text: an encoder of one second, a decoder with a KV cache and attention to the encoder's output."""

    def __init__(self) -> None:
        super().__init__()
        self.audio, self.text = AudioEncoder(WHISPER), TextDecoder(WHISPER)
        for name, x in self.named_parameters():
            if name.endswith("positional_embedding"):
                nn.init.normal_(x)
            elif name.endswith("token_embedding.weight"):  # small: else the likeliest token is always the last one
                nn.init.normal_(x, std=0.2)
            elif x.dim() == 2:
                nn.init.normal_(x, std=(3 if name.endswith("cross_attn.out.weight") else 1.5) * x.shape[1] ** -0.5)
        scatter_weights(self)

    def encoder(self, input_features: Tensor) -> Tensor:
        return self.audio(input_features)

    def text_decoder(self, input_ids: Tensor, encoder_output: Tensor, cache_position: Tensor) -> Tensor:
        return self.text(input_ids, encoder_output, cache_position)


def model(
    make: type[nn.Module], live: tuple, example: tuple[Shape, ...], *steps: tuple[Shape, ...], **options: bool
) -> Module:
    return Module(make, {"forward": (examples(*example), live)}, [("forward", step) for step in steps], **options)


def bert_inputs(b: int, s: int) -> tuple[Shape, ...]:
    return Ids((b, s), 61), Ids((b, s), 2), Ids((b, s), 2)


def images(*sizes: tuple[int, int, int]) -> list[tuple[Shape, ...]]:
    return [(Pixels((b, 3, h, w)),) for b, h, w in sizes]


def whisper_step(first: int, s: int) -> tuple[str, tuple[Shape, ...]]:
    heard = (1, WHISPER.audio_context, WHISPER.audio_width)
    return "text_decoder", (Ids((1, s), WHISPER.vocabulary), heard, Places(first, first + s))


WHISPER = WhisperSizes(
    vocabulary=97,
    audio_context=50,
    audio_width=24,
    audio_heads=3,
    audio_layers=2,
    text_context=32,
    text_width=24,
    text_heads=2,
    text_layers=2,
    mels=80,
)
HEARD = (1, WHISPER.mels, 2 * WHISPER.audio_context)
SAID = Dim("S", min=1, max=WHISPER.text_context - 1)
B, S, LONG = Dim("B", min=1, max=4), Dim("S", min=1, max=33), Dim("S", min=1, max=40)
H, W = Dim("H", min=16, max=48), Dim("W", min=16, max=48)
B5 = Dim("B", min=1, max=5)  # not 4, the width in patches: probes vary dims of one size together
TALL, WIDE = Dim("H", min=33, max=64), Dim("W", min=33, max=64)  # of 32 and less the last map is 1x1, another graph

MODELS: dict[str, Module] = {
    "bert": model(
        Bert,
        ({0: B, 1: S},) * 3,
        bert_inputs(3, 7),
        *(bert_inputs(b, s) for b, s in [(3, 7), (4, 33), (1, 1), (1, 33), (4, 1), (1, 13), (3, 2)]),
    ),
    "gpt2": model(Gpt2, ({1: LONG},), (Ids((1, 7), 67),), *((Ids((1, s), 67),) for s in (7, 40, 1, 13, 2, 1, 24))),
    "vit": model(Vit, ({0: B5},), *images(*((b, 18, 24) for b in (3, 3, 1, 5, 1)))),
    "resnet18": model(
        ResNet18,
        ({0: B, 2: TALL, 3: WIDE},),
        *images((3, 45, 39), (1, 64, 33), (2, 33, 34), (1, 33, 33), (1, 34, 45), (1, 33, 40), (1, 33, 33)),
        any_batch=True,
    ),
    "mobilenet_v3": model(
        MobileNetV3,
        ({0: B, 2: H, 3: W},),
        *images((3, 31, 23), (1, 48, 48), (4, 16, 17), (1, 16, 16), (3, 19, 16), (1, 47, 18), (1, 17, 16)),
        any_batch=True,
    ),
    "cnn_int8": model(
        Int8Cnn,
        ({0: B, 2: H, 3: W},),
        *images((3, 31, 23), (3, 31, 23), (1, 48, 48), (4, 16, 17), (1, 16, 16), (3, 19, 16), (4, 48, 48), (1, 17, 47)),
        resize=False,
        int8=True,
    ),
    "whisper": Module(
        Whisper,
        methods={
            "encoder": (examples(HEARD), None),
            "text_decoder": (examples(*whisper_step(0, 3)[1]), ({1: SAID}, None, {0: SAID})),
        },
        schedule=[
            ("encoder", (HEARD,)),
            *(whisper_step(first, s) for first, s in [(0, 4), (4, 1), (5, 1), (6, 7), (0, 31), (31, 1)]),
            ("encoder", (HEARD,)),
            *(whisper_step(first, s) for first, s in [(0, 1), (1, 3), (4, 1), (5, 1)]),
        ],
        constants={"get_max_seq_len": 32, "get_vocab_size": 97},
    ),
}
