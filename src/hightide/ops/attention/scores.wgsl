// scores[head, s, t] = scale * q[head, s] . k[kv_head, t] (+ mask), for the keys t that row s may see.
// One thread per key and $ROWS query rows: the rows of all query heads that share a kv head lie in one
// list, (s, head within the group), so that a key is read once for them.
// $T is vec4<f32> where the head dim is a multiple of 4, else f32; strides and depth count $T.
struct Params {
    kv_heads: u32, group: u32, tokens: u32, first: u32, row_tiles: u32, depth: u32,
    q_head: u32, q_row: u32, k_head: u32, k_row: u32, score_row: u32,
    position: i32, position_slot: i32, added: i32, causal: u32, window: u32, scale: f32, softcap: f32,
    heads_per_batch: u32, mask_batch: u32, mask_head: u32, mask_row: u32, mask_key: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> q: array<$T>;
@group(0) @binding(3) var<storage, read> k: array<$T>;
$MASK
@group(0) @binding($OUT) var<storage, read_write> scores: array<f32>;

const ROWS = $ROWS;
$VISIBLE

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let position = live_int(params.position, params.position_slot);
    let keys = u32(position + params.added);
    let blocks = (keys + 63u) / 64u;
    let number = group_number(group, groups);
    let t = number % blocks * 64u + lane;
    let row = number / blocks % params.row_tiles * u32(ROWS);
    let kv_head = number / blocks / params.row_tiles;
    let rows = params.tokens * params.group;
    if (t >= keys || kv_head >= params.kv_heads) { return; }
    let last_token = params.first + min(row + u32(ROWS) - 1u, rows - 1u) / params.group;
    let first_token = params.first + row / params.group;
    if (t >= end_key(u32(position) + last_token, keys) || t < first_key(u32(position) + first_token)) {
        return;   // no row here sees this key
    }

    var q_at: array<u32, ROWS>;
    var sum: array<f32, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        let n = min(row + u32(r), rows - 1u);
        let head = kv_head * params.group + n % params.group;
        q_at[r] = head * params.q_head + (params.first + n / params.group) * params.q_row;
        sum[r] = 0.0;
    }
    let k_at = kv_head * params.k_head + t * params.k_row;
    for (var d = 0u; d < params.depth; d++) {
        let key = k[k_at + d];
        for (var r = 0; r < ROWS; r++) { sum[r] += $DOT(q[q_at[r] + d], key); }
    }
    for (var r = 0; r < ROWS; r++) {
        let n = row + u32(r);
        if (n < rows) {
            let head = kv_head * params.group + n % params.group;
            let s = n / params.group;
            var score = sum[r] * params.scale;
            if (params.softcap > 0.0) { score = params.softcap * tanh(clamp(score / params.softcap, -15.0, 15.0)); }
            $ADD_MASK
            scores[(head * params.tokens + s) * params.score_row + t] = score;
        }
    }
}

fn times(a: f32, b: f32) -> f32 { return a * b; }
