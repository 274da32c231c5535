"""Attention whose heads are turned in and out: it reads and writes rows as linears leave them."""

from __future__ import annotations

from hightide.fuse.permutes import swaps_rows_and_heads
from hightide.fuse.plain_attention import SDPA
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall


def attention_rows(r: Rewriter) -> None:
    """permute(sdpa(permute(q), permute(k), permute(v))): attention over [B, S, H, D], without the four copies."""
    for call in r.calls(SDPA):
        after = next(iter(r.users(call.out)), None)
        before = [r.maker(call.args[name]) for name in ("q", "k", "v")]
        turns = [turn for turn in (after, *before) if turn is not None and swaps_rows_and_heads(r, turn)]
        if len(turns) < 4 or any(r.is_written(turn.args["x"]) for turn in turns):
            continue
        end, *starts = turns
        given = {name: turn.args["x"] for name, turn in zip(("q", "k", "v"), starts, strict=True)}
        rows = OpCall(0, "hightide.sdpa_rows.default", {**call.args, **given}, end.out)
        if r.replace([call, end], [rows]):
            for turn in starts:
                r.drop(turn.out)
