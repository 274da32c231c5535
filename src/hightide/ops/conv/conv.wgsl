// out[n, o, p] = bias[o] + sum over c, k of x[n, c, place(p, k)] * weight[o, c, k], within each group of channels.
// One thread computes CHANNELS channels of a group x 4 consecutive pixels, out of registers; lanes share weights.
// A 1d convolution has a height of 1. BIAS, CLAMP: there is one. TRANSPOSED: a transposed convolution.
#params tiles: u32, pixel_tiles: u32, channel_tiles: u32, groups: u32
#params in_channels: u32, out_channels: u32                           // of one group
#params weight_group: u32, weight_out: u32, weight_in: u32            // strides of the weight
#params in_size: vec2<i32>, out_size: vec2<i32>, window: vec2<i32>    // height, width
#params stride: vec2<i32>, padding: vec2<i32>, dilation: vec2<i32>
#params low: f32, high: f32 if CLAMP
#read x: f32, weight: f32
#read bias: f32 if BIAS
#write out: f32

const CHANNELS = $CHANNELS;

// Where along one dim the outputs at `at` meet tap `tap` of the window; below 0 or past the end if nowhere.
fn place(at: vec4<i32>, tap: i32, stride: i32, padding: i32, dilation: i32) -> vec4<i32> {
    #if TRANSPOSED
    let from_start = at + vec4<i32>(padding - tap * dilation);
    let meets = (from_start >= vec4<i32>()) & (from_start % stride == vec4<i32>());
    return select(vec4<i32>(-1), from_start / stride, meets);
    #else
    return at * stride + vec4<i32>(tap * dilation - padding);
    #end
}

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    if (tile >= params.tiles) { return; }
    let pixel = tile % params.pixel_tiles * 4u;
    let row = tile / params.pixel_tiles;
    let channel = row % params.channel_tiles * u32(CHANNELS);
    let part = row / params.channel_tiles;                     // batch * groups + group
    let pixels = u32(params.out_size.x * params.out_size.y);
    let pixels_at = vec4<i32>(min(vec4<u32>(pixel) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(pixels - 1u)));
    let out_y = pixels_at / params.out_size.y;
    let out_x = pixels_at % params.out_size.y;
    let plane = u32(params.in_size.x * params.in_size.y);
    let start = part * params.in_channels * plane;
    var taps: array<u32, CHANNELS>;
    var total: array<vec4<f32>, CHANNELS>;
    for (var c = 0; c < CHANNELS; c++) {
        let o = min(channel + u32(c), params.out_channels - 1u);
        taps[c] = part % params.groups * params.weight_group + o * params.weight_out;
        total[c] = vec4<f32>();
    }
    for (var ky = 0; ky < params.window.x; ky++) {
        let y = place(out_y, ky, params.stride.x, params.padding.x, params.dilation.x);
        let y_inside = (y >= vec4<i32>()) & (y < vec4<i32>(params.in_size.x));
        for (var kx = 0; kx < params.window.y; kx++) {
            let x_at = place(out_x, kx, params.stride.y, params.padding.y, params.dilation.y);
            let inside = y_inside & (x_at >= vec4<i32>()) & (x_at < vec4<i32>(params.in_size.y));
            if (!any(inside)) { continue; }
            var at = vec4<u32>(start) + select(vec4<u32>(), vec4<u32>(y * params.in_size.y + x_at), inside);
            var tap = u32(ky * params.window.y + kx);
            for (var i = 0u; i < params.in_channels; i++) {
                let four = vec4<f32>(load_x(at.x), load_x(at.y), load_x(at.z), load_x(at.w));
                let value = select(vec4<f32>(), four, inside);
                for (var c = 0; c < CHANNELS; c++) {
                    total[c] += value * load_weight(taps[c] + tap);
                }
                at += vec4<u32>(plane);
                tap += params.weight_in;
            }
        }
    }
    for (var c = 0; c < CHANNELS; c++) {
        if (channel + u32(c) < params.out_channels) {
            let o = part * params.out_channels + channel + u32(c);
            for (var p = 0u; p < min(4u, pixels - pixel); p++) {
                var value = total[c][p];
                #if BIAS
                value += load_bias(o % (params.groups * params.out_channels));
                #end
                #if CLAMP
                value = clamp(value, params.low, params.high);
                #end
                store_out(o * pixels + pixel + p, value);
            }
        }
    }
}
