// What the routes of attention share: parameters, tensors, which keys a query sees, how a score is made.
// VEC4: both depths are multiples of 4; elements are then vec4<f32>, and depths and strides count those.
// BATCHED: heads of several batches lie in one list, those of a batch together.
// SINKS: a head has one more score, a number of `sinks`, whose key has no value.
// MASK: a mask is added to the scores. SOFTCAP: scores are squeezed into -softcap .. softcap. SCORE: a score's type.
// PAGED, SPANS: see tile_at.wgsl. With SPANS, a window reaches to both sides.
// TURNED: q, k and v are one joined row, and the kernel norms and turns them before it looks at the keys: there are tiles
// of one row only, q is kept in `turned_q`, of so many elements, and the caches are written as well. 0: that was done.
// CODES: keys and values are 8-bit codes, four to a word; `codings` has of each row and head the scale and the zero
// point of its key, then those of its value.
#const T = "vec4<f32>" if VEC4 else "f32"
#const CODING = ", coding" if CODES else ""
#const TURNS = TURNED > 0
#params kv_heads: u32, group: u32, tokens: u32                  // group: query heads that share a kv head
#params row_tiles: u32, rows_per_tile: u32, block: u32          // of a kv head's query rows; block: keys
#params depth: u32, value_depth: u32
#params q_head: u32, q_row: u32, k_head: u32, k_row: u32        // strides from head to head and from row to row
#params v_head: u32, v_row: u32, out_head: u32, out_row: u32
#params causal: u32, window: u32, scale: f32, softcap: f32
#params heads_per_batch: u32 if MASK or BATCHED
#params q_batch: u32, k_batch: u32, v_batch: u32, out_batch: u32 if BATCHED
#params mask_batch: u32, mask_head: u32, mask_row: u32, mask_key: u32 if MASK
#read q: $T if not TURNS
#read k: $T, v: $T if not CODES and not TURNS
#if CODES
#const HELD = "i8"
#const NAME = "k"
#include "int8/element.wgsl"
#const NAME = "v"
#include "int8/element.wgsl"
#end
#read codings: vec4<f32> if CODES
#read mask: f32 if MASK
#read sinks: f32 if SINKS
#write out: $T
#write k: $T, v: $T if TURNS

const LOWEST = -3.4028234e38;

// Where a head of each tensor begins.
#for n in 4
#const X = "q" if n == 0 else "k" if n == 1 else "v" if n == 2 else "out"
#include "attention/head_start.wgsl"
#end

#include "attention/tile_at.wgsl"

#if TURNS
#params angles: u32   // rows of the tables
#const PART = ""
#include "attention/turned_pair.wgsl"
var<workgroup> turned_q: array<$T, $TURNED>;   // the group's heads of the tile's row
fn query_at(i: u32) -> $T { return turned_q[i]; }
#else
fn query_at(i: u32) -> $T { return load_q(i); }
#end

// The keys that the query at absolute position `p` sees are first_key(p) .. end_key(p) - 1.
fn first_key(p: u32) -> u32 {
    return select(0u, p + 1u - params.window, params.window > 0u && p + 1u > params.window);
}
fn end_key(p: u32, keys: u32) -> u32 {
    #if SPANS
    return select(keys, min(keys, p + params.window), params.window > 0u);
    #else
    return select(keys, min(keys, p + 1u), params.causal == 1u);
    #end
}

// Element i of k, and of v.
#if CODES
fn coding_at(row: u32, kv_head: u32) -> vec4<f32> { return load_codings(row * params.kv_heads + kv_head); }
#if VEC4
fn key_at(i: u32, coding: vec4<f32>) -> $T { return (vec4<f32>(unpack4xI8(k[i])) - coding.y) * coding.x; }
fn value_at(i: u32, coding: vec4<f32>) -> $T { return (vec4<f32>(unpack4xI8(v[i])) - coding.w) * coding.z; }
#else
fn key_at(i: u32, coding: vec4<f32>) -> $T { return (f32(k_at(i)) - coding.y) * coding.x; }
fn value_at(i: u32, coding: vec4<f32>) -> $T { return (f32(v_at(i)) - coding.w) * coding.z; }
#end
#else
fn key_at(i: u32) -> $T { return load_k(i); }
fn value_at(i: u32) -> $T { return load_v(i); }
#end

#if VEC4
fn product(a: vec4<f32>, b: vec4<f32>) -> f32 { return dot(a, b); }
#else
fn product(a: f32, b: f32) -> f32 { return a * b; }
#end
#if SOFTCAP
fn capped(score: $SCORE) -> $SCORE {   // where `tanh` overflows it is 1 already
    return params.softcap * tanh(clamp(score / params.softcap, $SCORE(-15.0), $SCORE(15.0)));
}
#end
#if SINKS
#include "attention/sinks.wgsl"
#end
#if MASK
fn mask_start(head: u32, s: u32) -> u32 {
    let batch = head / params.heads_per_batch;
    return batch * params.mask_batch + head % params.heads_per_batch * params.mask_head + s * params.mask_row;
}
#end
