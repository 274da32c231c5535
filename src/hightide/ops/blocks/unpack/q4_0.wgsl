// Q4_0: 32 quants of 4 bits, less 8, and a scale (f16). Planes: nibbles, scales.
fn open_block(row: u32, b: u32) -> Block { return Block(weight4[row * params.blocks + b], vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    let d = half_at(params.plane1, row * params.blocks + b);
    return Scale(vec2<f32>(d), -8.0 * d);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> { return nibbles(block.q, h); }
fn quant_unit(h: u32) -> vec4<f32> { return nibble_unit(h); }
