// IQ3_XXS: 256 quants; per 4 of them a row of the table (a byte), per 32 a word: 4 x 7 bits of signs, 4 of scale.
// Planes: rows, signs and scales, d, table.
#params plane1: u32, plane2: u32, plane3: u32
#include "blocks/grid.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(vec4<u32>(weight[at * 2u], weight[at * 2u + 1u], 0u, 0u), vec4<u32>(weight[params.plane1 + at]));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let scale = 0.5 + f32(weight[params.plane1 + at] >> 28u);
    return Scale(vec2<f32>(half_at(params.plane2, at / 8u) * scale * 0.5), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let place = byte_of(block.q[h / 4u], h % 4u);
    return with_signs(weight[params.plane3 + place], even_signs((block.extra.x >> (h / 2u * 7u)) & 127u), h);
}
