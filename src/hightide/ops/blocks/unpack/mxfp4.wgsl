// MXFP4: 32 floats of 4 bits, twice what they stand for in a table, and a power of two (its exponent, a byte).
// Planes: nibbles, exponents.
#const CODES0 = 0x03020100
#const CODES1 = 0x0c080604
#const CODES2 = 0xfdfeff00
#const CODES3 = 0xf4f8fafc
#params plane1: u32
#include "blocks/code_nibbles.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let e = (weight[params.plane1 + at / 4u] >> (at % 4u * 8u)) & 255u;
    return Scale(vec2<f32>(bitcast<f32>(select((e - 1u) << 23u, 0x200000u << (e & 1u), e < 2u))), 0.0);   // half of 2^(e - 127)
}
