// x as a box inside out, `before` elements from its start along each dim (negative: x is cut there).
// One thread per output word: one element, or four bytes (BYTES), so that no two threads write one word.
// STEPS: along dim `along` the box starts `start` further, which may be live, and its elements lie `step` apart.
// OUTSIDE the box stands the "value" `fill`, what the "tensor" `around` has there, what was there and is "kept", or x
// "again", up to once before it (out has the dims of x), or x mirrored at its edges ("mirror"; each element of x once at
// most), or the "edge" itself. A last word's spare bytes are anything.
#const T = "u32" if BYTES else "word"
#params numel: u32
#params fill: u32 if OUTSIDE == "value"
#params along: i32, start: live, step: i32 if STEPS
#params first: i32   // dims before this one are 1
#params out_dims: array<vec4<u32>, 2>, x_dims: array<vec4<u32>, 2>, before: array<vec4<u32>, 2>
#read x: $T
#read around: $T if OUTSIDE == "tensor"
#write out: $T

// Where an element of out lies in x; -1 if it is outside the box.
fn source(element: u32) -> i32 {
    var rest = element;
    var at = 0;
    var stride = 1;
    for (var d = 7; d >= params.first; d--) {
        let size = params.out_dims[d >> 2u][d & 3];
        let extent = i32(params.x_dims[d >> 2u][d & 3]);
        var index = i32(rest % size) - i32(params.before[d >> 2u][d & 3]);
        #if STEPS
        if (d == params.along) {
            index -= live_int(params.start);
            if (index < 0 || index % params.step != 0) { return -1; }
            index /= params.step;
        }
        #end
        #if OUTSIDE == "again"
        index += select(0, extent, index < 0);
        #elif OUTSIDE == "mirror"
        index = extent - 1 - abs(extent - 1 - abs(index));
        #elif OUTSIDE == "edge"
        index = clamp(index, 0, extent - 1);
        #end
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
    #if OUTSIDE == "value"
    var word = params.fill;
    #elif OUTSIDE == "tensor"
    var word = load_around(i);
    #elif OUTSIDE == "kept"
    var word = load_out(i);
    #else
    var word = 0u;
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
