// IQ2_XS: 256 quants; per 8 of them a row of the table (9 bits) and signs (7 bits), per 16 a scale of 4 bits.
// Planes: (row, signs), scales, d, table.
#const RUNS = 2
#params plane1: u32, plane2: u32, plane3: u32
#include "blocks/grid.wgsl"
#include "blocks/grid_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = (row * params.blocks + b) * 2u;
    return Block(vec4<u32>(weight[at], weight[at + 1u], 0u, 0u), vec4<u32>());
}
fn scale_at(row: u32, b: u32) -> Scale { return quarters(params.plane1, params.plane2, row * params.blocks + b); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let code = (block.q[h / 4u] >> (h / 2u % 2u * 16u)) & 0xffffu;
    return with_signs(weight[params.plane3 + (code & 511u) * 2u + h % 2u], even_signs(code >> 9u), h);
}
