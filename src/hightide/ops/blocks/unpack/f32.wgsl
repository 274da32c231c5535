// F32, as it is.
fn open_block(row: u32, b: u32) -> Block { return Block(vec4<u32>(), vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale { return Scale(vec2<f32>(1.0), 0.0); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(weight4[(row * params.blocks + b) * 8u + h]);
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
