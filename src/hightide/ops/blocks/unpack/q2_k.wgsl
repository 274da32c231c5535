// Q2_K: 256 quants of 2 bits; per 16 of them a scale and a minimum of 4 bits, times d and dmin (f16).
// Planes: quants, (scale, minimum) a byte, (d, dmin). A block of 32 has two minimums, so `four` does all of it.
#const PAIRS_IN = ""
#const MINIMUM = False
#params plane1: u32, plane2: u32
#include "blocks/pairs_in_order.wgsl"
#include "blocks/four_scales.wgsl"
// extra: scale and minimum of the first 16, then of the others.
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    let bytes = vec4<u32>(weight[params.plane1 + at / 2u]) >> (vec4<u32>(0u, 4u, 8u, 12u) + (at & 1u) * 16u);
    let d = unpack2x16float(weight[params.plane2 + at / 8u]);
    return Block(two_words(row, b), bitcast<vec4<u32>>(vec4<f32>(bytes & vec4<u32>(15u)) * d.xyxy));
}
fn scale_at(row: u32, b: u32) -> Scale { return Scale(vec2<f32>(1.0), 0.0); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let pair = bitcast<vec2<f32>>(select(block.extra.zw, block.extra.xy, h < 4u));
    return vec4<f32>(pairs_of(block.q, h)) * pair.x - pair.y;
}
