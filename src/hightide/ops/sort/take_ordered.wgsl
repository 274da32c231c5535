// out, indices = the first `taken` elements of each vector of x, in the order of its pairs.
// A vector has `count` elements that lie `stride` apart in x, and `width` pairs.
#params numel: u32, taken: u32, count: u32, stride: u32, width: u32
#read pairs: vec2<u32>
#write indices: i32

// Where output element `element` lies in x; says its index too.
fn source(element: u32) -> u32 {
    let inner = element % params.stride;
    let rest = element / params.stride;
    let outer = rest / params.taken;
    let index = load_pairs((outer * params.stride + inner) * params.width + rest % params.taken).y;
    indices[element] = i32(index);
    return (outer * params.count + index) * params.stride + inner;
}
#include "movement/taken.wgsl"
