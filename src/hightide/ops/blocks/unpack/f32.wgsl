// F32, as it is.
#include "blocks/floats.wgsl"
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(load_weight4((row * params.blocks + b) * 8u + h));
}
