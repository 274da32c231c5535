// Q4_K. Planes: nibbles, heads of 256 quants.
#const HEADS = "plane1"
#include "blocks/planes.wgsl"
#include "blocks/nibbles.wgsl"
#include "blocks/k_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(load_weight4(row * params.blocks + b), vec4<u32>()); }
