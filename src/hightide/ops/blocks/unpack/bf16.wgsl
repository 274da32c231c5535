// BF16: the upper halves of f32, two to a word.
#include "blocks/floats.wgsl"
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let words = load_weight4((row * params.blocks + b) * 4u + h / 2u);
    let two = select(words.zw, words.xy, (h & 1u) == 0u);
    return bitcast<vec4<f32>>(vec4<u32>(two.x << 16u, two.x & 0xffff0000u, two.y << 16u, two.y & 0xffff0000u));
}
