"""tinygrad on its WEBGPU device (Dawn): one q4 matmul, unpacked from 32-bit words in the kernel it makes.

Usage: DEV=WEBGPU WEBGPU_PATH=libwebgpu_dawn.so python tinygrad_webgpu.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from quantized import GROUP, K, N, activations, q4_matrix
from wire import Stopwatch, serve


class Tinygrad:
    def __init__(self) -> None:
        from tinygrad import Tensor, TinyJit, dtypes

        self.tensor = Tensor
        packed, scales = q4_matrix()
        words = Tensor(packed.view(np.uint32)).realize()  # [N, K/8]: 3 times as fast here as bytes
        shifts = Tensor(np.arange(8, dtype=np.uint32) * 4).realize()
        scale = Tensor(scales).realize()

        def multiply(x: Any) -> Any:
            nibbles = ((words.unsqueeze(-1) >> shifts) & 15).reshape(N, K // GROUP, GROUP)
            weights = (nibbles.cast(dtypes.float32) - 8) * scale.unsqueeze(-1)
            return (x @ weights.reshape(N, K).T).contiguous().realize()

        self.by_rows = {rows: TinyJit(multiply) for rows in (1, 128)}
        nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(N, K // GROUP, GROUP)
        self.expected = (nibbles - 8.0) * scales[..., None]

    def matmul(self, watch: Stopwatch, rows: int, count: int) -> None:
        x = activations(rows)
        for _ in range(count):
            with watch:
                y = self.by_rows[rows](self.tensor(x).realize()).numpy()
        error = np.abs(y[0] - self.expected.reshape(N, K) @ x[0]).max()
        if not error < 1e-3:
            raise ValueError(f"tinygrad's matmul is wrong by {error}")


def open_peer() -> tuple[Tinygrad, dict[str, Any]]:
    from importlib.metadata import version

    from tinygrad import Device

    if Device.DEFAULT != "WEBGPU":
        raise ValueError(f"tinygrad would run on {Device.DEFAULT}, not on WEBGPU")
    peer = Tinygrad()
    return peer, {"device": "WebGPU (Dawn)", "version": f"tinygrad {version('tinygrad')}"}


if __name__ == "__main__":
    serve(open_peer)
