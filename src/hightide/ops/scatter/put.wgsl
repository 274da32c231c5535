// Values put into out at the places that pairs name: (place, number of a point), in order.
// One thread per pair and element of what a place stands for; where several pairs have one place, one of them works.
// ADD: it adds the values of all of them, in their order; else it puts the last one.
#params points: u32, parts: u32   // elements that a place stands for
#params first: i32                // dims of those before this one are 1
#params dims: array<vec4<u32>, 2>, strides: array<vec4<u32>, 2>, value_strides: array<vec4<u32>, 2>
#include "scatter/value.wgsl"
#read pairs: vec2<u32>
#write out: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.points * params.parts) { return; }
    let n = i / params.parts;
    let pair = pairs[n];
    var rest = i % params.parts;
    var at = pair.x;
    var own = 0u;
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        at += rest % size * params.strides[d >> 2u][d & 3];
        own += rest % size * params.value_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    #if ADD
    if (n > 0u) {
        if (pairs[n - 1u].x == pair.x) { return; }
    }
    var sum = load_out(at);
    for (var next = n; next < params.points; next++) {
        if (pairs[next].x != pair.x) { break; }
        sum += value_of(pairs[next].y, own);
    }
    store_out(at, sum);
    #else
    if (n + 1u < params.points) {
        if (pairs[n + 1u].x == pair.x) { return; }
    }
    store_out(at, value_of(pair.y, own));
    #end
}
