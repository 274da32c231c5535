// k_cache[0, position + s] = k[0, s], and the same of v: new keys and values into their places.
// One thread per $T of k, then of v.
struct Params { keys: u32, values: u32, key_width: u32, value_width: u32, position: i32, position_slot: i32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> k: array<$T>;
@group(0) @binding(3) var<storage, read> v: array<$T>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<$T>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<$T>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    let position = u32(live_int(params.position, params.position_slot));
    if (i < params.keys) {
        k_cache[position * params.key_width + i] = k[i];
    } else if (i < params.keys + params.values) {
        v_cache[position * params.value_width + i - params.keys] = v[i - params.keys];
    }
}
