// Part of kernels that multiply codes: how an exact 32-bit sum becomes a float, or (TO_CODES) a code of the output.
// BIAS: there is one. RELU: negative values become 0 first.
#params none: u32                                   // always zero, which the compiler cannot know
#params x_zero: i32, x_scale: f32                   // of x
#params inverse: f32, out_zero: f32                 // of the output; inverse = 1 / scale
#read scales: f32
#read bias: f32 if BIAS

fn value_of(total: i32, channel: u32, scale: u32) -> f32 {
    // The product is rounded before the bias is added.
    var value = bitcast<f32>(bitcast<u32>(f32(total) * (params.x_scale * load_scales(scale))) ^ params.none);
    #if BIAS
    value += load_bias(channel);
    #end
    return value;
}
#if TO_CODES
fn code_of(total: i32, channel: u32, scale: u32) -> i32 {
    #if RELU
    let value = max(value_of(total, channel, scale), 0.0);
    #else
    let value = value_of(total, channel, scale);
    #end
    return i32(clamp(round(value * params.inverse) + params.out_zero, -128.0, 127.0));
}
#end
