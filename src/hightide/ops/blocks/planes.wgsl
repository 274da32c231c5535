// GGUF's types: a weight's planes lie in one buffer, seen twice. plane1, plane2, ...: where they start, in words.
#read weight4: vec4<u32>, weight: u32

fn half_at(plane: u32, i: u32) -> f32 {
    let pair = unpack2x16float(weight[plane + i / 2u]);
    return select(pair.y, pair.x, (i & 1u) == 0u);
}
// Chunk h of 32 nibbles, shifted down.
fn plain_nibbles(q: vec4<u32>, h: u32) -> vec4<u32> {
    return (vec4<u32>(q[h / 2u]) >> (vec4<u32>(0u, 4u, 8u, 12u) + (h & 1u) * 16u)) & vec4<u32>(15u);
}
