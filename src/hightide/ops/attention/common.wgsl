// What the routes of attention share: parameters, tensors, which keys a query sees, how a score is made.
// VEC4: both depths are multiples of 4; elements are then vec4<f32>, and depths and strides count those.
// MASK: a mask is added to the scores. SOFTCAP: scores are squeezed into -softcap .. softcap. SCORE: a score's type.
#const T = "vec4<f32>" if VEC4 else "f32"
#params kv_heads: u32, group: u32, tokens: u32                  // group: query heads that share a kv head
#params row_tiles: u32, rows_per_tile: u32, block: u32          // of a kv head's query rows; block: keys
#params depth: u32, value_depth: u32
#params q_head: u32, q_row: u32, k_head: u32, k_row: u32        // strides from head to head and from row to row
#params v_head: u32, v_row: u32, out_head: u32, out_row: u32
#params position: live, added: i32, causal: u32, window: u32, scale: f32, softcap: f32
#params heads_per_batch: u32, mask_batch: u32, mask_head: u32, mask_row: u32, mask_key: u32 if MASK
#read q: $T, k: $T, v: $T
#read mask: f32 if MASK
#write out: $T

const LOWEST = -3.4028234e38;

// The keys that the query at absolute position `p` sees are first_key(p) .. end_key(p) - 1.
fn first_key(p: u32) -> u32 {
    return select(0u, p + 1u - params.window, params.window > 0u && p + 1u > params.window);
}
fn end_key(p: u32, keys: u32) -> u32 {
    return select(keys, min(keys, p + 1u), params.causal == 1u);
}

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
#if MASK
fn mask_start(head: u32, s: u32) -> u32 {
    let batch = head / params.heads_per_batch;
    return batch * params.mask_batch + head % params.heads_per_batch * params.mask_head + s * params.mask_row;
}
#end
