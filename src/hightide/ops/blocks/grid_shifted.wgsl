// Quants of -1, 0 or 1 and an eighth more, or less if `lower`: chunk h of a row of the table that starts at `plane`.
fn shifted(plane: u32, place: u32, h: u32, lower: bool) -> vec4<f32> {
    let word = weight[plane + place * 2u + h % 2u];
    let bytes = vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    return vec4<f32>(bytes) + select(0.125, -0.125, lower);
}
