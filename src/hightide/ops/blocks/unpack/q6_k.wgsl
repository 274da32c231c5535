// Q6_K: 256 quants of 4 + 2 bits, less 32, a signed byte of scale per 16, times d (f16).
// Planes: nibbles, upper pairs, scales, d.
#const PAIRS_IN = "half"
#const RUNS = 2
#const MINIMUM = False
#params plane1: u32, plane2: u32, plane3: u32
#include "blocks/planes.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    let pairs = params.plane1 + at * 2u;
    return Block(load_weight4(at), vec4<u32>(weight[pairs], weight[pairs + 1u], 0u, 0u));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let two = bitcast<i32>(weight[params.plane2 + at / 2u] << (16u - (at & 1u) * 16u));   // our two bytes on top
    let bytes = vec2<f32>(vec2<i32>((two << 8u) >> 24u, two >> 24u));
    return Scale(half_at(params.plane3, at / 8u) * bytes, 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let pairs = block.extra[h / 4u] >> (h % 4u * 8u);
    let upper = vec4<u32>(pairs << 4u, pairs << 2u, pairs, pairs >> 2u) & vec4<u32>(48u);
    return vec4<f32>(bitcast<vec4<i32>>(plain_nibbles(block.q, h) | upper) - 32);
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
