"""Compare the GPU with the NumPy references: the same program on both, call by call."""

from pathlib import Path

import numpy as np

import hightide

PROGRAM = Path(__file__).parents[1] / "tests" / "conformance" / "llama_gqa.pte"

with hightide.load(PROGRAM) as gpu, hightide.load(PROGRAM, device="cpu") as cpu:
    for tokens, position in (([[5, 3, 9]], 0), ([[4]], 3), ([[1, 2]], 4)):
        (got,) = gpu.method("forward")(tokens, [position])
        (expected,) = cpu.method("forward")(tokens, [position])
        error = np.abs(got - expected).max() / np.ptp(expected)
        print(f"position {position}: largest difference {error:.1e} of the logits' range")
        assert error < 1e-5
