// Q5_0: 32 quants of 4 + 1 bits, less 16, and a scale (f16). Planes: nibbles, fifth bits, scales.
#include "blocks/five_bits.wgsl"
#include "blocks/four_scales.wgsl"
#params plane2: u32
fn scale_at(row: u32, b: u32) -> Scale {
    let d = half_at(params.plane2, row * params.blocks + b);
    return Scale(vec2<f32>(d), -16.0 * d);
}
