// Quants of 4 bits that are places in a table of 16 signed bytes: CODES0 to CODES3, four to a word.
#const PAIRS_IN = "word"
#const MINIMUM = False
#include "blocks/planes.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(load_weight4(row * params.blocks + b), vec4<u32>()); }
fn code(n: u32) -> i32 {
    let low = select(${CODES1}u, ${CODES0}u, n < 4u);
    let high = select(${CODES3}u, ${CODES2}u, n < 12u);
    return bitcast<i32>(select(high, low, n < 8u) << (24u - n % 4u * 8u)) >> 24u;
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let n = plain_nibbles(block.q, h);
    return vec4<f32>(vec4<i32>(code(n.x), code(n.y), code(n.z), code(n.w)));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
