"""Attention over a KV cache that is written right before it: one op that does both."""

from __future__ import annotations

from hightide.fuse.attention_pass import SDPA
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall
from hightide.ops import REGISTRY

UPDATES = ("update_cache.default", "llama.update_cache.default")
CUSTOM = ("custom_sdpa.default", "llama.custom_sdpa.default")


def cached_attention(r: Rewriter) -> None:
    """update_cache of k and of v, custom_sdpa over both caches: as exporters write it where they join the three."""
    for call in r.calls(*CUSTOM):
        if r.option(call, "mask") is not None or r.option(call, "dropout") != 0:
            continue
        k, v = (_update_before(r, call, name) for name in ("k", "v"))
        if k is None or v is None or k is v:
            continue
        options = {"mask": None, "dropout": 0.0, "causal": r.option(call, "causal"), "scale": r.option(call, "scale")}
        given = {
            "q": call.args["q"],
            "k": k.args["x"],
            "v": v.args["x"],
            "k_cache": call.args["k"],
            "v_cache": call.args["v"],
            "position": call.args["position"],
            "seq_len": r.new_literal(r.tensor(call.args["q"]).dims[1]),
            **{name: r.new_literal(value) for name, value in options.items()},
        }
        r.replace([k, v, call], [OpCall(0, SDPA[0], given, call.out)])


def _update_before(r: Rewriter, call: OpCall, name: str) -> OpCall | None:
    """The update of a cache at the same position, with as many rows, after which this call is the first to touch it."""
    cache, q = call.args[name], call.args["q"]
    users = r.users(cache)
    if r.maker(cache) is not None or any(REGISTRY[user.name].aliases for user in users):
        return None
    at = users.index(call)
    update = users[at - 1] if at else None
    if update is None or update.name not in UPDATES or update.args["position"] != call.args["position"]:
        return None
    x = update.args["x"]
    alike = r.tensor(x).dtype == r.tensor(cache).dtype == r.tensor(q).dtype
    return update if alike and r.live_dims(x)[:2] == r.live_dims(q)[:2] else None
