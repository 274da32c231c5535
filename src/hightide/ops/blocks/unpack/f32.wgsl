// F32, as it is.
fn open_block(b: u32) -> Block { var block: Block; block.scale = vec4<f32>(1.0, 0.0, 1.0, 0.0); return block; }
fn eight(b: u32, block: Block, j: u32) -> Eight {
    return Eight(bitcast<vec4<f32>>(weight4[b * 8u + j * 2u]), bitcast<vec4<f32>>(weight4[b * 8u + j * 2u + 1u]));
}
