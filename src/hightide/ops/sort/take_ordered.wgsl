// values, indices = the first `taken` elements of each vector of x, in the order of its pairs.
// One thread per word of values: one element, or four bytes (BYTES), so that no two threads write one word.
// A vector has `count` elements that lie `stride` apart in x, and `width` pairs.
#const T = "u32" if BYTES else "word"
#params numel: u32, taken: u32, count: u32, stride: u32, width: u32
#read x: $T
#read pairs: vec2<u32>
#write values: $T, indices: i32

// Where output element `element` lies in x; says its index too.
fn take(element: u32) -> u32 {
    let inner = element % params.stride;
    let rest = element / params.stride;
    let outer = rest / params.taken;
    let index = pairs[(outer * params.stride + inner) * params.width + rest % params.taken].y;
    indices[element] = i32(index);
    return (outer * params.count + index) * params.stride + inner;
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if BYTES
    if (i * 4u >= params.numel) { return; }
    var word = 0u;
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        let at = take(i * 4u + n);
        word = insertBits(word, x[at >> 2u] >> ((at & 3u) * 8u), n * 8u, 8u);
    }
    values[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_values(i, load_x(take(i)));
    #end
}
