// out[o] = x[o's own place + sum over the index tensors of index(o) * step].
// One thread per output word: one element, or four bytes (BYTES), so that no two threads write one word.
// COUNT index tensors, up to four. A negative index counts from the end; one that the caller gave was checked, others
// are clamped.
#const T = "u32" if BYTES else "word"
#params numel: u32
#params first: i32   // dims before this one are 1
#params dims: array<vec4<u32>, 2>, x_strides: array<vec4<u32>, 2>
#params sizes: vec4<u32>, steps: vec4<u32>   // of the dims that the index tensors pick from
#params strides: array<vec4<u32>, ${2 * COUNT}>   // of the index tensors at o, eight each
#read x: $T
#for n in COUNT
#read index$n: i32
#end
#write out: $T

fn picked(index: i32, n: u32) -> u32 {
    let size = i32(params.sizes[n]);
    return u32(clamp(select(index, index + size, index < 0), 0, size - 1)) * params.steps[n];
}

fn source(element: u32) -> u32 {
    var rest = element;
    var at = 0u;
    var places = vec4<u32>();   // in the index tensors
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        let index = rest % size;
        rest = rest / size;
        at += index * params.x_strides[d >> 2u][d & 3];
        #for n in COUNT
        places[$n] += index * params.strides[${2 * n} + (d >> 2u)][d & 3];
        #end
    }
    #for n in COUNT
    at += picked(index$n[places[$n]], ${n}u);
    #end
    return at;
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if BYTES
    if (i * 4u >= params.numel) { return; }
    var word = 0u;
    for (var n = 0u; n < 4u; n++) {
        let at = source(i * 4u + n);
        word = insertBits(word, x[at >> 2u] >> ((at & 3u) * 8u), n * 8u, 8u);
    }
    out[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_out(i, load_x(source(i)));
    #end
}
