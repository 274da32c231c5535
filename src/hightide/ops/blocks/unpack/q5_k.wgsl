// Q5_K. Planes: nibbles, fifth bits, 16 bytes of scales per 256 quants.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.extra.x = weight[params.plane1 + b];
    block.scale = k_scale(weight4[params.plane2 / 4u + b / 8u], b % 8u).xyxy;
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight {
    return plus_bits(nibbles(block.q[j], 0.0), block.extra.x >> (j * 8u));
}
