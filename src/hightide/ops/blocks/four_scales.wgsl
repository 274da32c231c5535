// The scales of four rows, where they do not lie together.
fn four_scales(rows: vec4<u32>, b: u32) -> Scales {
    #for r in 4
    let s$r = scale_at(rows[$r], b);
    #end
    return Scales(array(vec4<f32>(s0.run.x, s1.run.x, s2.run.x, s3.run.x),
                        vec4<f32>(s0.run.y, s1.run.y, s2.run.y, s3.run.y)),
                  vec4<f32>(s0.least, s1.least, s2.least, s3.least));
}
