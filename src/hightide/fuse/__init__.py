"""Passes: they turn a graph into one that gives the same result with fewer dispatches.

Each pass is a function on a `Rewriter` and can be left out; they run in the order of `PASSES`. What they build are
ordinary op calls with references of their own, so a fused graph runs on NumPy as well. May know `graph` and `ops`;
knows no plan and no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from hightide.errors import InputError
from hightide.fuse.attention_pass import attention
from hightide.fuse.attention_rows import attention_rows
from hightide.fuse.cached_attention import cached_attention
from hightide.fuse.constants import constants
from hightide.fuse.linears import activated, gated, plain_views, residual, unflatten
from hightide.fuse.norms import add_norm, linear_of_norm
from hightide.fuse.permutes import permutes
from hightide.fuse.plain_attention import plain_attention
from hightide.fuse.plain_norms import plain_norms
from hightide.fuse.plain_rope import plain_rope
from hightide.fuse.rewriter import Rewriter
from hightide.fuse.same_calls import same_calls
from hightide.fuse.select_early import select_early
from hightide.fuse.shared_weights import shared_weights
from hightide.graph.graph import Graph

PASSES: dict[str, Callable[[Rewriter], None]] = {
    "constants": constants,
    "shared_weights": shared_weights,
    "same_calls": same_calls,
    "unflatten": unflatten,
    "plain_views": plain_views,
    "plain_attention": plain_attention,
    "plain_norms": plain_norms,
    "cached_attention": cached_attention,
    "plain_rope": plain_rope,
    "permutes": permutes,
    "attention_rows": attention_rows,
    "select_early": select_early,
    "attention": attention,
    "gated": gated,
    "activated": activated,
    "residual": residual,
    "add_norm": add_norm,
    "linear_of_norm": linear_of_norm,
}


def fuse(graph: Graph, only: Collection[str] | None = None) -> Graph:
    """The graph after all passes, or after some; HIGHTIDE_PASSES (names with commas, or "none") says which."""
    if only is None:
        named = os.environ.get("HIGHTIDE_PASSES")
        only = PASSES if named is None else [name for name in named.split(",") if name not in ("", "none")]
    if unknown := [name for name in only if name not in PASSES]:
        raise InputError(f"there is no pass {unknown[0]!r}; there are {', '.join(PASSES)}")
    rewriter = Rewriter(graph)
    for name, run in PASSES.items():
        if name in only:
            run(rewriter)
    return rewriter.finish()
