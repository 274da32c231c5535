"""Attention with what comes before it: q, k and v from one linear, turned and put into the cache in one dispatch."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.fuse.joining import join_linears, read_linear
from hightide.fuse.live_dims import KnownDims
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

SDPA = ("sdpa_with_kv_cache.default", "llama.sdpa_with_kv_cache.default")
STYLES = {"et_vk.apply_rotary_emb_hf.default": "halves", "et_vk.apply_rotary_emb.default": "interleaved"}
OURS = "hightide.attention.default"
OPTIONS = ("scale", "window", "softcap", "sinks")
PAGED = "hightide.paged_attention.default"
LISTS = ("singles", "tiles", "pages", "longest", "page")


def attention(r: Rewriter) -> None:
    """linears -> norm of heads -> rotary embedding -> cached attention, as: linear, `rope_attend`.

    Of rows in pages: linear, `rope_attend_pages`.
    """
    for call in r.calls(*SDPA, OURS, PAGED):
        turned = _turned(r, call)
        joined = None if turned is None else _joined(r, turned.heads_of)
        if turned is None or joined is None or not _by_heads(r, joined, turned.heads_of):
            continue
        given = r.tensor(call.args["q"])
        sizes = {
            "heads": r.new_literal(given.dims[2]),
            "kv_heads": r.new_literal(r.tensor(call.args["k"]).dims[2]),
            "depth": r.new_literal(given.dims[3]),
            "style": r.new_literal(turned.style),
        }
        rope = {"qkv": joined.qkv, "cos": turned.cos, "sin": turned.sin, **sizes, **turned.norms}
        made = _in_pages(call, turned, rope) if call.name == PAGED else _in_caches(r, call, rope)
        r.replace([*joined.gone, *turned.passed, call], [*joined.made, made])


def _in_caches(r: Rewriter, call: OpCall, rope: dict[str, int]) -> OpCall:
    cached = {name: call.args[name] for name in ("k_cache", "v_cache", "position")}
    return OpCall(0, "hightide.rope_attend.default", {**rope, **cached, **_options(r, call)}, call.out)


def _in_pages(call: OpCall, turned: _Turned, rope: dict[str, int]) -> OpCall:
    args = call.args
    where = {"k_cache": args["k_pool"], "v_cache": args["v_pool"], "places": args["places"]}
    lists = {name: args[name] for name in (*LISTS, *OPTIONS) if name in args}
    given = {**rope, **where, "positions": turned.positions, **lists}
    return OpCall(0, "hightide.rope_attend_pages.default", given, call.out)


@dataclass
class _Turned:
    """Heads of q, k and v before they are normed and turned, and how that is done."""

    heads_of: tuple[int, int, int]
    cos: int
    sin: int
    style: str
    norms: dict[str, int]  # weights for q and k, and eps; or nothing
    passed: list[OpCall]
    positions: int  # what the tables are read from on, or a tensor of the row for each token


def _turned(r: Rewriter, call: OpCall) -> _Turned | None:
    q, k, v = (call.args[name] for name in ("q", "k", "v"))
    if call.name in SDPA and (r.option(call, "mask") is not None or r.option(call, "dropout") != 0):
        return None  # a mask or dropout, which the op itself refuses
    rotary = r.maker(q)
    if rotary is None or r.items(rotary.out) != (q, k) or r.tensor(k).dims[2:] != r.tensor(v).dims[2:]:
        return None
    passed = [rotary]
    if rotary.name not in STYLES:
        return None
    tables = [rotary.args[name] for name in ("cos", "sin")]
    if call.name == PAGED:
        if "start" in rotary.args and r.literal(rotary.args["start"]) != 0:
            return None
        read = [_gathered(r, table) for table in tables]
    elif "start" in rotary.args:
        read = [(table, rotary.args["start"]) for table in tables]
    else:
        read = [sliced_rows(r, table) for table in tables]
    (cos, positions), (sin, others) = read
    if cos is None or sin is None or positions != others or positions != call.args.get("position", positions):
        return None
    q, k = rotary.args["xq"], rotary.args["xk"]
    norms = [r.maker(id) for id in (q, k)]
    given: dict[str, int] = {}
    if all(norm is not None and norm.name == "et_vk.rms_norm.default" for norm in norms):
        q_norm, k_norm = (norm for norm in norms if norm is not None)
        if r.option(q_norm, "eps") != r.option(k_norm, "eps"):
            return None
        given = {"q_norm": q_norm.args["weight"], "k_norm": k_norm.args["weight"], "eps": q_norm.args["eps"]}
        passed += [q_norm, k_norm]
        q, k = q_norm.args["x"], k_norm.args["x"]
    return _Turned((q, k, v), cos, sin, STYLES[rotary.name], given, passed, positions)


def sliced_rows(r: Rewriter, rows: int) -> tuple[int | None, int]:
    """The table that these are the rows of from a position on, and the position; slices go when unused."""
    call = _picked(r, rows, "aten.slice_copy.Tensor")
    if call is None or "start" not in call.args or r.option(call, "step") != 1:
        return None, -1
    return call.args["x"], call.args["start"]


def _gathered(r: Rewriter, rows: int) -> tuple[int | None, int]:
    """The table that these are the rows of, and the tensor that says which."""
    call = _picked(r, rows, "aten.index_select.default")
    return (None, -1) if call is None else (call.args["x"], call.args["indices"])


def _picked(r: Rewriter, rows: int, name: str) -> OpCall | None:
    """The call of this op, along the first dim of a table, that these rows are of."""
    source, _ = r.behind_views(rows)
    call = r.maker(source)
    if call is None or call.name != name or r.option(call, "dim") != 0 or r.is_written(call.args["x"]):
        return None
    return call if r.live_dims(source) == r.live_dims(rows) else None


@dataclass
class _Joined:
    """q, k and v side by side."""

    qkv: int
    rows: KnownDims
    widths: list[int]  # of q, k and v
    made: list[OpCall]  # the calls that make it, and those they take the place of
    gone: list[OpCall]


def _joined(r: Rewriter, heads_of: tuple[int, int, int]) -> _Joined | None:
    behind = [r.behind_views(id) for id in heads_of]
    sources = tuple(source for source, _ in behind)
    gone = [call for _, views in behind for call in views]
    makers = [maker for source in sources if (maker := r.maker(source)) is not None]
    split = makers[0] if makers else None
    if split is not None and split.name.startswith("aten.split_with_sizes"):
        widths, whole = [r.tensor(id).dims[-1] for id in sources], split.args["x"]
        *rows, width = r.live_dims(whole)
        if r.items(split.out) != sources or width != sum(widths):
            return None
        return _Joined(whole, tuple(rows), widths, [], [*gone, split])
    linears = [linear for maker in makers if (linear := read_linear(r, maker)) is not None]
    joined = join_linears(r, linears) if len(linears) == 3 else None
    if joined is None:
        return None
    out = r.new_tensor((*r.tensor(joined.x).dims[:-1], joined.columns(r)), r.tensor(sources[0]).dtype)
    rows, widths = list(r.live_dims(joined.x)[:-1]), [linear.columns(r) for linear in linears]
    return _Joined(out, tuple(rows), widths, [joined.call(r, out)], [*gone, *makers])


def _by_heads(r: Rewriter, joined: _Joined, heads_of: tuple[int, int, int]) -> bool:
    """Whether the heads [1, S, heads, depth] are the columns of q, k and v one after the other."""
    depth = r.tensor(heads_of[0]).dims[-1]
    for id, width in zip(heads_of, joined.widths, strict=True):
        if joined.rows[:1] != (1,) or r.live_dims(id) != (*joined.rows, width // depth, depth) or width % depth:
            return False
    return len(joined.rows) == 2


def _options(r: Rewriter, call: OpCall) -> dict[str, int]:
    if call.name == OURS:
        return {"causal": r.new_literal(True), **{name: call.args[name] for name in OPTIONS if name in call.args}}
    return {name: call.args[name] for name in ("causal", "scale")}
