// total[row] = x[row] + h[row] (or + the norm of h[row]); normed[row] = the norm of that.
// One workgroup per row, as in rms_norm.wgsl: a barrier per norm; a lane reads back only what it wrote itself.
// VEC4: the width is a multiple of 4, and is counted in vec4s. INNER: h is normed first.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, width: u32, mean: f32, inner_eps: f32, eps: f32   // mean = 1 / elements of a row
#read x: $T, h: $T, weight: $T
#read inner: $T if INNER
#write total: $T, normed: $T

const LANES = ${LANES}u;
var<workgroup> partial: array<$T, LANES>;
var<workgroup> inner_partial: array<$T, LANES>;

fn root(sum: $T, eps: f32) -> f32 {
    #if VEC4
    return sqrt(dot(sum, vec4<f32>(1.0)) * params.mean + eps);
    #else
    return sqrt(sum * params.mean + eps);
    #end
}

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var sum = $T();
    #if INNER
    for (var i = lane; i < params.width; i += LANES) {
        let value = load_h(start + i);
        sum += value * value;
    }
    #const PARTIAL = "inner_partial"
    #include "norm/add_up.wgsl"
    let inner_scale = 1.0 / root(sum, params.inner_eps);
    sum = $T();
    #end
    for (var i = lane; i < params.width; i += LANES) {
        #if INNER
        let value = load_x(start + i) + load_h(start + i) * inner_scale * load_inner(i);
        #else
        let value = load_x(start + i) + load_h(start + i);
        #end
        store_total(start + i, value);
        sum += value * value;
    }
    #const PARTIAL = "partial"
    #include "norm/add_up.wgsl"
    let scale = 1.0 / root(sum, params.eps);
    for (var i = lane; i < params.width; i += LANES) {
        store_normed(start + i, load_total(start + i) * scale * load_weight(i));
    }
}
