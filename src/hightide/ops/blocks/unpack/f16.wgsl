// F16: two to a word.
fn open_block(b: u32) -> Block { var block: Block; block.scale = vec4<f32>(1.0, 0.0, 1.0, 0.0); return block; }
fn eight(b: u32, block: Block, j: u32) -> Eight {
    let words = weight4[b * 4u + j];
    return Eight(vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)),
                 vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}
