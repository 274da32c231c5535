// out[i] = x[0] + ... + x[i] along one dim, for every vector of `count` elements that lie `stride` apart.
// LANES threads per vector, each taking `span` elements in a row: it adds them up, then goes over them again from what
// the lanes before it have: one barrier.
// JOIN: "+", or "*" for products. OUT: f32 or i32, which sums are made in; KIND is said in element.wgsl.
#params vectors: u32, count: u32, stride: u32, span: u32
#const C = OUT
#const NONE = OUT + ("(1)" if JOIN == "*" else "()")   // the sum of nothing
#include "reduce/element.wgsl"
#write out: $OUT

const LANES = ${LANES}u;
var<workgroup> sums: array<$OUT, 64>;

#main 64
    let vector = group_number(group, groups) * (64u / LANES) + lane / LANES;
    let working = vector < params.vectors;
    var start = 0u;
    var first = 0u;
    var end = 0u;
    if (working) {
        start = vector / params.stride * params.count * params.stride + vector % params.stride;
        first = min(lane % LANES * params.span, params.count);
        end = min(first + params.span, params.count);
    }
    var sum = $NONE;
    if (LANES > 1u) {
        for (var i = first; i < end; i++) { sum ${JOIN}= element(start + i * params.stride); }
        sums[lane] = sum;
        workgroupBarrier();
        sum = $NONE;
        for (var i = lane / LANES * LANES; i < lane; i++) { sum ${JOIN}= sums[i]; }
    }
    for (var i = first; i < end; i++) {
        let at = start + i * params.stride;
        sum ${JOIN}= element(at);
        store_out(at, sum);
    }
}
