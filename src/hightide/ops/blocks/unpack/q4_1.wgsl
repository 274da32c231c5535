// Q4_1: 32 quants of 4 bits, a scale and a minimum (f16). Planes: nibbles, (scale, minimum).
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.scale = unpack2x16float(weight[params.plane1 + b]).xyxy;
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight { return nibbles(block.q[j], 0.0); }
