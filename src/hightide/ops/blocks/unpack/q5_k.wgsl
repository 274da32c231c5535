// Q5_K. Planes: nibbles, fifth bits, 16 bytes of scales per 256 quants.
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(weight4[at], vec4<u32>(weight[params.plane1 + at]));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let pair = k_scale(weight4[params.plane2 / 4u + at / 8u], at % 8u);
    return Scale(pair.xx, pair.y);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(plain_nibbles(block.q, h) | fifth_bits(block.extra.x, h)));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
