// TQ1_0: 256 quants of -1, 0 or 1, five to a byte: as digits to base 3 of byte / 256, the first ones first.
// Planes: 13 words of digits, scales (f16). Digit n of the first 32 bytes is 32 quants; of the next 16 bytes, 16; of the
// last four, which have four digits, four.
#const PAIRS_IN = ""
#const MINIMUM = False
#params plane1: u32
#include "blocks/planes.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(); }
fn scale_at(row: u32, b: u32) -> Scale {
    return Scale(vec2<f32>(half_at(params.plane1, (row * params.blocks + b) / 8u)), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let at = row * params.blocks + b;
    let sub = at % 8u;
    var word = h;
    var digit = sub;
    if (sub >= 5u) {
        word = 8u + h % 4u;
        digit = (sub - 5u) * 2u + h / 4u;
    }
    if (sub == 7u && h >= 4u) {
        word = 12u;
        digit = h - 4u;
    }
    let power = select(select(81u, 27u, digit < 4u), select(9u, select(3u, 1u, digit < 1u), digit < 2u), digit < 3u);
    let bytes = (vec4<u32>(weight[at / 8u * 13u + word]) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let rest = (bytes * power) & vec4<u32>(255u);
    return vec4<f32>(vec4<i32>((rest * 3u) >> vec4<u32>(8u)) - 1);
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
