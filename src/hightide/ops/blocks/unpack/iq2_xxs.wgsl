// IQ2_XXS: 256 quants; per 32 of them, four rows of the table (a byte each), and a word: 4 x 7 bits of signs, 4 of scale.
// Planes: (rows, signs and scale), d, table.
#params plane1: u32, plane2: u32
#include "blocks/grid.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = (row * params.blocks + b) * 2u;
    return Block(vec4<u32>(weight[at]), vec4<u32>(weight[at + 1u]));
}
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let scale = 0.5 + f32(weight[at * 2u + 1u] >> 28u);
    return Scale(vec2<f32>(half_at(params.plane1, at / 8u) * scale * 0.25), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let place = byte_of(block.q.x, h / 2u);
    let signs = even_signs((block.extra.x >> (h / 2u * 7u)) & 127u);
    return with_signs(weight[params.plane2 + place * 2u + h % 2u], signs, h);
}
