// 1x1 convolution of 8-bit codes: out[n, o, p] = code of sum_c (x[n, c, p] - zero) * weight[o, c].
// One thread computes 4 channels x 4 pixels (a word of each); a step takes 4 input channels.
// Assumes that pixels and input channels are multiples of 4.
#params tiles: u32, channels: u32, channel_tiles: u32, words: u32, steps: u32, row_words: u32   // words: of a plane
#read x: u32, weight: u32
#include "int8/requantize.wgsl"
#write out: u32

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    if (tile >= params.tiles) { return; }
    let pixel = tile % params.words;
    let channel = tile / params.words % params.channel_tiles * 4u;
    let batch = tile / (params.words * params.channel_tiles);
    let rows = min(vec4<u32>(channel) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.channels - 1u)) * params.row_words;
    var at = batch * params.steps * 4u * params.words + pixel;
    var total = array<vec4<i32>, 4>();
    for (var step = 0u; step < params.steps; step++) {
        let w = mat_of(rows + step);
        for (var c = 0; c < 4; c++) {
            let codes = unpack4xI8(x[at]) - params.x_zero;
            for (var o = 0; o < 4; o++) { total[o] += codes * w[o][c]; }
            at += params.words;
        }
    }
    for (var o = 0u; o < min(4u, params.channels - channel); o++) {
        var codes = vec4<i32>();
        for (var p = 0u; p < 4u; p++) { codes[p] = code_of(total[o][p], channel + o, channel + o); }
        out[(batch * params.channels + channel + o) * params.words + pixel] = pack4xI8(codes);
    }
}

fn mat_of(at: vec4<u32>) -> array<vec4<i32>, 4> {
    return array<vec4<i32>, 4>(unpack4xI8(weight[at.x]), unpack4xI8(weight[at.y]),
                               unpack4xI8(weight[at.z]), unpack4xI8(weight[at.w]));
}
