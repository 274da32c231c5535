// out[row] = (x[row] - mean) / sqrt(variance + eps) * weight + bias, with mean and 1 / sqrt(..) kept per row.
// One workgroup per row. Each lane takes the mean of every $LANES-th element, then the squares of their distances
// from it; lanes' (mean, squares) are then joined by each lane itself: one barrier, and no cancellation.
// $T is vec4<f32> where rows are multiples of 4; `width` counts elements of $T.
struct Params {
    rows: u32, width: u32, eps: f32,
    groups: u32, channels: u32, spatial: u32,   // of group norm: groups, channels of a group, elements of a channel
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<$T>;
$AFFINE
@group(0) @binding($OUT) var<storage, read_write> out: array<$T>;
@group(0) @binding($OUT + 1) var<storage, read_write> means: array<f32>;
@group(0) @binding($OUT + 2) var<storage, read_write> scales: array<f32>;

const LANES = ${LANES}u;
struct Part { mean: $T, squares: $T }
var<workgroup> parts: array<Part, LANES>;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var part: Part;
    for (var i = lane; i < params.width; i += LANES) {
        part.mean += x[start + i];
    }
    part.mean /= f32(max((params.width + LANES - 1u - lane) / LANES, 1u));
    for (var i = lane; i < params.width; i += LANES) {
        let distance = x[start + i] - part.mean;
        part.squares += distance * distance;
    }
    parts[lane] = part;
    workgroupBarrier();

    let lanes = min(LANES, params.width);
    var total = $T();
    for (var i = 0u; i < lanes; i++) {
        total += parts[i].mean * f32((params.width + LANES - 1u - i) / LANES);
    }
    let count = f32(params.width) * $COMPONENTS;
    let mean = $SUM_TOTAL / max(count, 1.0);   // torch: 0 for an empty row, of which the deviation is NaN
    var squares = $T();
    for (var i = 0u; i < lanes; i++) {
        let distance = parts[i].mean - mean;
        squares += parts[i].squares + distance * distance * f32((params.width + LANES - 1u - i) / LANES);
    }
    let scale = 1.0 / sqrt($SUM_SQUARES / count + params.eps);
    if (lane == 0u) {
        means[row] = mean;
        scales[row] = scale;
    }
    for (var i = lane; i < params.width; i += LANES) {
        let c = $CHANNEL;
        out[start + i] = (x[start + i] - mean) * scale $WEIGHT $BIAS;
    }
}
