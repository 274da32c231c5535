// out = x, with values at the places that pairs name: (place, number of a point), in order; of several at one place the
// last. One thread per word of four bytes, so that no two write one word: it looks for their places by bisection.
#params numel: u32, points: u32
#include "scatter/places.wgsl"   // the box is out
#include "scatter/value.wgsl"
#read x: u32, pairs: vec2<u32>
#write out: u32

// How many pairs have a place up to this one.
fn up_to(place: u32) -> u32 {
    var low = 0u;
    var high = params.points;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (load_pairs(middle).x <= place) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// What becomes of an element of x.
fn put(element: u32, before: u32) -> u32 {
    let at = places(element);
    let n = up_to(at.x);
    if (n == 0u) { return before; }
    let last = load_pairs(n - 1u);
    if (last.x != at.x) { return before; }
    return value_of(last.y, at.y);
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
