// out[n, o, p] = bias[o] + sum over c of weight[o, c] * x[n, c, p]: a 1 x 1 convolution, which is a matrix product.
// One thread computes 4 channels x QUADS vec4s of pixels, out of registers. BIAS, CLAMP: there is one.
// The pixels of a plane, and the input channels, come in whole vec4s.
#params tiles: u32, pixel_tiles: u32, channel_tiles: u32
#params out_channels: u32, in_quads: u32, pixel_quads: u32            // quads: vec4s of channels, of pixels
#params low: f32, high: f32 if CLAMP
#read x: vec4<f32>, weight: vec4<f32>
#read bias: f32 if BIAS
#write out: vec4<f32>

const QUADS = $QUADS;

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    if (tile >= params.tiles) { return; }
    let quad = tile % params.pixel_tiles * u32(QUADS);
    let row = tile / params.pixel_tiles;
    let channel = row % params.channel_tiles * 4u;
    let batch = row / params.channel_tiles;
    var columns: array<u32, QUADS>;
    var total: array<array<vec4<f32>, QUADS>, 4>;
    for (var q = 0; q < QUADS; q++) {
        columns[q] = batch * params.in_quads * 4u * params.pixel_quads + min(quad + u32(q), params.pixel_quads - 1u);
        for (var c = 0; c < 4; c++) { total[c][q] = vec4<f32>(); }
    }
    let last = params.out_channels - 1u;
    let rows = min(vec4<u32>(channel) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last)) * params.in_quads;
    for (var i = 0u; i < params.in_quads; i++) {
        let w0 = load_weight(rows.x + i);
        let w1 = load_weight(rows.y + i);
        let w2 = load_weight(rows.z + i);
        let w3 = load_weight(rows.w + i);
        for (var k = 0u; k < 4u; k++) {
            let at = (i * 4u + k) * params.pixel_quads;
            for (var q = 0; q < QUADS; q++) {
                let value = load_x(columns[q] + at);
                total[0][q] += w0[k] * value;
                total[1][q] += w1[k] * value;
                total[2][q] += w2[k] * value;
                total[3][q] += w3[k] * value;
            }
        }
    }
    for (var c = 0u; c < min(4u, params.out_channels - channel); c++) {
        for (var q = 0u; q < min(u32(QUADS), params.pixel_quads - quad); q++) {
            var value = total[c][q];
            #if BIAS
            value += load_bias(channel + c);
            #end
            #if CLAMP
            value = clamp(value, vec4<f32>(params.low), vec4<f32>(params.high));
            #end
            store_out((batch * params.out_channels + channel + c) * params.pixel_quads + quad + q, value);
        }
    }
}
