// 2d convolution of 8-bit codes: out[n, o, y, x] = code of sum over taps and channels of (x - zero) * weight.
// One thread per four consecutive outputs, a word, wherever in the output they lie; sums are exact.
struct Params {
    numel: u32, none: u32, x_zero: i32, x_scale: f32, inverse: f32, out_zero: f32,
    channels: u32, height: u32, width: u32,            // of the output
    x_channels: u32, x_height: i32, x_width: i32,
    group_x: u32, group_out: u32, scale_count: u32,    // channels of a group; how many scales there are
    weight_o: u32, weight_tap: u32,                    // strides of weights; channels of a group are neighbours
    kernel_y: i32, kernel_x: i32, stride_y: i32, stride_x: i32,
    padding_y: i32, padding_x: i32, dilation_y: i32, dilation_x: i32,
}
@group(0) @binding(0) var<uniform> params: Params;
$BINDINGS

$TAIL

// Where tap `k` of output `o` lies in the input, and -1 where it lies beyond it.
fn source(o: vec4<i32>, k: i32, stride: i32, padding: i32, dilation: i32, size: i32) -> vec4<i32> {
    $SOURCE
}
fn x_at(i: u32) -> i32 {
    return extractBits(bitcast<i32>(x[i / 4u]), i % 4u * 8u, 8u);
}
fn weight_at(i: u32) -> i32 {
    return extractBits(bitcast<i32>(weight[i / 4u]), i % 4u * 8u, 8u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let word = group_number(group, groups) * 64u + lane;
    if (word * 4u >= params.numel) { return; }
    let i = min(vec4<u32>(word * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.numel - 1u));
    let column = vec4<i32>(i % params.width);
    let row = vec4<i32>(i / params.width % params.height);
    let channel = i / (params.width * params.height) % params.channels;
    let batch = i / (params.width * params.height * params.channels);
    let plane = u32(params.x_height * params.x_width);
    let first = (batch * params.x_channels + channel / params.group_out * params.group_x) * plane;
    var total = vec4<i32>();
    for (var ky = 0; ky < params.kernel_y; ky++) {
        let y = source(row, ky, params.stride_y, params.padding_y, params.dilation_y, params.x_height);
        for (var kx = 0; kx < params.kernel_x; kx++) {
            let x = source(column, kx, params.stride_x, params.padding_x, params.dilation_x, params.x_width);
            let inside = (y >= vec4<i32>(0)) & (x >= vec4<i32>(0));
            if (!any(inside)) { continue; }
            var at = select(first, first + vec4<u32>(y * params.x_width + x), inside);
            let tap = channel * params.weight_o + u32(ky * params.kernel_x + kx) * params.weight_tap;
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
