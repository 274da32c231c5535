// Heads of one joined row [S, (heads + 2 * kv_heads) * depth], q then k then v: q and k are normed if there are
// weights, and turned by their position's angles; q goes to `q`, k and v to their places in the caches.
// One thread per pair of $T ($T: vec4<f32> or f32). $HALVES: element d turns with d + rotary/2, tables
// [L, rotary]; else neighbours turn, tables [L, rotary/2]. A norm is summed by each thread itself: no barrier.
struct Params {
    count: u32, heads: u32, kv_heads: u32, pairs: u32, rotary_pairs: u32, mean: f32, eps: f32,
    position: i32, position_slot: i32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> qkv: array<$T>;
@group(0) @binding(3) var<storage, read> cosines: array<$T>;
@group(0) @binding(4) var<storage, read> sines: array<$T>;
$NORMS
@group(0) @binding($OUT) var<storage, read_write> q: array<$T>;
@group(0) @binding($OUT_K) var<storage, read_write> k_cache: array<$T>;
@group(0) @binding($OUT_V) var<storage, read_write> v_cache: array<$T>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let pair = i % params.pairs;
    let vector = i / params.pairs;
    let all_heads = params.heads + 2u * params.kv_heads;
    let head = vector % all_heads;
    let s = vector / all_heads;
    let row = u32(live_int(params.position, params.position_slot)) + s;
    let depth = params.pairs * 2u;
    let start = vector * depth;
    let turns = pair < params.rotary_pairs && head < params.heads + params.kv_heads;
    let split = $HALVES && pair < params.rotary_pairs;   // what does not turn is taken in neighbours
    let first = select(pair * 2u, pair, split);
    let second = select(pair * 2u + 1u, pair + params.rotary_pairs, split);
    var a = qkv[start + first];
    var b = qkv[start + second];
    $NORM
    if (turns) {
        let x = $EVENS;
        let y = $ODDS;
        let at = row * params.rotary_pairs * $TABLE + pair;
        let after = at + params.rotary_pairs * ($TABLE - 1u);
        let turned_x = x * cosines[at] - y * sines[at];
        let turned_y = x * sines[after] + y * cosines[after];
        a = $LOW;
        b = $HIGH;
    }
    if (head < params.heads) {
        let to = (s * params.heads + head) * depth;
        q[to + first] = a;
        q[to + second] = b;
    } else if (head < params.heads + params.kv_heads) {
        let to = (row * params.kv_heads + head - params.heads) * depth;
        k_cache[to + first] = a;
        k_cache[to + second] = b;
    } else {
        let to = (row * params.kv_heads + head - params.heads - params.kv_heads) * depth;
        v_cache[to + first] = a;
        v_cache[to + second] = b;
    }
}
