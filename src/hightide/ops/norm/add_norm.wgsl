// total[row] = x[row] + h[row] (or + the norm of h[row]); normed[row] = the norm of that.
// One workgroup per row, as in rms_norm.wgsl: a barrier per norm; a lane reads back only what it wrote itself.
// $T is vec4<f32> where the width is a multiple of 4, else f32; `width` counts elements of $T.
struct Params { rows: u32, width: u32, mean: f32, inner_eps: f32, eps: f32 }   // mean = 1 / elements of a row
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<$T>;
@group(0) @binding(3) var<storage, read> h: array<$T>;
@group(0) @binding(4) var<storage, read> weight: array<$T>;
$INNER
@group(0) @binding($OUT) var<storage, read_write> total: array<$T>;
@group(0) @binding($NORMED) var<storage, read_write> normed: array<$T>;

const LANES = ${LANES}u;
var<workgroup> partial: array<$T, LANES>;
var<workgroup> inner_partial: array<$T, LANES>;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var sum = $T();
    $INNER_SCALE
    for (var i = lane; i < params.width; i += LANES) {
        let value = x[start + i] + h[start + i]$INNER_TIMES;
        total[start + i] = value;
        sum += value * value;
    }
    partial[lane] = sum;
    workgroupBarrier();
    sum = $T();
    for (var i = 0u; i < LANES; i++) { sum += partial[i]; }
    let scale = 1.0 / sqrt($SUM * params.mean + params.eps);
    for (var i = lane; i < params.width; i += LANES) {
        normed[start + i] = total[start + i] * scale * weight[i];
    }
}
