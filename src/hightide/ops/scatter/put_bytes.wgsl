// out = x, with values at the places that pairs name: (place, number of a point), in order; of several at one place the
// last. One thread per word of four bytes, so that no two write one word: it looks for their places by bisection.
#params numel: u32, points: u32
#params first: i32   // dims of out before this one are 1
#params dims: array<vec4<u32>, 2>, place_strides: array<vec4<u32>, 2>, value_strides: array<vec4<u32>, 2>   // of out
#include "scatter/value.wgsl"
#read x: u32, pairs: vec2<u32>
#write out: u32

// How many pairs have a place up to this one.
fn up_to(place: u32) -> u32 {
    var low = 0u;
    var high = params.points;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (pairs[middle].x <= place) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// What becomes of an element of x.
fn put(element: u32, before: u32) -> u32 {
    var rest = element;
    var place = 0u;
    var own = 0u;
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        place += rest % size * params.place_strides[d >> 2u][d & 3];
        own += rest % size * params.value_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    let n = up_to(place);
    if (n == 0u) { return before; }
    let last = pairs[n - 1u];
    if (last.x != place) { return before; }
    return value_of(last.y, own);
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    var word = x[i];
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        word = insertBits(word, put(i * 4u + n, word >> (n * 8u)), n * 8u, 8u);
    }
    out[i] = word;
}
