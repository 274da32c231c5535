// Q4_K. Planes: nibbles, 16 bytes of scales per 256 quants.
fn open_block(row: u32, b: u32) -> Block { return Block(weight4[row * params.blocks + b], vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let pair = k_scale(weight4[params.plane1 / 4u + at / 8u], at % 8u);
    return Scale(pair.xx, pair.y);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> { return nibbles(block.q, h); }
fn quant_unit(h: u32) -> vec4<f32> { return nibble_unit(h); }
