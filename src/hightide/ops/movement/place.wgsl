// x as a box inside out, `before` elements from its start along each dim (negative: x is cut there).
// One thread per output word: one element, or four bytes (BYTES), so that no two threads write one word.
// Around the box stands `fill`, or with KEEP what was there. A last word's spare bytes are anything.
#const T = "u32" if BYTES else "word"
#params numel: u32, fill: u32
#params first: i32   // dims before this one are 1
#params out_dims: array<vec4<u32>, 2>, x_dims: array<vec4<u32>, 2>, before: array<vec4<u32>, 2>
#read x: $T
#write out: $T

// Where an element of out lies in x; -1 if it is outside the box.
fn source(element: u32) -> i32 {
    var rest = element;
    var at = 0;
    var stride = 1;
    for (var d = 7; d >= params.first; d--) {
        let size = params.out_dims[d >> 2u][d & 3];
        let extent = i32(params.x_dims[d >> 2u][d & 3]);
        let index = i32(rest % size) - i32(params.before[d >> 2u][d & 3]);
        if (index < 0 || index >= extent) { return -1; }
        rest = rest / size;
        at += index * stride;
        stride *= extent;
    }
    return at;
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i * ${4 if BYTES else 1}u >= params.numel) { return; }
    #if KEEP
    var word = load_out(i);
    #else
    var word = params.fill;
    #end
    #if BYTES
    for (var n = 0u; n < 4u; n++) {
        let at = source(i * 4u + n);
        if (at >= 0) { word = insertBits(word, x[at >> 2u] >> (u32(at & 3) * 8u), n * 8u, 8u); }
    }
    #else
    let at = source(i);
    if (at >= 0) { word = load_x(u32(at)); }
    #end
    store_out(i, word);
}
