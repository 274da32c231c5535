// Q4_0: 32 quants of 4 bits, a scale (f16). Planes: nibbles, scales.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    let d = half_at(params.plane1, b);
    block.scale = vec4<f32>(d, 0.0, d, 0.0);
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight { return nibbles(block.q[j], 8.0); }
