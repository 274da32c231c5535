"""Gradients of a convolution, which exported training graphs ask for, in NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray
Numbers: TypeAlias = tuple[int, ...]


def reference(
    grad: Array,
    x: Array,
    weight: Array,
    bias_sizes: Any,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
    wanted: Any,
) -> tuple[Array, ...]:
    """Gradients of x, the weight and the bias; zeros for what is not wanted.

    Windows slide over x, or over the result if it is `transposed`, and end in the other.
    """
    steps, pads, apart = (per_dim(numbers, x.ndim - 2) for numbers in (stride, padding, dilation))
    source, target = (grad, x) if transposed else (x, grad)
    around = [(0, 0), (0, 0), *((pad, pad) for pad in pads)]
    slid = grouped(np.pad(source, around), groups)  # [N, G, source channels, ...]
    ended = grouped(target, groups)
    ends = ended.reshape(*ended.shape[:3], -1)  # [N, G, target channels, places]
    weights = weight.reshape(groups, -1, *weight.shape[1:])  # [G, target channels, source channels, ...]
    of_weight = np.zeros(weights.shape, weight.dtype)
    of_slid, of_ends = np.zeros_like(slid), np.zeros_like(ends)
    for place in np.ndindex(*weight.shape[2:]):
        tap: Any = (..., *place)
        at: Any = (...,)
        for t, d, n, s in zip(place, apart, target.shape[2:], steps, strict=True):
            at += (slice(t * d, t * d + (n - 1) * s + 1, s),)
        window = slid[at]
        taken, by = window.reshape(*window.shape[:3], -1), weights[tap]
        of_weight[tap] = np.einsum("ngop,ngip->goi", ends, taken)
        if transposed:
            of_ends += np.einsum("ngip,goi->ngop", taken, by)
        else:
            of_slid[at] += np.einsum("ngop,goi->ngip", ends, by).reshape(window.shape)
    inside: Any = (..., *(slice(pad, pad + n) for pad, n in zip(pads, source.shape[2:], strict=True)))
    of_x = (of_ends if transposed else of_slid[inside]).reshape(x.shape)
    of_bias = grad.sum(axis=(0, *range(2, grad.ndim)))
    made = (of_x, of_weight.reshape(weight.shape), of_bias)
    return tuple(a if want else np.zeros_like(a) for a, want in zip(made, wanted, strict=True))


def per_dim(numbers: Numbers, rank: int) -> Numbers:
    return numbers * rank if len(numbers) == 1 else numbers


def grouped(x: Array, groups: int) -> Array:
    """Channels by groups: [N, G, C / G, ...]."""
    return x.reshape(len(x), groups, x.shape[1] // max(groups, 1), *x.shape[2:])
