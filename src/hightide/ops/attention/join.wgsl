// out[head, s]: what tiles.wgsl found for parts of the context, joined. A part has a row of sums, and the maximum
// and the total of its weights. One workgroup per row (head, s) and ELEMENTS of it: lanes over the parts, then over
// elements and parts, so that there are workgroups enough to wait for memory side by side.
// VEC4: elements are vec4<f32>, and depths and strides count those. `block`: the keys of a part.
// BATCHED: heads of several batches lie in one list, those of a batch together. SINKS: see common.wgsl.
// PAGED: s is the number of a tile of one row, which says its row of `out` and how many keys it sees.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, tokens: u32, value_depth: u32, out_head: u32, out_row: u32, block: u32
#params heads_per_batch: u32, out_batch: u32 if BATCHED
#params position: live, added: i32 if not PAGED
#params q_rows: u32, most_keys: u32 if PAGED
#read sums: $T, stats: vec2<f32>
#read tiles: i32 if PAGED
#read sinks: f32 if SINKS
#write out: $T

#const X = "out"
#include "attention/head_start.wgsl"

const LANES = 64u;
const ELEMENTS = ${ELEMENTS}u;
const SLICES = LANES / ELEMENTS;   // lanes that share an element
const LOWEST = -3.4028234e38;
var<workgroup> mosts: array<f32, LANES>;
var<workgroup> totals: array<f32, LANES>;
var<workgroup> factors: array<f32, ${MOST_PARTS}>;
var<workgroup> lane_sums: array<$T, LANES>;

#if SINKS
#include "attention/sinks.wgsl"
#end

#main 64
    let number = group_number(group, groups);
    let chunks = (params.value_depth + ELEMENTS - 1u) / ELEMENTS;
    if (number >= params.rows * chunks) { return; }
    let row = number / chunks;
    let s = row % params.tokens;
    #if PAGED
    let keys = min(u32(load_tiles(s * 4u + 2u)), params.most_keys - 1u) + 1u;
    let row_out = u32(load_tiles(s * 4u));
    if (row_out >= params.q_rows || params.most_keys == 0u) { return; }
    #else
    let keys = u32(live_int(params.position) + params.added);
    let row_out = s;
    #end
    let parts = min((keys + params.block - 1u) / params.block, ${MOST_PARTS}u);
    var most = LOWEST;
    for (var p = lane; p < parts; p += LANES) { most = max(most, load_stats(p * params.rows + row).x); }
    mosts[lane] = most;
    workgroupBarrier();
    for (var i = 0u; i < min(LANES, parts); i++) { most = max(most, mosts[i]); }
    var total = 0.0;
    for (var p = lane; p < parts; p += LANES) {
        let of_part = load_stats(p * params.rows + row);
        factors[p] = exp(of_part.x - most);
        total += of_part.y * factors[p];
    }
    totals[lane] = total;
    workgroupBarrier();
    total = 0.0;
    for (var i = 0u; i < min(LANES, parts); i++) { total += totals[i]; }
    #if SINKS
    total += sink_weight(row / params.tokens, most);
    #end

    let d = number % chunks * ELEMENTS + lane % ELEMENTS;
    var sum = $T();
    if (d < params.value_depth) {
        for (var p = lane / ELEMENTS; p < parts; p += SLICES * 4u) {
            #for a in 4
            let p_$a = min(p + ${a}u * SLICES, parts - 1u);
            let value_$a = load_sums((p_$a * params.rows + row) * params.value_depth + d);
            #end
            #for a in 4
            sum += value_$a * select(0.0, factors[p_$a], p + ${a}u * SLICES < parts);
            #end
        }
    }
    lane_sums[lane] = sum;
    workgroupBarrier();
    if (lane < ELEMENTS && d < params.value_depth) {
        var result = $T();
        for (var i = 0u; i < SLICES; i++) { result += lane_sums[i * ELEMENTS + lane]; }
        let at = out_start(row / params.tokens) + row_out * params.out_row;
        store_out(at + d, result / select(total, 1.0, total == 0.0));
    }
}
