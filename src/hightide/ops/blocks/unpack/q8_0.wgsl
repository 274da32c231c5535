// Q8_0: 32 quants of 8 bits, a scale (f16). Planes: bytes, scales.
#const PAIRS_IN = "words"
#const MINIMUM = False
#params plane1: u32
#include "blocks/planes.wgsl"
#include "blocks/four_scales.wgsl"
// LOOPED: `four` reads its word itself. Keeping eight words for a loop takes CPUs a quarter longer.
fn open_block(row: u32, b: u32) -> Block {
    #if LOOPED
    return Block();
    #else
    let at = (row * params.blocks + b) * 2u;
    return Block(load_weight4(at), load_weight4(at + 1u));
    #end
}
fn scale_at(row: u32, b: u32) -> Scale {
    return Scale(vec2<f32>(half_at(params.plane1, row * params.blocks + b)), 0.0);
}
// A signed byte on top of a word is converted there: too large by 2^24.
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    #if LOOPED
    let word = weight[(row * params.blocks + b) * 8u + h];
    #else
    let word = select(block.extra[h % 4u], block.q[h % 4u], h < 4u);
    #end
    let top = 0xff000000u;
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word << 24u, (word << 16u) & top, (word << 8u) & top, word & top)));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(0x1p-24); }
