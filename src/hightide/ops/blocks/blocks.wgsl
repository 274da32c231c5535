// What the block types share. A block here is 32 quants, whatever the file's block is: a weight is
// quant * scale + least, with a scale for each run of 16 or for all. A chunk is four quants.
struct Block { q: vec4<u32>, extra: vec4<u32> }
struct Scale { run: vec2<f32>, least: f32 }                        // of one row
struct Scales { run: array<vec4<f32>, 2>, least: vec4<f32> }       // of four

// Chunk h of 32 nibbles. They are converted where they stand in their word, too large by 1 / nibble_unit(h):
// x is multiplied with that once, instead of every quant shifted.
fn nibbles(q: vec4<u32>, h: u32) -> vec4<f32> {
    let word = q[h / 2u];
    if ((h & 1u) == 0u) {
        return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u)));
    }
    return vec4<f32>(bitcast<vec4<i32>>(
        vec4<u32>(word & 0xf0000u, word & 0xf00000u, word & 0xf000000u, word >> 28u)));
}
fn nibble_unit(h: u32) -> vec4<f32> {
    return select(vec4<f32>(0x1p-16, 0x1p-20, 0x1p-24, 1.0), vec4<f32>(1.0, 0x1p-4, 0x1p-8, 0x1p-12), (h & 1u) == 0u);
}
// Chunk h of 32 nibbles, shifted down.
fn plain_nibbles(q: vec4<u32>, h: u32) -> vec4<u32> {
    return (vec4<u32>(q[h / 2u]) >> (vec4<u32>(0u, 4u, 8u, 12u) + (h & 1u) * 16u)) & vec4<u32>(15u);
}
