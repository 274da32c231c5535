// out = (clamp(round(x * (1 / scale)) + zero, q_min, q_max) - zero) * scale, with a scale and a zero point per row:
// activations as their 8-bit form sees them. One thread per element; zero points are bytes packed in words.
#params numel: u32, width: u32, q_min: f32, q_max: f32
#read x: f32, scales: f32, zeros: u32
#write out: f32
#include "quantize/quotient.wgsl"

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let row = i / params.width;
    let scale = load_scales(row);
    let zero = f32(extractBits(bitcast<i32>(zeros[row / 4u]), row % 4u * 8u, 8u));
    store_out(i, (clamp(round(load_x(i) * quotient(1.0, scale)) + zero, params.q_min, params.q_max) - zero) * scale);
}
