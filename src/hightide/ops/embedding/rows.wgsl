// out[i] = x[indices[i]]: rows of `width` words. One thread per output word.
// Indices given by the caller were checked; others are clamped.
#params count: u32, rows: u32, width: u32
#read x: word, indices: i32
#write out: word

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count * params.width) { return; }
    let row = u32(clamp(indices[i / params.width], 0, i32(params.rows) - 1));
    store_out(i, load_x(row * params.width + i % params.width));
}
