// out[o] = all x over the reduced dims, joined: added up, multiplied, or the best of them (JOIN: sum, product, max or min).
// LANES threads per output, each taking every LANES-th element; the first then joins their parts: one barrier.
// A part's index counts over the reduced dims; of equals the first wins, and NaN is better than any number.
// RESULT: value, mean, index, or both (value and index). TRUTH: elements count as 1 where they are not 0, as NaN is not.
// OUT: the type of out; bytes (u8) are gathered from four outputs by one thread, so that no two write one word.
// C: the type that elements are joined in; more in elements.wgsl.
#include "reduce/elements.wgsl"
#const BYTES = OUT == "u8"
#const STORED = "u32" if BYTES else OUT
#const THREADS = 256 if BYTES and LANES == 64 else 64
#write out: $STORED
#write indices: i32 if RESULT == "both"

const LANES = ${LANES}u;
const OUTPUTS = ${THREADS // LANES}u;   // of a workgroup
struct Part { value: $C, index: u32 }
var<workgroup> parts: array<Part, $THREADS>;
#if BYTES
var<workgroup> bytes: array<u32, ${THREADS // LANES}>;
#end

fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }

fn part_of(at: u32, index: u32) -> Part {
    #if TRUTH and KIND == "f32"
    return Part($C((bitcast<u32>(load_x(at)) & 0x7fffffffu) != 0u), index);
    #elif TRUTH
    return Part($C(element(at) != 0), index);
    #else
    return Part(element(at), index);
    #end
}

#if JOIN == "sum"
fn join(a: Part, b: Part) -> Part { return Part(a.value + b.value, 0u); }
#elif JOIN == "product"
fn join(a: Part, b: Part) -> Part { return Part(a.value * b.value, 0u); }
#else
#const OVER = ">" if JOIN == "max" else "<"
fn better(a: Part, b: Part) -> bool {
    #if C == "f32"
    if (a.value == b.value || (is_nan(a.value) && is_nan(b.value))) { return a.index < b.index; }
    return a.value $OVER b.value || is_nan(a.value);
    #else
    return a.value $OVER b.value || (a.value == b.value && a.index < b.index);
    #end
}
fn join(a: Part, b: Part) -> Part {
    if (better(b, a)) { return b; }
    return a;
}
#end

#main $THREADS
    let output = group_number(group, groups) * OUTPUTS + lane / LANES;
    let first = lane % LANES;
    let working = output < params.outputs && first < params.count;
    var part: Part;
    if (working) {
        let start = kept_at(output);
        part = part_of(start + reduced_at(first), first);
        for (var i = first + LANES; i < params.count; i += LANES) {
            part = join(part, part_of(start + reduced_at(i), i));
        }
    }
    if (LANES > 1u) {
        parts[lane] = part;
        workgroupBarrier();
    }
    if (working && first == 0u) {
        for (var i = 1u; i < min(LANES, params.count); i++) {
            part = join(part, parts[lane + i]);
        }
        #if RESULT == "mean"
        store_out(output, $OUT(part.value / f32(params.count)));
        #elif RESULT == "index"
        store_out(output, $OUT(part.index));
        #elif not BYTES
        store_out(output, $OUT(part.value));
        #end
        #if RESULT == "both"
        indices[output] = i32(part.index);
        #end
    }
    #if BYTES
    if (first == 0u) { bytes[lane / LANES] = bitcast<u32>(part.value) & 255u; }
    workgroupBarrier();
    let four = lane * 4u;   // the first of the outputs that this thread stores
    let at = group_number(group, groups) * OUTPUTS + four;
    if (four < OUTPUTS && at < params.outputs) {
        let apart = vec4<u32>(bytes[four], bytes[four + 1u], bytes[four + 2u], bytes[four + 3u]);
        out[at / 4u] = dot(apart, vec4<u32>(1u, 256u, 65536u, 16777216u));
    }
    #end
}
