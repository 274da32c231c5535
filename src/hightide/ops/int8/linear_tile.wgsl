// out[m, n] = scale[n] * sum_k x[m, k] * w[n, k] (+ bias[n]). FORM: x and weights are 8-bit codes ("codes"), or x is
// floats and weights have 8 ("int8") or 4 bits ("int4": two values a byte, the first in the high half, value + 8).
// One thread computes ROWS rows x 4 columns; a step takes one word of each weight row.
// Assumes rows of x and of weights are whole steps, and for an output of codes (TO_CODES) that N is a multiple of 4.
#const CODES = FORM == "codes"
#const T = "i32" if CODES else "f32"
#params m: u32, n: u32, steps: u32, row_words: u32, row_tiles: u32, column_tiles: u32
#const X = "u32" if CODES else "vec4<f32>"
#read x: $X, weight: u32
#if CODES
#read sums: i32                                      // of each row of the weight
#include "int8/requantize.wgsl"
#else
#read scales: f32
#end
#const OUT = "u32" if TO_CODES else "f32"
#write out: $OUT

const ROWS = $ROWS;
#if FORM == "codes"
fn unpack(word: u32) -> u32 { return word; }
fn product(at: u32, w: u32) -> i32 { return dot4I8Packed(x[at], w); }
#elif FORM == "int8"
fn unpack(word: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(word)); }
fn product(at: u32, w: vec4<f32>) -> f32 { return dot(load_x(at), w); }
#else
fn unpack(word: u32) -> mat2x4<f32> {
    let even = vec4<f32>(unpack4xU8((word >> 4u) & 0x0f0f0f0fu)) - 8.0;
    let odd = vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)) - 8.0;
    return mat2x4<f32>(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}
fn product(at: u32, w: mat2x4<f32>) -> f32 { return dot(load_x(at * 2u), w[0]) + dot(load_x(at * 2u + 1u), w[1]); }
#end

#main $LANES
    let tile = group_number(group, groups) * ${LANES}u + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * u32(ROWS);
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u));
    let starts = columns * params.row_words;
    var x_row: array<u32, ROWS>;
    var total: array<vec4<$T>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        x_row[r] = min(row + u32(r), params.m - 1u) * params.steps;
        total[r] = vec4<$T>();
    }
    for (var step = 0u; step < params.steps; step++) {
        let w0 = unpack(weight[starts.x + step]);
        let w1 = unpack(weight[starts.y + step]);
        let w2 = unpack(weight[starts.z + step]);
        let w3 = unpack(weight[starts.w + step]);
        for (var r = 0; r < ROWS; r++) {
            let at = x_row[r] + step;
            total[r] += vec4<$T>(product(at, w0), product(at, w1), product(at, w2), product(at, w3));
        }
    }
    for (var r = 0; r < ROWS; r++) {
        if (row + u32(r) < params.m) {
            let first = (row + u32(r)) * params.n + column;
            #if TO_CODES
            var codes = vec4<i32>();
            for (var c = 0u; c < 4u; c++) {
                codes[c] = code_of(total[r][c] - params.x_zero * sums[column + c], column + c, column + c);
            }
            out[first / 4u] = pack4xI8(codes);
            #else
            for (var c = 0u; c < min(4u, params.n - column); c++) {
                #if CODES
                let value = value_of(total[r][c] - params.x_zero * sums[column + c], column + c, column + c);
                #else
                let value = total[r][c] * load_scales(column + c);
                #end
                store_out(first + c, value);
            }
            #end
        }
    }
}
