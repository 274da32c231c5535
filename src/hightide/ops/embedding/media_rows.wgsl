// out[i] = x[i], or media[tokens[i] - first] where that is not negative: rows of `width` floats. One thread per float.
// Tokens given by the caller were checked; others are clamped.
#params count: u32, rows: u32, width: u32, first: i32
#read x: f32, tokens: i32, media: f32
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let row = tokens[i / params.width] - params.first;
    if (row < 0) {
        store_out(i, load_x(i));
    } else {
        store_out(i, load_media(min(u32(row), params.rows - 1u) * params.width + i % params.width));
    }
}
