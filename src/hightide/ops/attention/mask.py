"""A mask that is added to scores, as text for the kernels; rows that have none pay nothing."""

from __future__ import annotations

from hightide.graph.values import Dims
from hightide.ops.legacy import Tensor
from hightide.ops.movement.movement import broadcast_strides

BINDING = "@group(0) @binding(5) var<storage, read> mask: array<f32>;"
START = (
    "{head} / params.heads_per_batch * params.mask_batch + {head} % params.heads_per_batch * params.mask_head"
    " + {s} * params.mask_row"
)
NAMES = ("MASK", "MASK_START", "MASK_AT", "ADD_MASK")
TEXTS = {
    "stream": (
        "var mask_at_#r = 0u;",
        f"mask_at_#r = select(mask_at_#r, {START.format(head='head', s='s')}, i == #ru);",
        "score_#r += vec2<f32>(mask[mask_at_#r + min(t.x, keys - 1u) * params.mask_key], "
        "mask[mask_at_#r + min(t.y, keys - 1u) * params.mask_key]);",
    ),
    "tiles": (
        "",
        f"let mask_at_#r = {START.format(head='head_#r', s='s_#r')};",
        "score_#r += mask[mask_at_#r + t * params.mask_key];",
    ),
}


def with_mask(mask: Tensor | None, file: str, full: Dims) -> tuple[dict[str, object], Dims]:
    """(defines for the kernel of this file, strides of the mask) where scores are [batch, heads, tokens, keys]."""
    if mask is None:
        return dict.fromkeys(NAMES, ""), (0, 0, 0, 0)
    return dict(zip(NAMES, (BINDING, *TEXTS[file]), strict=True)), broadcast_strides(mask.dims, full)
