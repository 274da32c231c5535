"""A tensor as vectors along one of its dims, for ops that work on each by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hightide.ops.contract import Tensor, normalize_dim


@dataclass(frozen=True)
class Vectors:
    """How many there are, of how many elements each, and how far apart these lie."""

    x: Tensor
    rows: int
    count: int
    stride: int


def vectors_along(x: Tensor, dim: int) -> Vectors:
    """A scalar is one vector of one element."""
    dims, dim = x.dims or (1,), normalize_dim(dim, x.rank)
    stride = math.prod(dims[dim + 1 :])
    return Vectors(x, math.prod(dims[:dim]) * stride, dims[dim], stride)
