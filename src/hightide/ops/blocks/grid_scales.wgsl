// Two scales of 4 bits in a byte, each (scale + 1/2) * d / 4.
fn quarters(scales: u32, d: u32, at: u32) -> Scale {
    let byte = byte_at(scales, at);
    let both = vec2<f32>(vec2<u32>(byte & 15u, byte >> 4u)) + 0.5;
    return Scale(half_at(d, at / 8u) * both * 0.25, 0.0);
}
