"""The op tests can fail: a fault planted in a kernel is caught by the case that uses it."""

from __future__ import annotations

import pytest
from op_cases import CASES
from op_runner import follow_levels
from planted import change_kernels

from hightide.gpu.device import Device

CASE = {case.name: case for case in CASES}
# name: (case, text of its kernel, what replaces it)
FAULTS = {
    "a row beyond the live length": ("rms_norm", "let start = row *", "let start = (row + 1u) *"),
    "an element past the row": ("rms_norm_odd", "var i = lane; i < params.width;", "var i = lane; i <= params.width;"),
    "an element past the live row": (
        "softmax_live",
        "var i = lane; i < params.size;",
        "var i = lane; i <= params.size;",
    ),
    "a wrong stride": ("softmax_middle", "vector % params.stride;", "vector % params.size;"),
    "the last elements left out": ("relu", "if (i * 4u >= params.numel)", "if (i * 4u + 4u >= params.numel)"),
    "twice the stride": ("permute", "* vec2<i32>(strides)", "* vec2<i32>(2, 1) * vec2<i32>(strides)"),
    "a slice that ignores the position": ("slice_position", "live_int(params.live_start)", "0"),
    "a cache that ignores the position": ("update_cache", "params.tokens + u32(", "params.tokens + 0u * u32("),
    "bytes of a row left out": ("update_cache_zeros", "if (s < params.tokens)", "if (s + 1u < params.tokens)"),
    "the scale of another row": ("coded_attention", "load_codings(row * params.kv_heads", "load_codings(0u * row"),
    "a key from the future": ("sdpa_cache_gqa", "min(keys, p + 1u)", "min(keys, p + 2u)"),
    "the present key hidden": ("sdpa_cache_mqa", "min(keys, p + 1u)", "min(keys, max(p, 1u))"),
    "a maximum that is not followed": ("attend", "sum_0_0 *= fade_0;", "sum_0_0 *= 1.0;"),
    "the weight of another key": ("attend", "quadBroadcast(weight_0.x, 1u)", "quadBroadcast(weight_0.x, 2u)"),
    "a quad left out": ("attend", "result += quad_sums[n", "result += select(1.0, 0.0, n == 1u) * quad_sums[n"),
    "a mask of another row": ("sdpa_mask", "+ s * params.mask_row;", ";"),
    "keys written to row 0": (
        "rope_cache_halves_keys",
        "let to = (place * params.kv_heads",
        "let to = (s * params.kv_heads",
    ),
    "an angle of another position": (
        "rope_cache_neighbours",
        "let at = row * params.rotary_pairs",
        "let at = s * params.rotary_pairs",
    ),
    "queries of one head for all": ("rope_attend_halves", "[n * params.depth + turned.first]", "[turned.first]"),
    "a key in the place of the one before": (
        "rope_attend_pages_keys",
        "key_row(tile, min(position, keys - 1u))",
        "key_row(tile, max(min(position, keys - 1u), 1u) - 1u)",
    ),
    "the angle of the first position": ("rope_attend_pages_halves", "min(position, params.angles - 1u)", "0u"),
    "the pages of the first sequence": (
        "attend_pages_gqa",
        "load_pages(tile.table + ",
        "load_pages(0u * tile.table + ",
    ),
    "the row of the first tile": ("attend_pages_mqa", "let s = tile.first + n", "let s = n"),
    "a place in the pool left out": ("paged_attention_keys", "u32(load_places(at / width))", "at / width"),
    "the settings of row 0": ("sample_by_row", "let given = row * ", "let given = 0u * "),
    "the first mask for every row": ("sample_masked", "* params.words; }", "* 0u; }"),
    "a mask that a draw does not see": ("sample_masked", "let kept = is_allowed & (", "let kept = ("),
    "a mask that top-p does not see": ("sample_masked", "let reach = are_set(bits, j) & (", "let reach = ("),
    "a norm without its weight": ("rope_cache_norm", "b *= scale * load_q_norm(second);", "b *= scale;"),
    "the scale of another group": ("q4", "(b >> params.group_shift) * params.scale_row", "0u * params.scale_row"),
    "nibbles swapped": ("q4_one_group", "vec4<u32>(0xfu, 0xf0u,", "vec4<u32>(0xf0u, 0xfu,"),
    "the last row left out": ("q4_bias", ", end_row); row++)", ", end_row - 1u); row++)"),
    "a sum of x left out": ("q4_aligned", "-8.0 * scale", "-7.0 * scale"),
    "the gate taken for up": ("q4_silu", "value *= up;", "value = silu(up) * total;"),
    "a residual left out": ("q4_residual", "value += load_residual(at);", ""),
    "the angle of row 0": ("rotary_halves", "vector / heads % params.tokens + ", "0u * vector + "),
    "a byte without its sign": (
        "embedding_byte",
        "extractBits(bitcast<i32>(weight[byte / 4u]), shift, 8u)",
        "weight[byte / 4u] >> shift & 255u",
    ),
    "the last of equals": ("max_dim_ties", "a.index < b.index", "a.index > b.index"),
    "half of the lanes left out": ("any_long", "i < min(LANES, params.count)", "i < min(LANES, params.count) / 2u"),
    "a sum without the lanes before": ("cumsum", "sum += sums[i];", ""),
    "an order that is not stable": ("sort_ties", "a.x == b.x && a.y < b.y", "a.x == b.x && a.y > b.y"),
    "a step of a merge left out": ("sort_long", "params.mirrored == 1u", "false"),
    "the first at a place": ("index_put", "load_pairs(n + 1u).x == pair.x", "load_pairs(n + 1u).x != pair.x"),
    "a byte at another place": ("index_put_bytes", "load_pairs(middle).x <= place", "load_pairs(middle).x < place"),
    "a sum that starts again": ("index_put_sum", "load_pairs(n - 1u).x == pair.x", "false"),
    "values of another point": ("scatter_add", "rest % size * params.point_strides", "0u * params.point_strides"),
    "the wrong row of a table": ("embedding_q4", "params.all_rows - 1) -", "params.all_rows - 2) -"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text, instead = FAULTS[fault]
    planted = []

    def faulty(source: str) -> str:
        planted.append(text in source)
        return source.replace(text, instead)

    change_kernels(monkeypatch, faulty)
    with pytest.raises(AssertionError, match=name):
        follow_levels(CASE[name], Device(device.adapter))  # a device of its own: kernels are compiled once per device
    assert any(planted), "the kernel's text has changed: plant the fault anew"
