// Per row of x: scale = (max(x, 0) - min(x, 0)) / (q_max - q_min), zero point = q_min - round(min / scale).
// One workgroup per four rows, so that their zero points, packed in one word, are written once.
// 16 lanes per row; each adds up the lanes of its row itself: one barrier.
#params rows: u32, width: u32, q_min: f32, q_max: f32, eps: f32
#read x: f32
#write scales: f32, zeros: u32
#include "quantize/quotient.wgsl"

var<workgroup> bounds: array<vec2<f32>, 64>;

#main 64
    let first = group_number(group, groups) * 4u;
    let row = first + lane / 16u;
    var low = 0.0;
    var high = 0.0;
    if (row < params.rows) {
        for (var i = lane % 16u; i < params.width; i += 16u) {
            low = min(low, load_x(row * params.width + i));
            high = max(high, load_x(row * params.width + i));
        }
    }
    bounds[lane] = vec2<f32>(low, high);
    workgroupBarrier();
    if (lane != 0u || first >= params.rows) { return; }
    var packed = 0u;
    for (var r = 0u; r < min(4u, params.rows - first); r++) {
        low = 0.0;
        high = 0.0;
        for (var i = 0u; i < 16u; i++) {
            low = min(low, bounds[r * 16u + i].x);
            high = max(high, bounds[r * 16u + i].y);
        }
        let scale = max(quotient(high - low, params.q_max - params.q_min), params.eps);
        let zero = clamp(params.q_min - round(quotient(low, scale)), params.q_min, params.q_max);
        store_scales(first + r, scale);
        packed |= (u32(i32(zero)) & 255u) << (r * 8u);
    }
    zeros[first / 4u] = packed;
}
