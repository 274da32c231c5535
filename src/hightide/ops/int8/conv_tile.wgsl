// conv.wgsl for planes of whole words: out[n, o, y, x] = code of sum over taps and channels of (x - zero) * weight.
// One thread computes $TILE channels x 4 pixels (a word of each), so that channels share what they read of the input.
// Assumes that pixels of the output are a multiple of 4, and that a tile's channels are of one group.
struct Params {
    tiles: u32, none: u32, x_zero: i32, x_scale: f32, inverse: f32, out_zero: f32,
    channels: u32, channel_tiles: u32, words: u32, width: u32,   // of the output; words: of a plane
    x_channels: u32, x_height: i32, x_width: i32,
    group_x: u32, group_out: u32, scale_count: u32,    // channels of a group; how many scales there are
    weight_o: u32, weight_tap: u32,                    // strides of weights; channels of a group are neighbours
    kernel_y: i32, kernel_x: i32, stride_y: i32, stride_x: i32,
    padding_y: i32, padding_x: i32, dilation_y: i32, dilation_x: i32,
}
@group(0) @binding(0) var<uniform> params: Params;
$BINDINGS

const TILE = ${TILE}u;
$TAIL

// Where tap `k` of output `o` lies in the input, and -1 where it lies beyond it.
fn source(o: vec4<i32>, k: i32, stride: i32, padding: i32, dilation: i32, size: i32) -> vec4<i32> {
    $SOURCE
}
fn x_at(i: u32) -> i32 {
    return extractBits(bitcast<i32>(x[i / 4u]), i % 4u * 8u, 8u);
}
fn four_weights(i: u32) -> vec4<i32> {
    let shift = i % 4u * 8u;
    if (shift == 0u) { return unpack4xI8(weight[i / 4u]); }
    return unpack4xI8((weight[i / 4u] >> shift) | (weight[i / 4u + 1u] << (32u - shift)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group_number(group, groups) * 64u + lane;
    if (tile >= params.tiles) { return; }
    let word = tile % params.words;
    let channel = tile / params.words % params.channel_tiles * TILE;
    let batch = tile / (params.words * params.channel_tiles);
    let pixel = vec4<u32>(word * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let column = vec4<i32>(pixel % params.width);
    let row = vec4<i32>(pixel / params.width);
    let plane = u32(params.x_height * params.x_width);
    let first = (batch * params.x_channels + channel / params.group_out * params.group_x) * plane;
    var total = array<vec4<i32>, TILE>();
    for (var ky = 0; ky < params.kernel_y; ky++) {
        let y = source(row, ky, params.stride_y, params.padding_y, params.dilation_y, params.x_height);
        for (var kx = 0; kx < params.kernel_x; kx++) {
            let x = source(column, kx, params.stride_x, params.padding_x, params.dilation_x, params.x_width);
            let inside = (y >= vec4<i32>(0)) & (x >= vec4<i32>(0));
            if (!any(inside)) { continue; }
            var at = first + select(vec4<u32>(0u), vec4<u32>(y * params.x_width + x), inside);
            let tap = u32(ky * params.kernel_x + kx) * params.weight_tap;
            for (var c = 0u; c < params.group_x; c += 4u) {
                var w: array<vec4<i32>, TILE>;
                for (var o = 0u; o < TILE; o++) {
                    w[o] = four_weights(min(channel + o, params.channels - 1u) * params.weight_o + tap + c);
                }
                for (var j = 0u; j < min(4u, params.group_x - c); j++) {
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
