// TQ2_0: 256 quants of 2 bits, less 1, and a scale (f16). Planes: quants, scales.
#const PAIRS_IN = ""
#const MINIMUM = False
#params plane1: u32
#include "blocks/pairs_in_order.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(two_words(row, b), vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    return Scale(vec2<f32>(half_at(params.plane1, (row * params.blocks + b) / 8u)), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(pairs_of(block.q, h)) - 1);
}
