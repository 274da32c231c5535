// Q5_1: 32 quants of 4 + 1 bits, a scale and a minimum (f16).
// Planes: nibbles, fifth bits, (scale, minimum) of four rows together.
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(weight4[at], vec4<u32>(weight[params.plane1 + at]));
}
fn scale_at(row: u32, b: u32) -> Scale { return pair_at(params.plane2, row, b); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(plain_nibbles(block.q, h) | fifth_bits(block.extra.x, h)));
}
fn quant_unit(h: u32) -> vec4<f32> { return vec4<f32>(1.0); }
