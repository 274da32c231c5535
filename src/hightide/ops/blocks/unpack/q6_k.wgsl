// Q6_K: 256 quants of 4 + 2 bits, a signed byte of scale per 16, times d (f16).
// Planes: nibbles, upper pairs, scales, d.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b];
    block.extra = vec4<u32>(weight[params.plane1 + b * 2u], weight[params.plane1 + b * 2u + 1u], 0u, 0u);
    let scales = signed_bytes(weight[params.plane2 + b / 2u]);          // of four runs of 16
    let pair = select(scales.xy, scales.zw, vec2<bool>((b & 1u) == 1u));
    let d = half_at(params.plane3, b / 8u) * pair;
    block.scale = vec4<f32>(d.x, 0.0, d.y, 0.0);
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight {
    let pairs = select(block.extra.y, block.extra.x, j < 2u) >> (j % 2u * 16u);
    let low = nibbles(block.q[j], 32.0);
    let shifts = vec4<u32>(0u, 2u, 4u, 6u);
    return Eight(low.low + 16.0 * vec4<f32>((vec4<u32>(pairs) >> shifts) & vec4<u32>(3u)),
                 low.high + 16.0 * vec4<f32>((vec4<u32>(pairs) >> (shifts + 8u)) & vec4<u32>(3u)));
}
