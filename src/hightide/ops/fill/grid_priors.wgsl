// out[i] = ((i % columns + offset) * stride, (i / columns + offset) * stride). One thread per point.
#params points: u32, columns: u32, stride: f32, offset: f32
#write out: vec2<f32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.points) { return; }
    let point = vec2<f32>(vec2<u32>(i % params.columns, i / params.columns));
    store_out(i, (point + params.offset) * params.stride);
}
