// Q3_K: 256 quants of 2 + 1 bits, less 4, a scale of 6 bits, less 32, per 16, times d (f16).
// Planes: quants, third bits, scales, d. The 12 bytes of scales are the low 4 bits of 16 of them, then the upper 2.
#const PAIRS_IN = ""
#const RUNS = 2
#const MINIMUM = False
#params plane1: u32, plane2: u32, plane3: u32
#include "blocks/pairs_in_order.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    return Block(two_words(row, b), vec4<u32>(weight[params.plane1 + row * params.blocks + b]));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let sub = at % 8u;
    let head = params.plane2 + at / 8u * 3u;
    let low = weight[head + sub % 4u / 2u] >> (sub % 2u * 16u + sub / 4u * 4u);
    let high = weight[head + 2u] >> (sub % 2u * 16u + sub / 2u * 2u);
    let both = (vec2<u32>(low, low >> 8u) & vec2<u32>(15u)) | ((vec2<u32>(high, high >> 8u) & vec2<u32>(3u)) << vec2<u32>(4u));
    return Scale(half_at(params.plane3, at / 8u) * vec2<f32>(vec2<i32>(both) - 32), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let third = ((vec4<u32>(block.extra.x >> (h * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(2u);
    return vec4<f32>(vec4<i32>(pairs_of(block.q, h) | third) - 4);
}
