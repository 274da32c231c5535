// Q5_0: 32 quants of 4 + 1 bits, a scale (f16). Planes: nibbles, fifth bits, scales.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.extra.x = weight[params.plane1 + b];
    let d = half_at(params.plane2, b);
    block.scale = vec4<f32>(d, 0.0, d, 0.0);
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight {
    return plus_bits(nibbles(block.q[j], 16.0), block.extra.x >> (j * 8u));
}
