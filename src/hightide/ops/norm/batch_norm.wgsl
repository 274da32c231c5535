// out = (x - mean) / sqrt(variance + eps) * weight + bias, with statistics per channel of x [N, C, ...].
// One thread per element.
struct Params { numel: u32, channels: u32, spatial: u32, eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read> variances: array<f32>;
$AFFINE
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let c = i / params.spatial % params.channels;
    out[i] = (x[i] - means[c]) / sqrt(variances[c] + params.eps) $WEIGHT $BIAS;
}
