// out[i] = x[indices[i]]: rows of `width` words. One thread per output word.
// Indices given by the caller were checked; others are clamped.
struct Params { count: u32, rows: u32, width: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read> indices: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count * params.width) { return; }
    let row = u32(clamp(indices[i / params.width], 0, i32(params.rows) - 1));
    out[i] = x[row * params.width + i % params.width];
}
