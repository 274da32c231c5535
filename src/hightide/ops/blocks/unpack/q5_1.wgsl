// Q5_1: 32 quants of 4 + 1 bits, a scale and a minimum (f16). Planes: nibbles, fifth bits, (scale, minimum).
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.extra.x = weight[params.plane1 + b];
    block.scale = unpack2x16float(weight[params.plane2 + b]).xyxy;
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight {
    return plus_bits(nibbles(block.q[j], 0.0), block.extra.x >> (j * 8u));
}
