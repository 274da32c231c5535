// out[i] = row indices[i] of a 4-bit table, less the zero point and times the scale of its group.
// One thread per output element. Rows are bytes of two nibbles (value - 8); $LOW_FIRST says which is first.
// Indices given by the caller were checked; others are clamped into the table.
struct Params { count: u32, width: u32, row_bytes: u32, rows: u32, group: u32, groups_per_row: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> indices: array<i32>;
$ZEROS
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count * params.width) { return; }
    let row = u32(clamp(indices[i / params.width], 0, i32(params.rows) - 1));
    let column = i % params.width;
    let byte = row * params.row_bytes + column / 2u;
    let high = ((column & 1u) == 1u) == $LOW_FIRST;
    let nibble = (weight[byte / 4u] >> (byte % 4u * 8u + select(0u, 4u, high))) & 15u;
    let at = row * params.groups_per_row + min(column / params.group, params.groups_per_row - 1u);
    out[i] = (f32(nibble) - 8.0 $LESS_ZERO) * scales[at];
}
