// The part of every matrix of x on and below its diagonal (UPPER: on and above), zeros elsewhere.
// One thread per word: one element, or four bytes (BYTES). The diagonal lies `diagonal` columns to the right, maybe live.
#const T = "u32" if BYTES else "word"
#params numel: u32, rows: u32, columns: u32, diagonal: live
#read x: $T
#write out: $T

fn is_kept(element: u32) -> bool {
    let column = i32(element % params.columns);
    let row = i32(element / params.columns % params.rows);
    return column - row ${">=" if UPPER else "<="} live_int(params.diagonal);
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if BYTES
    if (i * 4u >= params.numel) { return; }
    var word = x[i];
    for (var n = 0u; n < 4u; n++) {
        if (!is_kept(i * 4u + n)) { word = insertBits(word, 0u, n * 8u, 8u); }
    }
    out[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_out(i, select(0u, load_x(i), is_kept(i)));
    #end
}
