// IQ2_S: 256 quants; per 8 of them a row of the table (8 + 2 bits) and signs (8 bits), per 16 a scale of 4 bits.
// Planes: rows, signs, upper bits of rows, scales, d, table.
#const RUNS = 2
#params plane1: u32, plane2: u32, plane3: u32, plane4: u32, plane5: u32
#include "blocks/grid.wgsl"
#include "blocks/grid_scales.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(vec4<u32>(weight[at]), vec4<u32>(weight[params.plane1 + at], byte_at(params.plane2, at), 0u, 0u));
}
fn scale_at(row: u32, b: u32) -> Scale { return quarters(params.plane3, params.plane4, row * params.blocks + b); }
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let j = h / 2u;
    let place = byte_of(block.q.x, j) | (((block.extra.y >> (j * 2u)) & 3u) << 8u);
    return with_signs(weight[params.plane5 + place * 2u + h % 2u], byte_of(block.extra.x, j), h);
}
