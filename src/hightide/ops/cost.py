"""What a dispatch costs at its live dims: the bytes it has to move and its floating-point operations.

Bytes are the least that the op needs: every tensor once, at its live dims and as it is held (a weight in its blocks,
the part of a KV cache that is seen, the rows of a table that are picked). A kernel that reads something twice, or that
misses its caches, moves more, and so reaches less of the adapter's bandwidth. One multiplication with its addition is
two operations; what ops do per element beside their products is counted roughly. Operations on integers count like
those on floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hightide.ops.kernel import Bound, Dispatch, Tensor


@dataclass(frozen=True)
class Cost:
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.flops + other.flops,
        )


def distinct(bound: tuple[Bound, ...]) -> Iterator[Tensor]:
    """The tensors among what is bound; a kernel may bind one twice, to see it as two types."""
    seen = set()
    for tensor in bound:
        if isinstance(tensor, Tensor) and tensor.value.id not in seen:
            seen.add(tensor.value.id)
            yield tensor


def largest(dispatch: Dispatch) -> int:
    """Elements of the largest tensor that is not a weight."""
    sizes = (t.numel for t in distinct((*dispatch.reads, *dispatch.writes)) if t.value.constant is None)
    return max(sizes, default=0)


def same(tensor: Tensor, *others: Any) -> bool:
    """Whether a tensor is one of the others."""
    return any(isinstance(other, Tensor) and tensor.value.id == other.value.id for other in others)


def product_flops(x: Tensor, weights: Iterable[Tensor], dispatch: Dispatch) -> int:
    """2 M N K where weights [N, K] are read; a dispatch that only rounds or adds up is one per element."""
    columns = sum(weight.dims[0] for weight in weights if same(weight, *dispatch.reads))
    return 2 * x.numel * columns if columns else largest(dispatch)


def share_of(tensor: Tensor, count: int, of: int) -> int:
    """The bytes of `count` of the `of` equal parts of a tensor, at most all of them."""
    return min(tensor.nbytes, math.ceil(tensor.nbytes / max(1, of) * count))
