// out[o, i] = x[o, indices[i]]: rows of `width` words picked along one dim. One thread per output word.
// A negative index counts from the end. Indices given by the caller were checked; others are clamped.
struct Params { outer: u32, count: u32, rows: u32, width: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read> indices: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.outer * params.count * params.width) { return; }
    var index = indices[i / params.width % params.count];
    if (index < 0) { index += i32(params.rows); }
    let row = u32(clamp(index, 0, i32(params.rows) - 1));
    out[i] = x[(i / params.width / params.count * params.rows + row) * params.width + i % params.width];
}
