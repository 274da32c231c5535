// Quants of 4 bits. They are converted where they stand in their word, too large by 1 / quant_unit(h):
// x is multiplied with that once, instead of every quant shifted.
#const PAIRS_IN = "word"
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> {
    let word = block.q[h / 2u];
    if ((h & 1u) == 0u) {
        return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u)));
    }
    return vec4<f32>(bitcast<vec4<i32>>(
        vec4<u32>(word & 0xf0000u, word & 0xf00000u, word & 0xf000000u, word >> 28u)));
}
fn quant_unit(h: u32) -> vec4<f32> {
    return select(vec4<f32>(0x1p-16, 0x1p-20, 0x1p-24, 1.0), vec4<f32>(1.0, 0x1p-4, 0x1p-8, 0x1p-12), (h & 1u) == 0u);
}
