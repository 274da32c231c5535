"""What a norm by the root mean square means, for the ops that contain one."""

from __future__ import annotations

import numpy as np


def rms_normed(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight)
