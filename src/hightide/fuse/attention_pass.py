"""Attention with what comes before it: q, k and v from one linear, turned and put into the cache in one dispatch."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.fuse.joining import join_linears, read_linear
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

SDPA = ("sdpa_with_kv_cache.default", "llama.sdpa_with_kv_cache.default")
OURS = "hightide.attention.default"


def attention(r: Rewriter) -> None:
    """linears -> norm of heads -> rotary embedding -> cached attention, as: linear, `rope_cache`, `attend`."""
    for call in r.calls(*SDPA, OURS):
        turned = _turned(r, call)
        joined = None if turned is None else _joined(r, turned.heads_of)
        if turned is None or joined is None:
            continue
        qkv, made, gone = joined
        q_dims, kv_heads = r.tensor(call.args[0]).dims, r.tensor(call.args[1]).dims[2]
        q = r.new_tensor(q_dims, r.tensor(call.args[0]).dtype)
        k_cache, v_cache, position = call.args[3:6]
        sizes = (r.new_literal(n) for n in (q_dims[2], kv_heads, q_dims[3], turned.style))
        tables = (turned.cos, turned.sin)
        rope = (qkv, *tables, k_cache, v_cache, position, *sizes, *turned.norms, q)
        attend = (q, k_cache, v_cache, position, *_options(r, call), call.args[-1])
        new = [OpCall(0, "hightide.rope_cache.default", rope), OpCall(0, "hightide.attend.default", attend)]
        r.replace([*gone, *turned.passed, call], [*made, *new])


@dataclass
class _Turned:
    """Heads of q, k and v before they are normed and turned, and how that is done."""

    heads_of: tuple[int, int, int]
    cos: int
    sin: int
    style: str
    norms: tuple[int, ...]  # weights for q and k, and eps; or nothing
    passed: list[OpCall]


def _turned(r: Rewriter, call: OpCall) -> _Turned | None:
    q, k, v, *_, position = call.args[:6]
    if call.name in SDPA and (r.literal(call.args[7]) is not None or r.literal(call.args[8]) != 0):
        return None  # a mask or dropout, which the op itself refuses
    rotary = r.maker(q)
    if rotary is None or r.items(rotary.args[-1]) != (q, k) or r.tensor(k).dims[2:] != r.tensor(v).dims[2:]:
        return None
    q, k, cos, sin = rotary.args[:4]
    passed = [rotary]
    if rotary.name == "et_vk.apply_rotary_emb_hf.default" and rotary.args[4] == position:
        style = "halves"
    elif rotary.name == "et_vk.apply_rotary_emb.default":
        style = "interleaved"  # with tables that are sliced to the tokens; slices serve all layers and go when unused
        tables = [_sliced_at(r, table, position) for table in (cos, sin)]
        if None in tables:
            return None
        cos, sin = (table for table in tables if table is not None)
    else:
        return None
    norms = [r.maker(id) for id in (q, k)]
    given: tuple[int, ...] = ()
    if all(norm is not None and norm.name == "et_vk.rms_norm.default" for norm in norms):
        q_norm, k_norm = (norm for norm in norms if norm is not None)
        if r.literal(q_norm.args[2]) != r.literal(k_norm.args[2]):
            return None
        given = (q_norm.args[1], k_norm.args[1], q_norm.args[2])
        passed += [q_norm, k_norm]
        q, k = q_norm.args[0], k_norm.args[0]
    return _Turned((q, k, v), cos, sin, style, given, passed)


def _sliced_at(r: Rewriter, table: int, position: int) -> int | None:
    """The table that this is the rows from `position` on of."""
    call = r.maker(r.behind_views(table)[0])
    if call is None or call.name != "aten.slice_copy.Tensor":
        return None
    whole, dim, start, _, step = call.args[:5]
    return whole if start == position and r.literal(dim) == 0 and r.literal(step) == 1 else None


def _joined(r: Rewriter, heads_of: tuple[int, int, int]) -> tuple[int, list[OpCall], list[OpCall]] | None:
    """The tensor that holds q, k and v side by side, the calls that make it, and those they take the place of."""
    behind = [r.behind_views(id) for id in heads_of]
    sources = tuple(source for source, _ in behind)
    gone = [call for _, views in behind for call in views]
    makers = [r.maker(source) for source in sources]
    split = makers[0]
    if split is not None and split.name.startswith("aten.split_with_sizes"):
        widths = sum(r.tensor(id).dims[-1] for id in sources)
        if r.items(split.args[-1]) != sources or widths != r.tensor(split.args[0]).dims[-1]:
            return None
        return split.args[0], [], [*gone, split]
    linears = [linear for maker in makers if (linear := read_linear(r, maker)) is not None]
    if len(linears) < 3:
        return None
    joined = join_linears(r, linears)
    if joined is None or len(rows := r.tensor(joined.x).dims[:-1]) != 2:
        return None
    out = r.new_tensor((*rows, joined.columns(r)), r.tensor(sources[0]).dtype)
    return out, [joined.call(r, out)], [*gone, *(maker for maker in makers if maker is not None)]


def _options(r: Rewriter, call: OpCall) -> tuple[int, int, int, int]:
    """causal, scale, window, softcap"""
    if call.name == OURS:
        scale, window, softcap = call.args[6:9]
        return r.new_literal(True), scale, window, softcap
    return call.args[9], call.args[10], r.new_literal(0), r.new_literal(0.0)
