"""Encoders, image, speech and diffusion models for `model_exports.py`, small and written as their papers have them.

Attention is torch's own function here, which the exporter takes apart into 4-D products: their expands stay outside
the delegates. `models.py` has other models, whose attention is one delegate.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from models import Inverted, conv, scatter_weights
from modules import Ids, Module, Pixels, Shape, examples
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

WIDTH, HEADS = 24, 3


class Attention(nn.Module):
    """Of x over itself, or over `other`."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x: Tensor, other: Tensor | None = None, mask: Tensor | None = None, scale: float | None = None):
        other = x if other is None else other
        q, k, v = (
            y.view(y.size(0), y.size(1), self.heads, -1).transpose(1, 2)
            for y in (self.query(x), self.key(other), self.value(other))
        )
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return self.dense(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Norms first; with `cross`, attention over another sequence between the two halves."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, cross: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.across = Attention(width, heads) if cross else None
        self.norm3 = nn.LayerNorm(width) if cross else None
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask=mask)
        if self.across is not None and self.norm3 is not None:
            x = x + self.across(self.norm3(x), other)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def future(most: int) -> Tensor:
    """One row more than the largest size: a slice that may be all of a table is not exported."""
    return torch.full((most + 1, most + 1), -1e9).triu(1)


class WhisperEncoder(nn.Module):
    """Whisper's encoder: two convolutions over frames of sound, then attention; length live"""

    bands, width, heads, layers, most = 20, WIDTH, HEADS, 2, 40

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(self.bands, self.width, 3, padding=1)
        self.second = nn.Conv1d(self.width, self.width, 3, stride=2, padding=1)
        self.register_buffer("positions", torch.randn(self.most + 1, self.width) * 0.1)
        self.blocks = nn.ModuleList(Block(self.width, self.heads) for _ in range(self.layers))
        self.norm = nn.LayerNorm(self.width)
        scatter_weights(self)

    def forward(self, sound: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(sound)))).transpose(1, 2)
        x = x + self.positions[: x.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class WhisperDecoder(nn.Module):
    """Whisper's decoder: causal attention, then attention over the frames; tokens and frames live"""

    vocabulary, width, heads, layers, most = 67, WIDTH, HEADS, 2, 24

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.vocabulary, self.width)
        self.positions = nn.Parameter(torch.randn(self.most + 1, self.width) * 0.1)
        self.register_buffer("mask", future(self.most))
        self.blocks = nn.ModuleList(Block(self.width, self.heads, cross=True) for _ in range(self.layers))
        self.norm = nn.LayerNorm(self.width)
        scatter_weights(self)

    def forward(self, ids: Tensor, frames: Tensor) -> Tensor:
        s = ids.size(1)
        x = self.tokens(ids) + self.positions[:s]
        for block in self.blocks:
            x = block(x, self.mask[:s, :s], frames)
        return functional.linear(self.norm(x), self.tokens.weight)


class Dinov2(nn.Module):
    """DINOv2: a class token, registers and layer scales; batch live"""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 6, stride=6)
        self.first, self.registers = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 2, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 13, WIDTH) * 0.1)
        self.norm1, self.norm2 = (nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2)) for _ in range(2))
        self.attention = nn.ModuleList(Attention() for _ in range(2))
        self.gate, self.down = (nn.ModuleList(nn.Linear(WIDTH, n) for _ in range(2)) for n in (2 * WIDTH, WIDTH))
        self.scales = nn.Parameter(torch.randn(4, WIDTH) * 0.5)
        self.norm = nn.LayerNorm(WIDTH)
        scatter_weights(self)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.size(0), -1, -1), x], dim=1) + self.positions
        x = torch.cat([x[:, :1], self.registers.expand(x.size(0), -1, -1), x[:, 1:]], dim=1)
        for n in range(2):
            x = x + self.attention[n](self.norm1[n](x)) * self.scales[n]
            gate, up = self.gate[n](self.norm2[n](x)).chunk(2, dim=-1)
            x = x + self.down[n](functional.silu(gate) * up) * self.scales[2 + n]
        x = self.norm(x)
        return x[:, 0], x[:, 3:]


class Deit(nn.Module):
    """DeiT: a class token and one for distillation, the mean of two heads; batch live"""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 6, stride=6)
        self.first, self.positions = nn.Parameter(torch.randn(1, 2, WIDTH)), nn.Parameter(torch.randn(1, 14, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head1, self.head2 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10), nn.Linear(WIDTH, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.size(0), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return (self.head1(x[:, 0]) + self.head2(x[:, 1])) / 2


class DeepLab(nn.Module):
    """DeepLab's head: dilated convolutions, pooling over the image, enlarged to its size; height and width live"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, 3, 2, act=nn.ReLU), conv(8, 12, 3, 2, act=nn.ReLU))
        self.dilated = nn.ModuleList(nn.Conv2d(12, 8, 3, padding=d, dilation=d) for d in (1, 2, 3))
        self.pooled, self.join, self.classes = nn.Conv2d(12, 8, 1), conv(32, 12, 1, act=nn.ReLU), nn.Conv2d(12, 5, 1)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        mean = torch.relu(self.pooled(x.mean(dim=(2, 3), keepdim=True)))
        mean = functional.interpolate(mean, size=x.shape[2:], mode="bilinear", align_corners=False)
        x = self.classes(self.join(torch.cat([*(torch.relu(each(x)) for each in self.dilated), mean], dim=1)))
        return functional.interpolate(x, size=image.shape[2:], mode="bilinear", align_corners=False)


class Edsr(nn.Module):
    """EDSR: residual blocks, then pixels shuffled to twice the size; height and width live"""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 3, 3, padding=1)
        self.bodies = nn.ModuleList(
            nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1)) for _ in range(2)
        )
        self.up = nn.Conv2d(12, 48, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        x = first = self.first(image)
        for body in self.bodies:
            x = x + body(x) * 0.1
        return self.last(functional.pixel_shuffle(self.up(x + first), 2))


class Wav2Letter(nn.Module):
    """wav2letter: convolutions over sound, probabilities of letters; length live"""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(1, 12, 24, 8, 12), (12, 12, 7, 1, 3), (12, 20, 8, 1, 4), (20, 11, 1, 1, 0)]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, k, stride, padding) for a, b, k, stride, padding in sizes)

    def forward(self, sound: Tensor) -> Tensor:
        x = sound
        for n, layer in enumerate(self.layers):
            x = layer(x) if n == len(self.layers) - 1 else torch.relu(layer(x))
        return functional.log_softmax(x, dim=1)


class SileroVad(nn.Module):
    """Silero's voice activity: a spectrum by a convolution, an encoder, an LSTM whose state goes in and out"""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 34, 32, stride=16, bias=False)
        shapes = [(17, 16, 1), (16, 8, 2), (8, 16, 2)]
        self.encoder = nn.ModuleList(nn.Conv1d(a, b, 3, stride, 1) for a, b, stride in shapes)
        self.cell, self.last = nn.LSTMCell(16, 16), nn.Conv1d(16, 1, 1)

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.spectrum(functional.pad(sound, (0, 8), mode="reflect")[:, None])
        x = (x[:, :17] ** 2 + x[:, 17:] ** 2).sqrt()
        for layer in self.encoder:
            x = torch.relu(layer(x))
        h, c = self.cell(x[:, :, -1], (state[0], state[1]))
        speech = torch.sigmoid(self.last(torch.relu(h)[:, :, None]))
        return speech.squeeze(1).mean(dim=1, keepdim=True), torch.stack([h, c])


class TwoLstms(nn.Module):
    """Two layers of LSTM, there and back; batch live"""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(10, 12, 2, batch_first=True, bidirectional=True), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, _) = self.cells(x)
        return self.head(y), h


class Gru(nn.Module):
    """A GRU and a head; batch live"""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(10, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, x: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.cells(x, first)
        return self.head(y), h


class MobileNetV2(nn.Module):
    """MobileNet V2: inverted residuals with ReLU6; batch, height and width live"""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(8, 16, 8, 1), (8, 24, 12, 2), (12, 36, 12, 1), (12, 36, 16, 2)]
        self.body = nn.Sequential(
            conv(3, 8, 3, 2, act=nn.ReLU6),
            *(Inverted(a, inner, b, 3, stride, False, nn.ReLU6) for a, inner, b, stride in shapes),
            conv(16, 40, 1, act=nn.ReLU6),
        )
        self.head = nn.Linear(40, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.body(image), 1).flatten(1))


class Bottleneck(nn.Module):
    def __init__(self, wide: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(wide, inner, 1, act=nn.ReLU), conv(inner, inner, 3, stride, act=nn.ReLU), conv(inner, out, 1)
        )
        self.skip = conv(wide, out, 1, stride) if stride > 1 or wide != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet50(nn.Module):
    """ResNet with bottlenecks and a max pool; batch, height and width live"""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = conv(3, 8, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(Bottleneck(8, 6, 16, 1), Bottleneck(16, 6, 16, 1), Bottleneck(16, 8, 24, 2))
        self.head = nn.Linear(24, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(self.pool(self.stem(image))).mean(dim=(2, 3)))


class Inception(nn.Module):
    """Inception's branches: 1x1, 5x5 by two, 1x7 and 7x1, and an average pool, joined; height and width live"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8, 3, 2, act=nn.ReLU)
        self.one, self.pooled = conv(8, 6, 1, act=nn.ReLU), conv(8, 4, 1, act=nn.ReLU)
        self.five = nn.Sequential(conv(8, 6, 3, act=nn.ReLU), conv(6, 6, 3, act=nn.ReLU))
        self.seven = nn.Sequential(nn.Conv2d(8, 6, (1, 7), padding=(0, 3)), nn.Conv2d(6, 6, (7, 1), padding=(3, 0)))
        self.head = nn.Linear(22, 10)
        scatter_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        mean = functional.avg_pool2d(x, 3, stride=1, padding=1)
        x = torch.cat([self.one(x), self.five(x), torch.relu(self.seven(x)), self.pooled(mean)], dim=1)
        return self.head(functional.max_pool2d(x, 3, 2).mean(dim=(2, 3)))


class Stage(nn.Module):
    """Of a U-Net: group norms, SiLU, and the time added."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, wide), nn.GroupNorm(4, out)
        self.conv1, self.conv2 = nn.Conv2d(wide, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(16, out), nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


def waves(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of a step of diffusion."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2) / (width // 2))
    angles = time[:, None].float() * rates[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class UNet(nn.Module):
    """A U-Net of diffusion: group norms, skips, halved and doubled sizes; height and width live"""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.down1, self.down2, self.middle = Stage(8, 8), Stage(8, 12), Stage(12, 12)
        self.shrink1, self.shrink2 = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(12, 12, 3, 2, 1)
        self.grow2, self.up2, self.up1 = nn.ConvTranspose2d(12, 12, 2, 2), Stage(24, 8), Stage(16, 8)
        scatter_weights(self)

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        t = self.time(waves(time, 16))
        one = self.down1(self.first(image), t)
        two = self.down2(self.shrink1(one), t)
        x = self.grow2(self.middle(self.shrink2(two), t))
        x = self.up2(torch.cat([x, two], dim=1), t)
        x = functional.interpolate(x, size=one.shape[2:], mode="nearest")
        return self.last(functional.silu(self.up1(torch.cat([x, one], dim=1), t)))


class BertEncoder(nn.Module):
    """BERT with torch's attention and a mask of padding; batch and length live"""

    vocabulary, width, heads, layers, most = 61, WIDTH, HEADS, 2, 33

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(self.vocabulary, self.width), nn.Embedding(2, self.width)
        self.positions = nn.Embedding(self.most, self.width)
        self.norm = nn.LayerNorm(self.width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(self.width, self.heads) for _ in range(self.layers))
        self.pooler = nn.Linear(self.width, self.width)
        scatter_weights(self)

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        s = ids.size(1)
        x = self.norm(self.words(ids) + self.types(types) + self.positions(torch.arange(s)))
        hidden = (1.0 - mask[:, None, None, :].float()) * -1e9
        for block in self.blocks:
            x = block(x, hidden.expand(-1, -1, s, -1))
        return x, torch.tanh(self.pooler(x[:, 0]))


class Embedder(BertEncoder):
    """A BERT whose rows are averaged where the mask says, and normalised; batch and length live"""

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        x, _ = super().forward(ids, types, mask)
        kept = mask[:, :, None].float()
        return functional.normalize((x * kept).sum(1) / kept.sum(1).clamp(min=1e-9), dim=-1)


class DitBlock(nn.Module):
    """Norms without weights, shifted and scaled by the condition, which gates the branches too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention, self.modulation = Attention(width, heads), nn.Linear(width, 6 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(functional.silu(condition))[:, None].chunk(6, -1)
        x = x + gate1 * self.attention(self.norm(x) * (1 + scale1) + shift1)
        y = self.norm(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(functional.gelu(self.up(y), approximate="tanh"))


class Dit(nn.Module):
    """DiT: patches of a latent, blocks modulated by time and class, back to a latent; batch live"""

    width, heads, layers, side = WIDTH, HEADS, 2, 8

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(16, self.width)
        self.positions = nn.Parameter(torch.randn(1, (self.side // 2) ** 2, self.width) * 0.3)
        self.time = nn.Sequential(nn.Linear(32, self.width), nn.SiLU(), nn.Linear(self.width, self.width))
        self.classes = nn.Embedding(11, self.width)
        self.blocks = nn.ModuleList(DitBlock(self.width, self.heads) for _ in range(self.layers))
        self.norm = nn.LayerNorm(self.width, elementwise_affine=False, eps=1e-6)
        self.modulation, self.last = nn.Linear(self.width, 2 * self.width), nn.Linear(self.width, 32)

    def forward(self, latent: Tensor, time: Tensor, label: Tensor) -> Tensor:
        b, n = latent.size(0), self.side // 2
        x = latent.view(b, 4, n, 2, n, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, n * n, 16)
        x = self.patches(x) + self.positions
        condition = self.time(waves(time, 32)) + self.classes(label)
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(functional.silu(condition))[:, None].chunk(2, dim=-1)
        x = self.last(self.norm(x) * (1 + scale) + shift)
        return x.view(b, n, n, 8, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(b, 8, self.side, self.side)


class T5Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class T5(nn.Module):
    """T5: encoder and decoder with biases by buckets of distance; both lengths live"""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(53, WIDTH)
        self.near, self.past = nn.Embedding(8, HEADS), nn.Embedding(8, HEADS)
        self.attention = nn.ModuleList(Attention(bias=False) for _ in range(3))  # of the encoder, the decoder, across
        self.norms = nn.ModuleList(T5Norm() for _ in range(7))
        self.ups, self.downs = (
            nn.ModuleList(nn.Linear(a, b, bias=False) for _ in range(2)) for a, b in [(24, 40), (40, 24)]
        )
        scatter_weights(self)

    def bias(self, table: nn.Embedding, size: int, both_ways: bool) -> Tensor:
        """[1, heads, size, size]: exact for near ones, then wider and wider."""
        distance = torch.arange(size)[None] - torch.arange(size)[:, None]  # of a key from its query
        buckets = 8
        found = torch.zeros_like(distance)
        if both_ways:
            buckets //= 2
            found = found + (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = -torch.minimum(distance, torch.zeros_like(distance))
        exact = buckets // 2
        far = exact + (torch.log(distance.float() / exact + 1e-6) / math.log(16 / exact) * (buckets - exact)).long()
        far = torch.minimum(far, torch.full_like(far, buckets - 1))
        return table(found + torch.where(distance < exact, distance, far)).permute(2, 0, 1)[None]

    def feed_forward(self, n: int, x: Tensor) -> Tensor:
        return x + self.downs[n](torch.relu(self.ups[n](self.norms[n](x))))

    def forward(self, ids: Tensor, given: Tensor) -> Tensor:
        x, y = self.tokens(ids), self.tokens(given)
        x = x + self.attention[0](self.norms[2](x), mask=self.bias(self.near, ids.size(1), True), scale=1.0)
        x = self.norms[3](self.feed_forward(0, x))
        t = given.size(1)
        later = torch.arange(t)[None] > torch.arange(t)[:, None]
        mask = self.bias(self.past, t, False).masked_fill(later, -1e9)
        y = y + self.attention[1](self.norms[4](y), mask=mask, scale=1.0)
        y = self.feed_forward(1, y + self.attention[2](self.norms[5](y), x, scale=1.0))
        return functional.linear(self.norms[6](y) * WIDTH**-0.5, self.tokens.weight)


class Clip(nn.Module):
    """CLIP: a tower of images and one of texts, and how near each is to each; images, texts and length live"""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, WIDTH, 6, stride=6), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 13, WIDTH) * 0.3)
        self.tokens, self.positions = nn.Embedding(59, WIDTH), nn.Parameter(torch.randn(21, WIDTH) * 0.3)
        self.seeing, self.reading = (nn.ModuleList(Block() for _ in range(2)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.project1, self.project2 = (nn.Linear(WIDTH, 16, bias=False) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mask", future(20))

    def forward(self, image: Tensor, ids: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = self.norms[0](torch.cat([self.first.expand(x.size(0), -1, -1), x], dim=1) + self.places)
        for block in self.seeing:
            x = block(x)
        s = ids.size(1)
        y = self.tokens(ids) + self.positions[:s]
        for block in self.reading:
            y = block(y, self.mask[:s, :s])
        last = ids.argmax(dim=-1)[:, None, None].expand(-1, 1, WIDTH)  # the largest id ends a text
        y = self.norms[2](y).gather(1, last)[:, 0]
        pictures = functional.normalize(self.project1(self.norms[1](x[:, 0])), dim=-1)
        texts = functional.normalize(self.project2(y), dim=-1)
        return self.scale.exp() * pictures @ texts.t()


class Conformer(nn.Module):
    """A conformer: half feed-forwards, attention, gated depthwise convolutions; length live"""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.ups, self.downs = (nn.ModuleList(nn.Linear(a, b) for _ in range(2)) for a, b in [(24, 48), (48, 24)])
        self.attention, self.gate = Attention(), nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise, self.point = nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH), nn.Conv1d(WIDTH, WIDTH, 1)
        self.batch_norm = nn.BatchNorm1d(WIDTH)
        scatter_weights(self)

    def half(self, n: int, x: Tensor) -> Tensor:
        return x + 0.5 * self.downs[n](functional.silu(self.ups[n](self.norms[n](x))))

    def forward(self, x: Tensor) -> Tensor:
        x = self.half(0, x)
        x = x + self.attention(self.norms[2](x))
        y = functional.glu(self.gate(self.norms[3](x).transpose(1, 2)), dim=1)
        x = x + self.point(functional.silu(self.batch_norm(self.depthwise(y)))).transpose(1, 2)
        return self.norms[4](self.half(1, x))


B, B5, S, LONG = Dim("B", min=1, max=4), Dim("B", min=1, max=5), Dim("S", min=1, max=33), Dim("T", min=1, max=40)
H, W, N, TEXT = Dim("H", min=16, max=40), Dim("W", min=16, max=40), Dim("N", min=1, max=3), Dim("S", min=1, max=20)
HALF, TOKENS, SOUND = Dim("half", min=1, max=40), Dim("S", min=1, max=24), Dim("T", min=64, max=400)
FOURTH1, FOURTH2 = Dim("h", min=2, max=8), Dim("w", min=2, max=8)
STREAMS, LATER = Dim("B", min=1, max=6), Dim("T", min=1, max=24)


def net(make: type[nn.Module], live: tuple, *steps: tuple[Shape, ...], **options: Any) -> Module:
    """The first step is the example."""
    return Module(make, {"forward": (examples(*steps[0]), live)}, [("forward", step) for step in steps], **options)


def images(make: type[nn.Module], *sizes: tuple[int, int, int], **options: Any) -> Module:
    live = ({0: B, 2: H, 3: W},) if any(b > 1 for b, _, _ in sizes) else ({2: H, 3: W},)
    return net(make, live, *((Pixels((b, 3, h, w)),) for b, h, w in sizes), **options)


def bert_inputs(b: int, s: int) -> tuple[Shape, ...]:
    return Ids((b, s), 61), Ids((b, s), 2), Ids((b, s), 2)


SIZES = [(1, 31, 23), (1, 40, 40), (1, 16, 17), (1, 16, 16), (1, 27, 16), (1, 39, 18), (1, 40, 17)]
BATCHES = [(3, 31, 23), (1, 40, 40), (4, 16, 17), (1, 16, 16), (2, 27, 16), (4, 40, 40), (1, 39, 18)]
TEXTS = [(3, 7), (4, 33), (1, 1), (1, 33), (4, 1), (1, 13), (2, 17)]
VIEWS = [(Pixels((b, 3, 18, 24)),) for b in (3, 1, 5, 2, 1)]
PAIRS = [
    (Pixels((b, 3, 18, 24)), Ids((n, s), 59))
    for b, n, s in [(4, 2, 7), (5, 3, 20), (1, 1, 1), (1, 3, 13), (5, 1, 2), (2, 2, 11)]
]

NETWORKS: dict[str, Module] = {
    "whisper_encoder": net(
        WhisperEncoder, ({2: 2 * HALF},), *(((1, 20, 2 * n),) for n in (7, 40, 1, 13, 2, 20, 1, 39))
    ),
    "whisper_decoder": net(
        WhisperDecoder,
        ({1: TOKENS}, {1: LONG}),
        *((Ids((1, s), 67), (1, t, 24)) for s, t in [(7, 13), (24, 40), (1, 1), (1, 40), (24, 1), (11, 20), (1, 13)]),
    ),
    "dinov2": net(Dinov2, ({0: B5},), *VIEWS, any_batch=True),
    "deit": net(Deit, ({0: B5},), *VIEWS, any_batch=True),
    "deeplab": images(DeepLab, *SIZES),
    "edsr": images(Edsr, *SIZES),
    "wav2letter": net(Wav2Letter, ({2: SOUND},), *(((1, 1, t),) for t in (131, 400, 64, 201, 65, 64))),
    "silero_vad": net(
        SileroVad, ({0: STREAMS}, {1: STREAMS}), *(((b, 72), (2, b, 16)) for b in (3, 1, 6, 2, 5, 1)), any_batch=True
    ),
    "lstm": net(TwoLstms, ({0: STREAMS},), *(((b, 5, 10),) for b in (3, 1, 6, 2, 5, 1))),
    "gru": net(Gru, ({0: STREAMS}, {1: STREAMS}), *(((b, 5, 10), (1, b, 12)) for b in (3, 1, 6, 2, 5, 1))),
    "mobilenet_v2": images(MobileNetV2, *BATCHES, any_batch=True),
    "resnet50": images(ResNet50, *BATCHES, any_batch=True),
    "inception": images(Inception, *SIZES),
    "unet": net(
        UNet,
        ({2: 4 * FOURTH1, 3: 4 * FOURTH2}, None),
        *((Pixels((1, 3, 4 * h, 4 * w)), 17 * h) for h, w in [(5, 3), (8, 8), (2, 2), (3, 7), (2, 8), (5, 5)]),
    ),
    "bert_encoder": net(BertEncoder, ({0: B, 1: S},) * 3, *(bert_inputs(*size) for size in TEXTS)),
    "embedder": net(Embedder, ({0: B, 1: S},) * 3, *(bert_inputs(*size) for size in TEXTS)),
    "dit": net(
        Dit,
        ({0: B5}, {0: B5}, {0: B5}),
        *((Pixels((b, 4, 8, 8)), Ids((b,), 1000), Ids((b,), 11)) for b in (3, 1, 5, 2, 1)),
    ),
    "t5": net(
        T5,
        ({1: S}, {1: LATER}),
        *((Ids((1, s), 53), Ids((1, t), 53)) for s, t in [(7, 5), (33, 24), (1, 1), (33, 1), (1, 24), (17, 11)]),
    ),
    "clip": net(
        Clip,
        ({0: B5}, {0: N, 1: TEXT}),
        *PAIRS,
        any_batch=True,
    ),
    "dinov2_xnnpack": net(Dinov2, ({0: B5},), *VIEWS, backend="xnnpack"),
    "deit_xnnpack": net(Deit, ({0: B5},), *VIEWS, backend="xnnpack"),
    "clip_portable": net(Clip, ({0: B5}, {0: N, 1: TEXT}), *PAIRS, delegate=False),
    "conformer": net(Conformer, ({1: S},), *(((1, s, 24),) for s in (7, 33, 1, 13, 2, 17, 1, 33))),
    "conformer_xnnpack": net(
        Conformer, ({1: S},), *(((1, s, 24),) for s in (7, 33, 1, 13, 2, 17, 1, 33)), backend="xnnpack"
    ),
    "unet_portable": net(
        UNet,
        ({2: 4 * FOURTH1, 3: 4 * FOURTH2}, None),
        *((Pixels((1, 3, 4 * h, 4 * w)), 17 * h) for h, w in [(5, 3), (8, 8), (2, 2), (3, 7), (2, 8), (5, 5)]),
        delegate=False,
    ),
    "bert_xnnpack": net(BertEncoder, ({0: B, 1: S},) * 3, *(bert_inputs(*size) for size in TEXTS), backend="xnnpack"),
}


class LargeBert(BertEncoder):
    """BERT, 384 wide, 6 layers; length live"""

    vocabulary, width, heads, layers, most = 2000, 384, 12, 6, 64


class LargeWhisperDecoder(WhisperDecoder):
    """The decoder of Whisper base: 512 wide, 6 layers; tokens and frames live"""

    vocabulary, width, heads, layers, most = 2000, 512, 8, 6, 64


class LargeDit(Dit):
    """DiT-S/2 with a third of its layers: 384 wide, 4 layers, 256 patches; batch live"""

    width, heads, layers, side = 384, 6, 4, 32


FEW, FRAMES, WORDS, PAIR = Dim("S", min=1, max=64), Dim("T", min=1, max=300), Dim("S", min=1, max=64), Dim("B", max=2)

# For `benchmarks/whole.py`: of a size at which people run them. Only made when they are named.
LARGE: dict[str, Module] = {
    "bert_384": net(
        LargeBert, ({1: WORDS},) * 3, *((Ids((1, s), 2000), Ids((1, s), 2), Ids((1, s), 2)) for s in (7, 64))
    ),
    "whisper_decoder_512": net(
        LargeWhisperDecoder,
        ({1: FEW}, {1: FRAMES}),
        *((Ids((1, s), 2000), (1, t, 512)) for s, t in [(7, 13), (1, 300)]),
    ),
    "dit_384": net(
        LargeDit, ({0: PAIR},) * 3, *((Pixels((b, 4, 32, 32)), Ids((b,), 1000), Ids((b,), 11)) for b in (2, 1))
    ),
}
