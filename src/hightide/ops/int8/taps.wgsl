// Part of the convolutions of codes: where the taps of a window lie in the input. TRANSPOSED: of a transposed one.
#params x_channels: u32, x_size: vec2<i32>                            // sizes are (height, width)
#params group_x: u32, group_out: u32, scale_count: u32                // channels of a group; how many scales there are
#params weight_o: u32, weight_tap: u32      // strides of weights; channels of a group are neighbours
#params window: vec2<i32>, stride: vec2<i32>, padding: vec2<i32>, dilation: vec2<i32>
#const NAME = "x"
#const HELD = "i8"
#include "int8/element.wgsl"

// Where tap `k` of output `o` lies in the input, and -1 where it lies beyond it.
fn source(o: vec4<i32>, k: i32, stride: i32, padding: i32, dilation: i32, size: i32) -> vec4<i32> {
    #if TRANSPOSED
    let steps = o + padding - k * dilation;
    let at = steps / stride;
    return select(vec4<i32>(-1), at, (steps >= vec4<i32>(0)) & (at * stride == steps) & (at < vec4<i32>(size)));
    #else
    let at = o * stride + k * dilation - padding;
    return select(vec4<i32>(-1), at, (at >= vec4<i32>(0)) & (at < vec4<i32>(size)));
    #end
}
fn row_source(o: vec4<i32>, k: i32) -> vec4<i32> {
    return source(o, k, params.stride.x, params.padding.x, params.dilation.x, params.x_size.x);
}
fn column_source(o: vec4<i32>, k: i32) -> vec4<i32> {
    return source(o, k, params.stride.y, params.padding.y, params.dilation.y, params.x_size.y);
}
