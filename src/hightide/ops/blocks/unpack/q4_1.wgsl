// Q4_1: 32 quants of 4 bits, a scale and a minimum (f16). Planes: nibbles, (scale, minimum) of four rows together.
fn open_block(row: u32, b: u32) -> Block { return Block(weight4[row * params.blocks + b], vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale { return pair_at(params.plane1, row, b); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> { return nibbles(block.q, h); }
fn quant_unit(h: u32) -> vec4<f32> { return nibble_unit(h); }
