// The keys that the query at absolute position `p` sees are first_key(p) .. end_key(p) - 1.
fn first_key(p: u32) -> u32 {
    return select(0u, p + 1u - params.window, params.window > 0u && p + 1u > params.window);
}
fn end_key(p: u32, keys: u32) -> u32 {
    return select(keys, min(keys, p + 1u), params.causal == 1u);
}

