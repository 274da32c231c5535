// Q8_0: 32 quants of 8 bits, a scale (f16). Planes: bytes, scales.
fn open_block(b: u32) -> Block {
    var block: Block;
    block.q = weight4[b * 2u];
    block.extra = weight4[b * 2u + 1u];
    let d = half_at(params.plane1, b);
    block.scale = vec4<f32>(d, 0.0, d, 0.0);
    return block;
}
fn eight(b: u32, block: Block, j: u32) -> Eight {
    let words = select(block.extra, block.q, vec4<bool>(j < 2u));
    if ((j & 1u) == 0u) { return Eight(signed_bytes(words.x), signed_bytes(words.y)); }
    return Eight(signed_bytes(words.z), signed_bytes(words.w));
}
