// cache[b, position + s] = x[b, s] for rows of `width` bytes, four to a word.
// One thread per word that gets new bytes, so that no two write one word: its other bytes stay as they are.
// SPREAD: new bytes may be in any word of the cache. PLACES (with SPREAD): row (b, s) has a place of its own.
#params count: u32, numel: u32, tokens: u32, context: u32, width: u32   // count: of words; numel: bytes of the cache
#params position: live if not PLACES
#read x: u32
#read places: i32 if PLACES
#write cache: u32

// The row of x that goes to row `token` of batch `b`; `tokens` for none.
fn source(b: u32, token: u32) -> u32 {
    #if PLACES
    for (var s = params.tokens; s > 0u; s--) {
        if (u32(load_places(b * params.tokens + s - 1u)) == token) { return s - 1u; }
    }
    return params.tokens;
    #else
    return min(token - u32(live_int(params.position)), params.tokens);   // before the position it wraps: too large
    #end
}

#main 64
    var i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    #if not SPREAD
    i += u32(live_int(params.position)) * params.width / 4u;
    #end
    if (i * 4u >= params.numel) { return; }
    var word = cache[i];
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        let row = (i * 4u + n) / params.width;   // b * context + token
        let b = row / params.context;
        let s = source(b, row % params.context);
        if (s < params.tokens) {
            let at = (b * params.tokens + s) * params.width + (i * 4u + n) % params.width;
            word = insertBits(word, x[at / 4u] >> (at % 4u * 8u), n * 8u, 8u);
        }
    }
    cache[i] = word;
}
