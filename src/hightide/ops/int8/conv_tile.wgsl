// conv.wgsl for planes of whole words: out[n, o, y, x] = code of sum over taps and channels of (x - zero) * weight.
// One thread computes TILE channels x 4 pixels (a word of each), so that channels share what they read of the input.
// Assumes that pixels of the output are a multiple of 4, and that a tile's channels are of one group.
#params tiles: u32, channels: u32, channel_tiles: u32, words: u32, width: u32   // of the output; words: of a plane
#include "int8/taps.wgsl"
#include "int8/requantize.wgsl"
#read weight: u32
#write out: u32

const TILE = ${TILE}u;

// Up to four weights from `i` on, of which `count` are used: no word is read that has none of these.
fn four_weights(i: u32, count: u32) -> vec4<i32> {
    let shift = i % 4u * 8u;
    if (i % 4u + count <= 4u) { return unpack4xI8(weight[i / 4u] >> shift); }
    return unpack4xI8((weight[i / 4u] >> shift) | (weight[i / 4u + 1u] << (32u - shift)));
}

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    if (tile >= params.tiles) { return; }
    let word = tile % params.words;
    let channel = tile / params.words % params.channel_tiles * TILE;
    let batch = tile / (params.words * params.channel_tiles);
    let pixel = vec4<u32>(word * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let column = vec4<i32>(pixel % params.width);
    let row = vec4<i32>(pixel / params.width);
    let plane = u32(params.x_size.x * params.x_size.y);
    let first = (batch * params.x_channels + channel / params.group_out * params.group_x) * plane;
    var total = array<vec4<i32>, TILE>();
    for (var ky = 0; ky < params.window.x; ky++) {
        let y = row_source(row, ky);
        for (var kx = 0; kx < params.window.y; kx++) {
            let x = column_source(column, kx);
            let inside = (y >= vec4<i32>(0)) & (x >= vec4<i32>(0));
            if (!any(inside)) { continue; }
            var at = first + select(vec4<u32>(0u), vec4<u32>(y * params.x_size.y + x), inside);
            let tap = u32(ky * params.window.y + kx) * params.weight_tap;
            for (var c = 0u; c < params.group_x; c += 4u) {
                let count = min(4u, params.group_x - c);
                var w: array<vec4<i32>, TILE>;
                for (var o = 0u; o < TILE; o++) {
                    w[o] = four_weights(min(channel + o, params.channels - 1u) * params.weight_o + tap + c, count);
                }
                for (var j = 0u; j < count; j++) {
                    let codes = vec4<i32>(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w)) - params.x_zero;
                    let seen = select(vec4<i32>(0), codes, inside);
                    for (var o = 0u; o < TILE; o++) { total[o] += seen * w[o][j]; }
                    at += plane;
                }
            }
        }
    }
    for (var o = 0u; o < min(TILE, params.channels - channel); o++) {
        var codes = vec4<i32>();
        for (var e = 0u; e < 4u; e++) {
            codes[e] = code_of(total[o][e], channel + o, (channel + o) % params.scale_count);
        }
        out[(batch * params.channels + channel + o) * params.words + word] = pack4xI8(codes);
    }
}
