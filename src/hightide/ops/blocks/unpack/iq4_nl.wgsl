// IQ4_NL: 32 quants of 4 bits, places in a table, and a scale (f16). Planes: nibbles, scales.
#params plane1: u32
#include "blocks/iq4_codes.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    return Scale(vec2<f32>(half_at(params.plane1, row * params.blocks + b)), 0.0);
}
