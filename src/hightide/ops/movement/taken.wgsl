// out = elements of x, each from the place that source(element) names; this and `numel` are the includer's.
// One thread per word of out: one element, or four bytes (BYTES), so that no two threads write one word.
#const T = "u32" if BYTES else "word"
#read x: $T
#write out: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if BYTES
    if (i * 4u >= params.numel) { return; }
    var word = 0u;
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        let at = source(i * 4u + n);
        word = insertBits(word, x[at >> 2u] >> ((at & 3u) * 8u), n * 8u, 8u);
    }
    out[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_out(i, load_x(source(i)));
    #end
}
