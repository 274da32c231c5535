// out[row] = x[row] / rms(x[row]) * weight, rms(x) = sqrt(mean(x^2) + eps).
// One workgroup per row; each lane takes every LANES-th element, then adds up all lanes' sums itself:
// one barrier, where a tree would take six.
// VEC4: the width is a multiple of 4, and is counted in vec4s.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, width: u32, mean: f32, eps: f32   // mean = 1 / elements of a row
#read x: $T, weight: $T
#write out: $T

const LANES = ${LANES}u;
var<workgroup> partial: array<$T, LANES>;

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var sum = $T();
    for (var i = lane; i < params.width; i += LANES) {
        let value = load_x(start + i);
        sum += value * value;
    }
    #const PARTIAL = "partial"
    #include "norm/add_up.wgsl"
    #if VEC4
    let squares = dot(sum, vec4<f32>(1.0));
    #else
    let squares = sum;
    #end
    let scale = 1.0 / sqrt(squares * params.mean + params.eps);
    for (var i = lane; i < params.width; i += LANES) {
        store_out(start + i, load_x(start + i) * scale * load_weight(i));
    }
}
