// Elements one by one: floats to codes (OP "quantize") and back ("dequantize"), codes to codes of another scale
// ("rescale"), through a relu ("relu"), or as a sum of x and alpha * y ("add"). Tensors lie at any strides of one box.
// One thread per four consecutive outputs: a word of four codes, or a vec4. Every product and sum is rounded to float32
// on its own, as in torch: codes then agree at ties.
// X, Y, SCALES, ZEROS, OUT: how each is held, see element.wgsl. ZERO_FIRST: the zero point is added before rounding.
#params numel: u32, none: u32                       // none: always zero, which the compiler cannot know
#params scale: f32, zero: f32, inverse: f32         // of x, where no tensor gives them; of the output, 1 / scale
#params out_zero: f32, low: f32, high: f32          // of the output
#params y_scale: f32, y_zero: f32, alpha: f32 if OP == "add"
#params dims: array<vec4<u32>, 2>, x_strides: array<vec4<u32>, 2>
#params other_strides: array<vec4<u32>, 2>          // of y, or of scales and zeros
#const NAME = "x"
#const HELD = X
#include "int8/element.wgsl"
#const NAME = "y"
#const HELD = Y
#include "int8/element.wgsl"
#const NAME = "scales"
#const HELD = SCALES
#include "int8/element.wgsl"
#const NAME = "zeros"
#const HELD = ZEROS
#include "int8/element.wgsl"
#const T = "f32" if OP == "dequantize" else "i32"
#const BYTES = OUT in ("i8", "u8")
#const WORD = "u32" if BYTES else "vec4<f32>" if OP == "dequantize" else "vec4<i32>"
#write out: $WORD
#if SCALES
#include "quantize/quotient.wgsl"
#end

// A product that is not fused with the sum it goes into.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ params.none);
}
fn to_code(x: f32, zero: f32) -> i32 {
    return i32(clamp(round(x) + zero, params.low, params.high));
}

fn element(i: u32) -> $T {
    var rest = i;
    var at = vec2<u32>();   // in x, in the others
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            let h = d >> 2u;
            at += rest % size * vec2<u32>(params.x_strides[h][d & 3], params.other_strides[h][d & 3]);
            rest = rest / size;
        }
    }
    let value = f32(x_at(at.x));
    #if SCALES
    let scale = f32(scales_at(at.y));
    let inverse = quotient(1.0, scale);
    #else
    let scale = params.scale;
    let inverse = params.inverse;
    #end
    #if ZEROS
    let zero = f32(zeros_at(at.y));
    #else
    let zero = params.zero;
    #end
    #if OP == "quantize" and ZERO_FIRST
    return to_code(rounded(value * inverse) + zero, 0.0);
    #elif OP == "quantize"
    return to_code(value * inverse, zero);
    #elif OP == "dequantize"
    return (value - zero) * scale;
    #elif OP == "rescale"
    return to_code((value - zero) * scale * inverse, params.out_zero);
    #elif OP == "relu"
    return to_code(max((value - zero) * scale, 0.0) * inverse, params.out_zero);
    #elif OP == "add"
    let other = rounded(params.alpha * rounded((f32(y_at(at.y)) - params.y_zero) * params.y_scale));
    return to_code(rounded(rounded((value - zero) * scale) + other) * inverse, params.out_zero);
    #end
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    var result = vec4<$T>();
    for (var e = 0u; e < min(4u, params.numel - i * 4u); e++) { result[e] = element(i * 4u + e); }
    #if BYTES
    out[i] = pack4xI8(result);
    #elif OP == "dequantize"
    store_out(i, result);
    #else
    out[i] = result;
    #end
}
