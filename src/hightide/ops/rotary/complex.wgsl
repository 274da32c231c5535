// Complex products of the pairs of x [B, N, C] and a table [N, C] that is the same for each of B.
// One thread per pair.
struct Params { pairs: u32, table_pairs: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.pairs) { return; }
    let turn = table[i % params.table_pairs];
    out[i] = vec2<f32>(x[i].x * turn.x - x[i].y * turn.y, x[i].x * turn.y + x[i].y * turn.x);
}
