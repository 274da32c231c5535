// linear_tile.wgsl for rows of any length: out[m, n] = scale[n] * sum_k x[m, k] * w[n, k] (+ bias[n]).
// One thread per four consecutive outputs, each summed on its own. FORM, TO_CODES: as there.
#const CODES = FORM == "codes"
#const T = "i32" if CODES else "f32"
#const NAME = "x"
#const HELD = "i8" if CODES else "f32"
#params m: u32, n: u32, k: u32, row_bytes: u32
#include "int8/element.wgsl"
#if FORM == "int4"
#read weight: u32
fn weight_of(start: u32, k: u32) -> f32 {
    let i = start + k / 2u;
    return f32(extractBits(weight[i / 4u], i % 4u * 8u + (1u - k % 2u) * 4u, 4u)) - 8.0;
}
#else
#const NAME = "weight"
#const HELD = "i8"
#include "int8/element.wgsl"
fn weight_of(start: u32, k: u32) -> $T { return $T(weight_at(start + k)); }
#end
#if CODES
#include "int8/requantize.wgsl"
#else
#read scales: f32
#end
#const RESULT = "i32" if TO_CODES else "f32"
#const OUT = "u32" if TO_CODES else "vec4<f32>"
#write out: $OUT

fn element(i: u32) -> $RESULT {
    let row = i / params.n;
    let column = i % params.n;
    var total = $T(0);
    for (var k = 0u; k < params.k; k++) {
        #if CODES
        let value = x_at(row * params.k + k) - params.x_zero;
        #else
        let value = x_at(row * params.k + k);
        #end
        total += value * weight_of(column * params.row_bytes, k);
    }
    #if TO_CODES
    return code_of(total, column, column);
    #elif CODES
    return value_of(total, column, column);
    #else
    return total * load_scales(column);
    #end
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    let numel = params.m * params.n;
    if (i * 4u >= numel) { return; }
    var result = vec4<$RESULT>();
    for (var e = 0u; e < min(4u, numel - i * 4u); e++) { result[e] = element(i * 4u + e); }
    #if TO_CODES
    out[i] = pack4xI8(result);
    #else
    store_out(i, result);
    #end
}
