// F16: two to a word.
#include "blocks/floats.wgsl"
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let words = load_weight4((row * params.blocks + b) * 4u + h / 2u);
    let two = select(words.zw, words.xy, (h & 1u) == 0u);
    return vec4<f32>(unpack2x16float(two.x), unpack2x16float(two.y));
}
