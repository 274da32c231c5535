// Pairs (key, index) of each row in order, in chunks of `span`, a power of two up to MOST: a bitonic network, in which
// every comparison puts the lesser pair first. One workgroup per chunk, in its own memory.
// FROM: where a row's `count` pairs come from: "x" (elements of a tensor, which get their place as index), "pairs" or
// "out". What a chunk has beyond them are the largest pairs there are.
// MERGE: the chunk needs the last steps only. `keep`: how many pairs of each chunk are written.
// DESCENDING: the largest element has the smallest key. NaN is larger than any number, and -0 is 0.
#params rows: u32, chunks: u32, span: u32, count: u32, keep: u32
#params stride: u32 if FROM == "x"   // of a row's elements in x
#const C = "f32" if KIND == "f32" else "i32"
#if FROM == "x"
#include "reduce/element.wgsl"
#end
#read pairs: vec2<u32> if FROM == "pairs"
#write out: vec2<u32>

#include "sort/order.wgsl"

const LANES = ${LANES}u;
const NONE = vec2<u32>(0xffffffffu, 0xffffffffu);
var<workgroup> held: array<vec2<u32>, $MOST>;

#if FROM == "x"
fn key_of(at: u32) -> u32 {
    let bits = bitcast<u32>(element(at));
    #if KIND == "f32"
    var key = select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { key = 0xffffffffu; }
    #else
    let key = bits ^ 0x80000000u;
    #end
    return ${"~" if DESCENDING else ""}key;
}
#end

fn pair_at(row: u32, i: u32) -> vec2<u32> {
    if (i >= params.count) { return NONE; }
    #if FROM == "x"
    let start = row / params.stride * params.count * params.stride + row % params.stride;
    return vec2<u32>(key_of(start + i * params.stride), i);
    #elif FROM == "pairs"
    return load_pairs(row * params.count + i);
    #else
    return out[row * params.chunks * params.span + i];
    #end
}

fn step_through(lane: u32, step: u32, mirrored: bool) {
    for (var n = lane; n < params.span / 2u; n += LANES) {
        let at = compared(n, step, mirrored);
        let a = held[at.x];
        let b = held[at.y];
        if (before(b, a)) {
            held[at.x] = b;
            held[at.y] = a;
        }
    }
    workgroupBarrier();
}

#main LANES
    let chunk = group_number(group, groups);
    if (chunk >= params.rows * params.chunks) { return; }
    let row = chunk / params.chunks;
    for (var i = lane; i < params.span; i += LANES) {
        held[i] = pair_at(row, chunk % params.chunks * params.span + i);
    }
    workgroupBarrier();
    #if MERGE
    for (var step = params.span / 2u; step > 0u; step /= 2u) { step_through(lane, step, false); }
    #else
    for (var sorted = 1u; sorted < params.span; sorted *= 2u) {
        step_through(lane, sorted, true);
        for (var step = sorted / 2u; step > 0u; step /= 2u) { step_through(lane, step, false); }
    }
    #end
    for (var i = lane; i < params.keep; i += LANES) {
        out[chunk * params.keep + i] = held[i];
    }
}
