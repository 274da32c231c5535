// Q4_K. Planes: nibbles, 16 bytes of scales per 256 quants.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.scale = k_scale(weight4[params.plane1 / 4u + b / 8u], b % 8u).xyxy;
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight { return nibbles(block.q[j], 0.0); }
