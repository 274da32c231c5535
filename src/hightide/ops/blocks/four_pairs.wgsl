// The scales of four rows that lie together: the first is a multiple of four.
fn four_scales(rows: vec4<u32>, b: u32) -> Scales {
    let words = weight4[params.$PLANE / 4u + rows.x / 4u * params.blocks + b];
    let p0 = unpack2x16float(words.x);
    let p1 = unpack2x16float(words.y);
    let p2 = unpack2x16float(words.z);
    let p3 = unpack2x16float(words.w);
    let scale = vec4<f32>(p0.x, p1.x, p2.x, p3.x);
    return Scales(array(scale, scale), vec4<f32>(p0.y, p1.y, p2.y, p3.y));
}
