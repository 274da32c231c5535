"""Torch modules for `make_programs.py`: live shapes outside of an LLM, and what stays outside a delegate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim


@dataclass(frozen=True)
class Ids:
    """An int64 input of values from 0 to below `end`."""

    shape: tuple[int, ...]
    end: int


@dataclass(frozen=True)
class Pixels:
    """A float32 input of 256 values around 0, as normalised images have."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Places:
    """An int64 input of numbers from `first` to below `end`."""

    first: int
    end: int


Shape = tuple[int, ...] | int | Ids | Pixels | Places  # of a float32 input; or the value of an int64 [1] one


@dataclass(frozen=True)
class Module:
    make: type[nn.Module]
    methods: dict[str, tuple[Callable[[], tuple[Tensor, ...]], Any]]  # name: (example inputs, dynamic shapes)
    schedule: list[tuple[str, tuple[Shape, ...]]]  # (method, its inputs)
    delegate: bool = True
    resize: bool = True  # delegate only what the exporter says can resize: nothing in 8 bits
    any_batch: bool = False  # delegate convolutions of any batch: the exporter's own runtime takes one image
    int8: bool = False  # quantised through PT2E, with 8-bit activations
    int4: bool = False  # linears quantised by torchao: 4-bit weights, rows rounded to 8 bits as they come
    backend: str = "vulkan"  # or "xnnpack": whose partitioner
    untransposed: bool = False  # pairs of transposes that undo each other are taken out first, as for the Llamas
    refuse: tuple[str, ...] = ()  # ops that must not be delegated
    first_values: tuple[str, ...] = ()  # buffers whose first value the program keeps
    constants: dict[str, Any] = field(default_factory=dict)  # constant methods

    def steps(self) -> list[tuple[str, tuple[np.ndarray, ...]]]:
        rng = np.random.default_rng(0)
        return [(method, tuple(array(shape, rng) for shape in shapes)) for method, shapes in self.schedule]


def array(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    if isinstance(shape, Ids):
        return rng.integers(0, shape.end, shape.shape)
    if isinstance(shape, Places):
        return np.arange(shape.first, shape.end)
    if isinstance(shape, Pixels):
        return (rng.integers(-128, 128, shape.shape) / 64).astype(np.float32)
    return np.array([shape]) if isinstance(shape, int) else rng.standard_normal(shape).astype(np.float32)


def examples(*shapes: Shape) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.from_numpy(array(shape, np.random.default_rng(0))) for shape in shapes)


class TwoDims(nn.Module):
    """Attention without a cache over [B, S, 16], B and S both live, in one delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 54)
        self.out = nn.Linear(18, 16)
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        heads = self.qkv(x).view(b, s, 3, 18).permute(0, 2, 1, 3).reshape(b * 3, s, 18)
        q, k, v = heads.split(6, dim=-1)  # [3B, S, 6]
        scores = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 6**-0.5, dim=-1)
        y = torch.bmm(scores, v).view(b, 3, s, 6).permute(0, 2, 1, 3).reshape(b, s, 18)
        return self.out(y) + x + self.bias


class SymIntsBetween(TwoDims):
    """The same with a 4-D matmul: its expand stays outside, so SymInts go from delegate to delegate."""

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, 18).permute(0, 2, 1, 3).split(6, dim=-1)  # [B, 3, S, 6]
        scores = torch.softmax(q @ k.transpose(-1, -2) * 6**-0.5, dim=-1)
        return self.out((scores @ v).permute(0, 2, 1, 3).reshape(b, s, 18)) + x + self.bias


class Partial(nn.Module):
    """Two delegates with a topk and a cumsum between them and a cumsum after them, in float64, which no GPU has."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 20)
        self.second = nn.Linear(11, 9)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.sigmoid(self.first(x))  # no ties: the order of equal values in a topk is not defined
        values, order = torch.topk(y.double(), 11, dim=-1)
        z = torch.softmax(self.second(torch.cumsum(values, dim=0).float()), dim=-1)
        return z, order, torch.cumsum(z.double(), dim=-1).float()


class Counter(nn.Module):
    """Buffers that portable kernels update at every call (one has a first value), a second method, constant methods."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.full((1,), 5))
        self.register_buffer("total", torch.zeros(8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.linear(x)
        self.calls.add_(1)
        self.total.add_(torch.relu(y).select(0, -1))
        return y, self.calls.clone(), self.total.clone()

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x) * torch.sigmoid(y)


class Portable(nn.Module):
    """No delegate at all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 14)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.softmax(self.linear(x), dim=-1)
        y = torch.where(y > 0.1, y, torch.zeros_like(y)) + torch.cumsum(y, dim=0)
        return torch.cat([y, y.mean(dim=-1, keepdim=True)], dim=-1).transpose(0, 1), torch.argmax(y, dim=-1)


class Wide(nn.Module):
    """Nothing but float64: all of it runs on NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.randn(10, dtype=torch.float64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cumsum(x.double() + self.bias, dim=0)
        return y, torch.argmax(y, dim=-1)


class SymInts(nn.Module):
    """Sizes of intermediates, after cat and slice; halves, products and sums of them in views."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 10)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        pairs = x.view(x.size(0) // 2, 24)  # [S/2, 24]
        both = torch.cat([x, torch.relu(y), x + 1], dim=0)  # [2S + T, 12]
        n = both.size(0)
        thirds = both.view(n * 3, 4) * 2
        tail = thirds[x.size(0) * 3 :]  # [3(S + T), 4]
        return self.linear(pairs), tail.reshape(tail.size(0) // 3, 2, 6).permute(1, 0, 2) + 0.5


class ValueShape(nn.Module):
    """A live dim that is the value of an input: the first n rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 10)

    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        rows = n.item()
        torch._check(rows >= 1)
        torch._check(rows <= x.size(0))
        y = torch.narrow(x, 0, 0, rows)  # [n, 12]
        return self.linear(y), torch.sigmoid(y.view(rows * 2, 6))


class Slices(nn.Module):
    """Selects and slices that count from the live end, and with SymInt bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(32, 12))

    def forward(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        s, t = x.size(0), z.size(0)
        y = x * 2 + self.table[:s]
        ends = y.select(0, -1) + y.select(0, -2)
        return ends, y[1 : s - 1] + self.table[1 : s - 1], torch.sigmoid(y[t:]) * 3, y[-3:, 2:9:3] + z.select(0, -1)[:3]


class Cond(nn.Module):
    """torch.cond: the branch is taken from the data of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: torch.relu(x) - 2.0, (x,))
        return torch.sigmoid(y) + x


S, B, T, HALF = Dim("S", min=1, max=33), Dim("B", min=1, max=4), Dim("T", min=1, max=9), Dim("half", min=1, max=10)
SLICED = Dim("S", min=11, max=32)
BATCHES = [(b, s, 16) for b, s in [(4, 33), (1, 1), (3, 7), (2, 32), (4, 1), (1, 33), (2, 13)]]


def one_input(example: Shape, dynamic_shapes: Any, shapes: list[Shape]) -> dict[str, Any]:
    return dict(
        methods={"forward": (examples(example), dynamic_shapes)},
        schedule=[("forward", (shape,)) for shape in shapes],
    )


def rows(width: int, *live: int) -> list[Shape]:
    return [(s, width) for s in live]


MODULES: dict[str, Module] = {
    "two_dims": Module(TwoDims, **one_input((3, 7, 16), ({0: B, 1: S},), BATCHES)),
    "symints_between": Module(SymIntsBetween, **one_input((3, 7, 16), ({0: B, 1: S},), BATCHES)),
    "partial": Module(Partial, **one_input((7, 12), ({0: S},), rows(12, 7, 1, 33, 13, 2, 33, 1))),
    "counter": Module(
        Counter,
        methods={
            "forward": (examples((7, 8)), ({0: S},)),
            "project": (examples((5, 8), (5, 8)), ({0: T}, {0: T})),
        },
        schedule=[
            ("project", ((-s, 8), (-s, 8))) if s < 0 else ("forward", ((s, 8),)) for s in (7, -9, 1, 33, -1, 13, -5, 1)
        ],
        constants={"get_max_seq_len": 33, "get_scale": 0.5, "use_cache": True, "get_ids": [1, 2, 3]},
        # A delegate takes a buffer in and drops its updates, so keep them out; and keep the first value of `calls`.
        refuse=("aten.add.Tensor",),
        first_values=("calls",),
    ),
    "portable": Module(Portable, **one_input((7, 10), ({0: S},), rows(10, 7, 1, 33, 13, 33)), delegate=False),
    "wide": Module(Wide, **one_input((7, 10), ({0: S},), rows(10, 7, 1, 33, 13)), delegate=False),
    "symints": Module(
        SymInts,
        methods={"forward": (examples((6, 12), (5, 12)), ({0: 2 * HALF}, {0: T}))},
        schedule=[("forward", ((s, 12), (t, 12))) for s, t in [(20, 9), (2, 1), (6, 5), (14, 3), (2, 9), (20, 1)]],
    ),
    "value_shape": Module(
        ValueShape,
        methods={"forward": (examples((7, 12), 3), ({0: S}, None))},
        schedule=[("forward", ((s, 12), n)) for s, n in [(7, 3), (33, 33), (33, 1), (13, 12), (2, 2), (33, 17)]],
    ),
    "slices": Module(
        Slices,
        methods={"forward": (examples((17, 12), (5, 12)), ({0: SLICED}, {0: T}))},
        schedule=[("forward", ((s, 12), (t, 12))) for s, t in [(17, 5), (32, 9), (11, 1), (13, 9), (31, 2), (11, 9)]],
    ),
    "cond": Module(Cond, **one_input((7, 6), ({0: S},), rows(6, 7, 1, 33, 13, 2, 1, 33, 5, 3))),
}
