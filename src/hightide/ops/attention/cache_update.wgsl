// cache[b, position + s] = x[b, s]: new keys or values into their places, rows of `width` words.
// One thread per word of x.
struct Params { count: u32, tokens: u32, context: u32, width: u32, position: i32, position_slot: i32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<$T>;
@group(0) @binding(3) var<storage, read_write> cache: array<$T>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let row = i / params.width;                       // b * tokens + s
    let token = row % params.tokens + u32(live_int(params.position, params.position_slot));
    cache[(row / params.tokens * params.context + token) * params.width + i % params.width] = x[i];
}
