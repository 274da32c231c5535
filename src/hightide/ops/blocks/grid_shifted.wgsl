// IQ1_S and IQ1_M: four rows of the table to a block, as bytes in the first plane, and two bytes in the second.
// Quants are -1, 0 or 1 and an eighth more, or less if `lower`.
#params plane1: u32, plane2: u32, plane3: u32
#include "blocks/grid.wgsl"
fn open_block(row: u32, b: u32) -> Block {
    let at = row * params.blocks + b;
    return Block(vec4<u32>(weight[at]), vec4<u32>(short_at(params.plane1, at)));
}
fn shifted(place: u32, h: u32, lower: bool) -> vec4<f32> {
    let word = weight[params.plane3 + place * 2u + h % 2u];
    let bytes = vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    return vec4<f32>(bytes) + select(0.125, -0.125, lower);
}
