"""Torch modules for `test_export_module.py`, as a user of `hightide export` writes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 36), nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))


def mlp() -> Any:
    return Mlp(), (torch.randn(3, 16),)


class Block(nn.Module):
    """Causal attention and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(24), nn.LayerNorm(24)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.up, self.down = nn.Linear(24, 96), nn.Linear(96, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = (t.view(b, s, 3, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).split(d, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, d)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.other_norm(x))))


def block() -> Any:
    return Block(), (torch.randn(2, 7, 24),)


class Embedder(nn.Module):
    """Two outputs, and integers as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 12), nn.Linear(12, 50)

    def forward(self, ids: Tensor, weights: Tensor) -> dict[str, Tensor]:
        x = self.tokens(ids) * weights[..., None]
        logits = self.head(x)
        return {"logits": logits, "best": logits.argmax(-1)}


def embedder() -> Any:
    return Embedder(), {"weights": torch.rand(1, 6), "ids": torch.randint(0, 50, (1, 6))}


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(image)))
        x = F.max_pool2d(self.depthwise(x), 2) + F.avg_pool2d(x, 2)
        return self.head(x.mean((2, 3)))


def conv_net() -> Any:
    return ConvNet(), (torch.randn(2, 3, 16, 16),)


class Cache(nn.Module):
    """Keys that are kept at a position, and a count of calls that begins at 3."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(1, 12, 8))
        self.register_buffer("calls", torch.full((1,), 3.0))

    def forward(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(1, pos + torch.arange(x.shape[1]), self.key(x))
        self.calls.add_(1)
        return torch.softmax(x @ self.keys.transpose(1, 2), -1) @ self.keys, self.calls * 2


def cache() -> Any:
    def call(rows: int, pos: int) -> tuple[Tensor, Tensor]:
        return torch.randn(1, rows, 8), torch.tensor([pos])

    checks = [call(12, 0), call(1, 11), [call(5, 0), call(1, 5), call(3, 6)]]
    return Cache(), call(4, 0), {"dynamic_shapes": "x:1=S<=12", "checks": checks}


class Slots(nn.Module):
    """Writes to the first rows of a buffer: the exporter passes a size that nobody reads to a delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("rows", torch.zeros(1, 16, 8))
        self.register_buffer("total", torch.ones(1, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        self.total.add_(y.sum(1))
        self.rows[:, : x.shape[1]] = y
        return y + self.total[:, None], self.rows.sum(1)


def slots() -> Any:
    return Slots(), (torch.randn(1, 5, 8),), {"dynamic_shapes": "x:1=S<=16"}


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x - 1, (x,))


def branches() -> Any:
    return Branches(), (torch.randn(6, 4),), {"checks": [(torch.rand(6, 4),), (-torch.rand(6, 4),)]}


class Nonzero(nn.Module):
    """How many rows there are depends on the values: the host finds out."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0).float().sum(0) + x.sum()


def nonzero() -> Any:
    return Nonzero(), (torch.randn(4, 5),)


class Pair(nn.Module):
    """A dict and a list of tensors as inputs; one dim is twice another."""

    def forward(self, x: Tensor, more: dict[str, list[Tensor]]) -> Tensor:
        return torch.cat([x, x], 1) + more["b"][0]


def pair() -> Any:
    return Pair(), (torch.randn(2, 3), {"b": [torch.randn(2, 6)]}), {"dynamic_shapes": ["x:1=S<=9", "more_0:1=2*S"]}


class Chooses(nn.Module):
    """A Python `if` on a value, which cannot be traced."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


def chooses() -> Any:
    return Chooses(), (torch.randn(4),)


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("this model has no weights")


def raises() -> Any:
    return Raises(), (torch.randn(4),)


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(5)


def fixed() -> Any:
    return Fixed(), (torch.randn(5),)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


def in_place() -> Any:
    return InPlace(), (torch.randn(5),)


class Upsample(nn.Module):
    """ExecuTorch neither delegates nor decomposes this `interpolate` where a dim varies."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.interpolate(F.silu(self.norm(self.conv(x))), scale_factor=2, mode="nearest")
        return x, F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)


def upsample() -> Any:
    return Upsample(), (torch.randn(1, 4, 8, 8),), {"dynamic_shapes": "x:2=H<=12"}


class Picky(nn.Module):
    """Takes no fewer than 3 rows, which the tracer does not see."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and x.shape[0] < 3:
            raise ValueError("too few rows")
        return x * 2


def picky() -> Any:
    return Picky(), (torch.randn(5, 2),)


class Noisy(nn.Module):
    """Not what the program computes: eager adds something."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if torch.compiler.is_exporting() else x * 2 + (x.shape[0] == 9)


def noisy() -> Any:
    return Noisy(), (torch.randn(5, 2),)
