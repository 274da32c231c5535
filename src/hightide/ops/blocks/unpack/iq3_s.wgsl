// IQ3_S: 256 quants; per 4 of them a row of the table (8 + 1 bits), per 8 signs, per 32 a scale of 4 bits: d * (2 * scale + 1).
// Planes: rows, ninth bits of rows, signs, scales, d, table.
#params plane1: u32, plane2: u32, plane3: u32, plane4: u32, plane5: u32
#include "blocks/grid.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(vec4<u32>(weight[at * 2u], weight[at * 2u + 1u], 0u, 0u),
                 vec4<u32>(weight[params.plane2 + at], byte_at(params.plane1, at), 0u, 0u));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let scale = (weight[params.plane3 + at / 8u] >> (at % 8u * 4u)) & 15u;
    return Scale(vec2<f32>(half_at(params.plane4, at / 8u) * f32(scale * 2u + 1u)), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let place = byte_of(block.q[h / 4u], h % 4u) | (((block.extra.y >> h) & 1u) << 8u);
    return with_signs(weight[params.plane5 + place], byte_of(block.extra.x, h / 2u), h);
}
