// Q4_0: 32 quants of 4 bits, less 8, and a scale (f16). Planes: nibbles, scales.
#params plane1: u32
#include "blocks/planes.wgsl"
#include "blocks/nibbles.wgsl"
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(load_weight4(row * params.blocks + b), vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    let d = half_at(params.plane1, row * params.blocks + b);
    return Scale(vec2<f32>(d), -8.0 * d);
}
