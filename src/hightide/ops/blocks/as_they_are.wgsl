// Floats: a block is 32 of them in one plane, read where they are needed.
#const PAIRS_IN = ""
#const MINIMUM = False
#include "blocks/four_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(vec4<u32>(), vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale { return Scale(vec2<f32>(1.0), 0.0); }
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
