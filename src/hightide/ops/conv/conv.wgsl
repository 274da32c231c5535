// out[n, o, p] = bias[o] + sum over c, k of x[n, c, place(p, k)] * weight[o, c, k], within each group of channels.
// `place` is that of a plain or of a transposed convolution; a 1d one has a height of 1.
// One thread computes $CHANNELS channels of a group x 4 consecutive pixels, out of registers; lanes share weights.
struct Params {
    tiles: u32, pixel_tiles: u32, channel_tiles: u32, groups: u32,
    in_channels: u32, out_channels: u32,                       // of one group
    weight_group: u32, weight_out: u32, weight_in: u32,        // strides of the weight
    low: f32, high: f32, unused: u32,
    in_size: vec2<i32>, out_size: vec2<i32>, window: vec2<i32>, // height, width
    stride: vec2<i32>, padding: vec2<i32>, dilation: vec2<i32>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
$BIAS
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

const CHANNELS = $CHANNELS;
const NONE = vec4<i32>(-1);

// Where along one dim the outputs at `at` meet tap `tap` of the window; below 0 or past the end if nowhere.
fn place(at: vec4<i32>, tap: i32, stride: i32, padding: i32, dilation: i32) -> vec4<i32> {
    $PLACE
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
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
                let value = select(vec4<f32>(), vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
                for (var c = 0; c < CHANNELS; c++) {
                    total[c] += value * weight[taps[c] + tap];
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
                $ADD_BIAS
                out[o * pixels + pixel + p] = $RESULT;
            }
        }
    }
}
