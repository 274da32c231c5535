// Per row of x, with 0 in its range: scale = (most - least) / (high - low), at least eps, and its zero point.
// One workgroup per row; each lane goes over all lanes' bounds itself: one barrier.
// EITHER: the zero point comes from the end of the range whose error is the smaller, else from the least value.
#params rows: u32, width: u32, low: f32, high: f32, eps: f32
#read x: f32
#write scales: f32, zeros: i32
#include "quantize/quotient.wgsl"

var<workgroup> bounds: array<vec2<f32>, 64>;

fn zero_of(least: f32, most: f32) -> f32 {   // of bounds in units of the scale
    #if EITHER
    let from_least = (params.low + least) + (params.high + most) > 0.0;
    return round(clamp(select(params.high - most, params.low - least, from_least), params.low, params.high));
    #else
    return clamp(params.low - round(least), params.low, params.high);
    #end
}

#main 64
    let row = group_number(group, groups);
    var least = 0.0;
    var most = 0.0;
    if (row < params.rows) {
        for (var i = lane; i < params.width; i += 64u) {
            least = min(least, load_x(row * params.width + i));
            most = max(most, load_x(row * params.width + i));
        }
    }
    bounds[lane] = vec2<f32>(least, most);
    workgroupBarrier();
    if (lane != 0u || row >= params.rows) { return; }
    for (var i = 1u; i < 64u; i++) {
        least = min(least, bounds[i].x);
        most = max(most, bounds[i].y);
    }
    let scale = max(quotient(most - least, params.high - params.low), params.eps);
    store_scales(row, scale);
    zeros[row] = i32(zero_of(quotient(least, scale), quotient(most, scale)));
}
