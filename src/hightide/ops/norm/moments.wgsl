// out[row] = (x[row] - mean) / sqrt(variance + eps) * weight + bias, with mean and 1 / sqrt(..) kept per row.
// One workgroup per row. Each lane takes the mean of every LANES-th element, then the squares of their distances
// from it; lanes' (mean, squares) are then joined by each lane itself: one barrier, and no cancellation.
// VEC4: rows are multiples of 4, and counted in vec4s. GROUPED: a row is a group of channels. WEIGHT, BIAS: there is one.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, width: u32, eps: f32
#params groups: u32, channels: u32, spatial: u32   // groups, channels of a group, elements of a channel
#read x: $T
#read weight: $T if WEIGHT
#read bias: $T if BIAS
#write out: $T, means: f32, scales: f32

const LANES = ${LANES}u;
struct Part { mean: $T, squares: $T }
var<workgroup> parts: array<Part, LANES>;

#if VEC4
fn total_of(sum: vec4<f32>) -> f32 { return dot(sum, vec4<f32>(1.0)); }
#else
fn total_of(sum: f32) -> f32 { return sum; }
#end

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var part: Part;
    for (var i = lane; i < params.width; i += LANES) {
        part.mean += load_x(start + i);
    }
    part.mean /= f32(max((params.width + LANES - 1u - lane) / LANES, 1u));
    for (var i = lane; i < params.width; i += LANES) {
        let distance = load_x(start + i) - part.mean;
        part.squares += distance * distance;
    }
    parts[lane] = part;
    workgroupBarrier();

    let lanes = min(LANES, params.width);
    var total = $T();
    for (var i = 0u; i < lanes; i++) {
        total += parts[i].mean * f32((params.width + LANES - 1u - i) / LANES);
    }
    let count = f32(params.width) * ${4 if VEC4 else 1}.0;
    let mean = total_of(total) / max(count, 1.0);   // torch: 0 for an empty row, of which the deviation is NaN
    var squares = $T();
    for (var i = 0u; i < lanes; i++) {
        let distance = parts[i].mean - mean;
        squares += parts[i].squares + distance * distance * f32((params.width + LANES - 1u - i) / LANES);
    }
    let scale = 1.0 / sqrt(total_of(squares) / count + params.eps);
    if (lane == 0u) {
        store_means(row, mean);
        store_scales(row, scale);
    }
    for (var i = lane; i < params.width; i += LANES) {
        #if GROUPED
        let c = row % params.groups * params.channels + i / params.spatial;
        #else
        let c = i;
        #end
        var value = (load_x(start + i) - mean) * scale;
        #include "norm/affine.wgsl"
        store_out(start + i, value);
    }
}
