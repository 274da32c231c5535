// Q4_1: 32 quants of 4 bits, a scale and a minimum (f16). Planes: nibbles, (scale, minimum) of four rows together.
#const PAIRS = "plane1"
#include "blocks/planes.wgsl"
#include "blocks/nibbles.wgsl"
#include "blocks/pairs.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(load_weight4(row * params.blocks + b), vec4<u32>()); }
