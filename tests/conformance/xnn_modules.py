"""Torch modules for `make_programs.py` that are lowered for XNNPACK: in floats, and in its 8- and 4-bit forms."""

from __future__ import annotations

import torch
from models import scatter_weights
from modules import Module, Pixels, Shape, examples, one_input
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional


class XnnBlock(nn.Module):
    """A transformer block over [B, S, 16], B and S live; its norms and views stay outside the delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16, bias=False)
        self.up, self.down = nn.Linear(16, 36), nn.Linear(36, 16)
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        scatter_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, s, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) * 8**-0.5, dim=-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(b, s, 16))
        return x + torch.tanh(self.down(functional.gelu(self.up(self.after(x)))))


class XnnImages(nn.Module):
    """Every kind of convolution and pool, a residual, a squeeze and excitation, a resize: NHWC inside the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 5, padding=2, groups=8), nn.Conv2d(8, 8, 1)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.grouped = nn.Conv2d(8, 12, 3, dilation=2, padding=2, groups=2)
        self.slopes = nn.PReLU(12)
        self.larger = nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.classify = nn.Linear(12, 5)
        scatter_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(self.norm(self.first(x)))
        y = functional.hardswish(self.pointwise(torch.relu(self.depthwise(x))))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        x = functional.max_pool2d(x + y * gate, 3, stride=2, padding=1)
        x = functional.elu(self.larger(self.slopes(self.grouped(x))))
        small = functional.avg_pool2d(functional.pad(x, (1, 0, 0, 1), value=0.25), 2)
        wide = functional.interpolate(small, size=(12, 10), mode="bilinear", align_corners=True)[:, 1:5, 2:]
        x = torch.cat([x.mean((2, 3), keepdim=True), wide.mean((2, 3), keepdim=True)], dim=1).flatten(1)
        return self.classify(functional.pad(x, (0, 2)))


class XnnInt8(nn.Module):
    """Convolutions and a linear over 8-bit codes with scales known beforehand, a residual between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.depthwise = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise, self.classify = nn.Conv2d(8, 8, 1), nn.Linear(8, 6)
        scatter_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = functional.max_pool2d(x + self.pointwise(torch.relu(self.depthwise(x))), 2)
        return self.classify(x.mean((2, 3), keepdim=True).flatten(1))


class XnnInt4(nn.Module):
    """Linears of 4-bit weights over rows that are rounded to 8 bits as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 96), nn.Linear(64, 96, bias=False), nn.Linear(96, 64)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.silu(self.gate(x)) * self.up(x))


S, B = Dim("S", min=1, max=33), Dim("B", min=1, max=4)
BATCHES: list[Shape] = [(b, s, 16) for b, s in [(4, 33), (1, 1), (3, 7), (2, 32), (4, 1), (1, 33), (2, 13)]]


def images(make: type[nn.Module], height: int, width: int, **options: bool) -> Module:
    """B live, as is usual on phones; the size is the camera's."""
    return Module(
        make,
        methods={"forward": (examples((3, 3, height, width)), ({0: B},))},
        schedule=[("forward", (Pixels((b, 3, height, width)),)) for b in (3, 1, 4, 2, 1, 3)],
        backend="xnnpack",
        **options,
    )


XNN_MODULES: dict[str, Module] = {
    "xnn_block": Module(XnnBlock, **one_input((3, 7, 16), ({0: B, 1: S},), BATCHES), backend="xnnpack"),
    "xnn_images": images(XnnImages, 23, 18),
    "xnn_int8": images(XnnInt8, 17, 20, int8=True),
    "xnn_int4": Module(
        XnnInt4,
        **one_input((7, 64), ({0: S},), [(s, 64) for s in (7, 1, 33, 13, 2, 1, 32)]),
        backend="xnnpack",
        int4=True,
    ),
}
