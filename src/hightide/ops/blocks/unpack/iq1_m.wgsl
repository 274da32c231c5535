// IQ1_M: 256 quants; per 8 of them a row of the table (8 + 3 bits) and the sign of its shift, per 16 a scale of 3 bits:
// d * (2 * scale + 1). Planes: rows, (3 bits of a row, sign), four halves of (4 x 3 bits of scales, 4 bits of d), table.
#const RUNS = 2
#include "blocks/grid_shifted.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let sub = at % 8u;
    let head = vec2<u32>(weight[params.plane2 + at / 8u * 2u], weight[params.plane2 + at / 8u * 2u + 1u]);
    let parts = vec4<u32>(head.x >> 12u, head.x >> 28u, head.y >> 12u, head.y >> 28u) & vec4<u32>(15u);
    let d = unpack2x16float(dot(parts, vec4<u32>(1u, 16u, 256u, 4096u))).x;
    let bits = select(head.y, head.x, sub < 4u) >> (sub / 2u % 2u * 16u + sub % 2u * 6u);
    return Scale(d * vec2<f32>((vec2<u32>(bits, bits >> 3u) & vec2<u32>(7u)) * 2u + 1u), 0.0);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let bits = (block.extra.x >> (h / 2u * 4u)) & 15u;
    return shifted(byte_of(block.q.x, h / 2u) | ((bits & 7u) << 8u), h, bits >= 8u);
}
