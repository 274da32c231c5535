// A weight's planes lie in one buffer, seen twice.
@group(0) @binding(2) var<storage, read> weight4: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> weight: array<u32>;

fn half_at(plane: u32, i: u32) -> f32 {
    let pair = unpack2x16float(weight[plane + i / 2u]);
    return select(pair.y, pair.x, (i & 1u) == 0u);
}
// The fifth bits of chunk h, above nibbles.
fn fifth_bits(bits: u32, h: u32) -> vec4<u32> {
    let four = bits >> (h * 4u);
    return vec4<u32>(four << 4u, four << 3u, four << 2u, four << 1u) & vec4<u32>(16u);
}
