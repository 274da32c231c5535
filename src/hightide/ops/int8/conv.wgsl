// 2d convolution of 8-bit codes: out[n, o, y, x] = code of sum over taps and channels of (x - zero) * weight.
// One thread per four consecutive outputs, a word, wherever in the output they lie; sums are exact.
#params numel: u32, channels: u32, height: u32, width: u32            // of the output
#include "int8/taps.wgsl"
#const NAME = "weight"
#include "int8/element.wgsl"
#include "int8/requantize.wgsl"
#write out: u32

#main 64
    let word = group_number(group, groups) * 64u + lane;
    if (word * 4u >= params.numel) { return; }
    let i = min(vec4<u32>(word * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.numel - 1u));
    let column = vec4<i32>(i % params.width);
    let row = vec4<i32>(i / params.width % params.height);
    let channel = i / (params.width * params.height) % params.channels;
    let batch = i / (params.width * params.height * params.channels);
    let plane = u32(params.x_size.x * params.x_size.y);
    let first = (batch * params.x_channels + channel / params.group_out * params.group_x) * plane;
    var total = vec4<i32>();
    for (var ky = 0; ky < params.window.x; ky++) {
        let y = row_source(row, ky);
        for (var kx = 0; kx < params.window.y; kx++) {
            let x = column_source(column, kx);
            let inside = (y >= vec4<i32>(0)) & (x >= vec4<i32>(0));
            if (!any(inside)) { continue; }
            var at = select(first, first + vec4<u32>(y * params.x_size.y + x), inside);
            let tap = channel * params.weight_o + u32(ky * params.window.y + kx) * params.weight_tap;
            for (var c = 0u; c < params.group_x; c++) {
                let codes = vec4<i32>(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w)) - params.x_zero;
                total += select(vec4<i32>(0), codes, inside) *
                    vec4<i32>(weight_at(tap.x + c), weight_at(tap.y + c), weight_at(tap.z + c), weight_at(tap.w + c));
                at += plane;
            }
        }
    }
    var codes = vec4<i32>();
    for (var e = 0u; e < min(4u, params.numel - word * 4u); e++) {
        codes[e] = code_of(total[e], channel[e], channel[e] % params.scale_count);
    }
    out[word] = pack4xI8(codes);
}
