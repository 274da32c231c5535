// out, indices = the element in the middle of each vector of x, by the order of its pairs.
// A vector has `count` elements that lie `stride` apart in x, and `width` pairs. INDICES: they are wanted. NAN: of
// floats, the "first" one is the result, or they do not count and come "last".
#params numel: u32, count: u32, stride: u32, width: u32
#read pairs: vec2<u32>
#write indices: i32 if INDICES

// How many pairs of a row are not NaN, which has the largest key and stands at the end.
fn numbers(row: u32) -> u32 {
    var low = 0u;
    var high = params.count;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (load_pairs(row + middle).x != 0xffffffffu) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// Where the median of a vector lies in x; says its index too.
fn source(vector: u32) -> u32 {
    let row = vector * params.width;
    var place = (params.count - 1u) / 2u;
    #if NAN == "first"
    let real = numbers(row);
    if (real < params.count) { place = real; }
    #elif NAN == "last"
    place = (max(numbers(row), 1u) - 1u) / 2u;
    #end
    let index = load_pairs(row + place).y;
    #if INDICES
    indices[vector] = i32(index);
    #end
    return (vector / params.stride * params.count + index) * params.stride + vector % params.stride;
}
#include "movement/taken.wgsl"
