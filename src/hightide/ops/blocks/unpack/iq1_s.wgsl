// IQ1_S: 256 quants; per 8 of them a row of the table (8 + 3 bits), per 32 a scale of 3 bits (d * (2 * scale + 1)) and
// the sign of the shift. Planes: rows, (4 x 3 bits of rows, scale, sign), d, table.
#include "blocks/grid_shifted.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let scale = (short_at(params.plane1, at) >> 12u) & 7u;
    return Scale(vec2<f32>(half_at(params.plane2, at / 8u) * f32(scale * 2u + 1u)), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let place = byte_of(block.q.x, h / 2u) | (((block.extra.x >> (h / 2u * 3u)) & 7u) << 8u);
    return shifted(place, h, block.extra.x >= 0x8000u);
}
