// out = x, with the elements of source, one after the other, where a mask is set; both are broadcast.
// PART: "flags" writes 1 where the mask is set; "take" gets how many are up to each (counts), and writes out.
// One thread per word written: one element, or four bytes (BYTES), so that no two threads write one word.
#const T = "u32" if BYTES else "word"
#params numel: u32
#const OF = "box"   // out's elements in the mask, or in x
#include "movement/strided_at.wgsl"
#if PART == "flags"
#read mask: u32
#write flags: i32
#else
#params most: u32    // elements of source
#read x: $T, source: $T, counts: i32
#write out: $T
#end

#if PART == "take"
// What becomes of an element; of bytes, the lowest one counts.
fn value(element: u32) -> u32 {
    let count = counts[element];
    var before = 0;
    if (element > 0u) { before = counts[element - 1u]; }
    #if BYTES
    if (count == before) {
        let at = box_at(element);
        return x[at >> 2u] >> ((at & 3u) * 8u);
    }
    let at = min(u32(count - 1), params.most - 1u);
    return source[at >> 2u] >> ((at & 3u) * 8u);
    #else
    if (count == before) { return load_x(box_at(element)); }
    return load_source(min(u32(count - 1), params.most - 1u));
    #end
}
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if PART == "flags"
    if (i >= params.numel) { return; }
    let at = box_at(i);
    flags[i] = select(0, 1, ((mask[at >> 2u] >> ((at & 3u) * 8u)) & 255u) != 0u);
    #elif BYTES
    if (i * 4u >= params.numel) { return; }
    var word = 0u;
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        word = insertBits(word, value(i * 4u + n), n * 8u, 8u);
    }
    out[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_out(i, value(i));
    #end
}
