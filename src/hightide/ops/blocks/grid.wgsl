// Quants that are rows of a table: eight (IQ1, IQ2) or four (IQ3) bytes each, in the last plane. A block's own data is in
// words; scales of 16 or 32 quants are times d (f16).
#const PAIRS_IN = ""
#const MINIMUM = False
#include "blocks/planes.wgsl"
#include "blocks/four_scales.wgsl"
fn byte_at(plane: u32, i: u32) -> u32 { return (weight[plane + i / 4u] >> (i % 4u * 8u)) & 255u; }
fn short_at(plane: u32, i: u32) -> u32 { return (weight[plane + i / 2u] >> (i % 2u * 16u)) & 0xffffu; }
fn byte_of(word: u32, i: u32) -> u32 { return (word >> (i * 8u)) & 255u; }
// Signs of eight quants as 7 bits: the last one makes the number of minuses even.
fn even_signs(bits: u32) -> u32 { return bits | ((countOneBits(bits) & 1u) << 7u); }
// Chunk h of quants whose bytes are in a word, and the signs of eight.
fn with_signs(word: u32, signs: u32, h: u32) -> vec4<f32> {
    let bytes = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let minus = (vec4<u32>(signs >> (h % 2u * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    return vec4<f32>(bytes) * (1.0 - 2.0 * vec4<f32>(minus));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
