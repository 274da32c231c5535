// BF16: the upper halves of f32, two to a word.
fn open_block(b: u32) -> Block { var block: Block; block.scale = vec4<f32>(1.0, 0.0, 1.0, 0.0); return block; }
fn eight(b: u32, block: Block, j: u32) -> Eight {
    let words = weight4[b * 4u + j];
    let first = bitcast<vec4<f32>>(words << vec4<u32>(16u));
    let second = bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u));
    return Eight(vec4<f32>(first.x, second.x, first.y, second.y), vec4<f32>(first.z, second.z, first.w, second.w));
}
