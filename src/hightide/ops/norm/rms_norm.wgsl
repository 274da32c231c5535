// out[row] = x[row] / rms(x[row]) * weight, rms(x) = sqrt(mean(x^2) + eps).
// One workgroup per row; each lane takes every $LANES-th element, then adds up all lanes' sums itself:
// one barrier, where a tree would take six.
// $T is vec4<f32> where the width is a multiple of 4, else f32; `width` counts elements of $T.
struct Params { rows: u32, width: u32, mean: f32, eps: f32 }   // mean = 1 / elements of a row
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<$T>;
@group(0) @binding(3) var<storage, read> weight: array<$T>;
@group(0) @binding(4) var<storage, read_write> out: array<$T>;

const LANES = ${LANES}u;
var<workgroup> partial: array<$T, LANES>;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var sum = $T();
    for (var i = lane; i < params.width; i += LANES) {
        sum += x[start + i] * x[start + i];
    }
    partial[lane] = sum;
    workgroupBarrier();
    sum = $T();
    for (var i = 0u; i < LANES; i++) {
        sum += partial[i];
    }
    let scale = 1.0 / sqrt($SUM * params.mean + params.eps);
    for (var i = lane; i < params.width; i += LANES) {
        out[start + i] = x[start + i] * scale * weight[i];
    }
}
