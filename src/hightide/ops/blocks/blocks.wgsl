// What the block types share. A block here is 32 quants, whatever the file's block is; `scale` holds
// (scale, minimum) of its two halves: a weight is quant * scale + minimum.
@group(0) @binding(2) var<storage, read> weight4: array<vec4<u32>>;   // one buffer, seen twice
@group(0) @binding(3) var<storage, read> weight: array<u32>;

struct Block { q: vec4<u32>, extra: vec4<u32>, scale: vec4<f32> }
struct Eight { low: vec4<f32>, high: vec4<f32> }

fn nibbles(word: u32, minus: f32) -> Eight {
    let low = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    let high = (vec4<u32>(word) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
    return Eight(vec4<f32>(low) - minus, vec4<f32>(high) - minus);
}
fn plus_bits(eight: Eight, bits: u32) -> Eight {
    let shifts = vec4<u32>(0u, 1u, 2u, 3u);
    return Eight(eight.low + 16.0 * vec4<f32>((vec4<u32>(bits) >> shifts) & vec4<u32>(1u)),
                 eight.high + 16.0 * vec4<f32>((vec4<u32>(bits) >> (shifts + 4u)) & vec4<u32>(1u)));
}
fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
fn half_at(plane: u32, i: u32) -> f32 {
    let pair = unpack2x16float(weight[plane + i / 2u]);
    return select(pair.y, pair.x, (i & 1u) == 0u);
}
