// out = (clamp(round(x / scale) + zero, q_min, q_max) - zero) * scale, with a scale and a zero point per row:
// activations as their 8-bit form sees them. One thread per element; zero points are bytes packed in words.
struct Params { numel: u32, width: u32, q_min: f32, q_max: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> zeros: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let row = i / params.width;
    let scale = scales[row];
    let zero = f32(extractBits(bitcast<i32>(zeros[row / 4u]), row % 4u * 8u, 8u));
    out[i] = (clamp(round(x[i] / scale) + zero, params.q_min, params.q_max) - zero) * scale;
}
