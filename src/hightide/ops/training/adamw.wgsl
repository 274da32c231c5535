// One AdamW step, in place: parameters decay, moments follow the gradient, parameters follow the moments.
// One thread per four elements; buffers are padded to whole vec4s. Results are written to the outputs too.
struct Params {
    numel: u32, decay: f32, beta1: f32, rest1: f32, beta2: f32, rest2: f32,   // rest: 1 - beta
    correction1: f32, correction2: f32, eps: f32, rate: f32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> mean: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> variance: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> parameter_out: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> mean_out: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> variance_out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    let g = gradient[i];
    let m = mean[i] * params.beta1 + g * params.rest1;
    let v = variance[i] * params.beta2 + g * g * params.rest2;
    let step = m / params.correction1 / (sqrt(v / params.correction2) + params.eps);
    let p = parameter[i] * params.decay - params.rate * step;
    parameter[i] = p;
    mean[i] = m;
    variance[i] = v;
    parameter_out[i] = p;
    mean_out[i] = m;
    variance_out[i] = v;
}
