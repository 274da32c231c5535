// IQ4_XS: 256 quants of 4 bits, places in a table; per 32 a scale of 6 bits, less 32, times d (f16).
// Planes: nibbles, heads of two words: d, the upper 2 bits of eight scales, their low 4 bits.
#params plane1: u32
#include "blocks/iq4_codes.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let sub = at % 8u;
    let head = weight[params.plane1 + at / 8u * 2u];
    let low = (weight[params.plane1 + at / 8u * 2u + 1u] >> (sub * 4u)) & 15u;
    let high = (head >> (16u + sub * 2u)) & 3u;
    return Scale(vec2<f32>(unpack2x16float(head).x * f32(i32(low | (high << 4u)) - 32)), 0.0);
}
