// out[head, s] = sum_t weights[head, s, t] * v[kv_head, t] over the keys that row s may see.
// One thread per element ($T) of a head and $ROWS query rows, in the order that scores.wgsl has.
struct Params {
    kv_heads: u32, group: u32, tokens: u32, first: u32, row_tiles: u32, depth: u32,
    out_head: u32, out_row: u32, v_head: u32, v_row: u32, score_row: u32,
    position: i32, position_slot: i32, added: i32, causal: u32, window: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<$T>;
@group(0) @binding(4) var<storage, read_write> out: array<$T>;

const ROWS = $ROWS;
$VISIBLE

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    let d = i % params.depth;
    let row = i / params.depth % params.row_tiles * u32(ROWS);
    let kv_head = i / params.depth / params.row_tiles;
    if (kv_head >= params.kv_heads) { return; }
    let position = live_int(params.position, params.position_slot);
    let rows = params.tokens * params.group;
    var begin: array<u32, ROWS>;
    var end: array<u32, ROWS>;
    var weights_at: array<u32, ROWS>;
    var sum: array<$T, ROWS>;
    var least = 0xffffffffu;
    var most = 0u;
    for (var r = 0; r < ROWS; r++) {
        let n = min(row + u32(r), rows - 1u);
        let s = n / params.group;
        let p = u32(position) + params.first + s;
        begin[r] = first_key(p);
        end[r] = end_key(p, u32(position + params.added));
        least = min(least, begin[r]);
        most = max(most, end[r]);
        weights_at[r] = ((kv_head * params.group + n % params.group) * params.tokens + s) * params.score_row;
        sum[r] = $T();
    }
    for (var t = least; t < most; t++) {
        let value = v[kv_head * params.v_head + t * params.v_row + d];
        for (var r = 0; r < ROWS; r++) {
            if (t >= begin[r] && t < end[r]) { sum[r] += weights[weights_at[r] + t] * value; }
        }
    }
    for (var r = 0; r < ROWS; r++) {
        let n = row + u32(r);
        if (n < rows) {
            let head = kv_head * params.group + n % params.group;
            out[head * params.out_head + (params.first + n / params.group) * params.out_row + d] = sum[r];
        }
    }
}
