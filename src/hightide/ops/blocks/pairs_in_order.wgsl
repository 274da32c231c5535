// Quants of 2 bits in element order in the first plane: two words to a block.
#include "blocks/planes.wgsl"
fn two_words(row: u32, b: u32) -> vec4<u32> {
    let at = (row * params.blocks + b) * 2u;
    return vec4<u32>(weight[at], weight[at + 1u], 0u, 0u);
}
// Chunk h of 32 pairs of bits.
fn pairs_of(q: vec4<u32>, h: u32) -> vec4<u32> {
    return (vec4<u32>(q[h / 4u] >> (h % 4u * 8u)) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
