// Plain floats of a tensor, held as f32 or as halves.
#read weight: vec4<f32>
#include "blocks/as_they_are.wgsl"
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> { return load_weight((row * params.blocks + b) * 8u + h); }
