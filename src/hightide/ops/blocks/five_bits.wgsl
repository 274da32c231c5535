// Quants of 5 bits: nibbles in the first plane, the fifth bits in the second.
#const PAIRS_IN = "byte"
#params plane1: u32
#include "blocks/planes.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(load_weight4(at), vec4<u32>(weight[params.plane1 + at]));
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let bits = block.extra.x >> (h * 4u);
    let fifth = vec4<u32>(bits << 4u, bits << 3u, bits << 2u, bits << 1u) & vec4<u32>(16u);
    return vec4<f32>(bitcast<vec4<i32>>(plain_nibbles(block.q, h) | fifth));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
