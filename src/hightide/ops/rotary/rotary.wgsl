// Rotary embedding of q and k [B, S, H, D], or of q alone: each pair (x, y) turns by its row's angle,
//   (x * cos - y * sin, x' * sin' + y' * cos').
// One thread per pair of q or k. HALVES: pairs are (d, d + rotary/2) with tables [L, rotary]; otherwise
// neighbours (2d, 2d + 1) with tables [L, D/2]. Elements past `rotary` are copied in pairs.
// Table rows start at a live position. BOTH: there is k.
#params pairs_q: u32, pairs_k: u32, tokens: u32, heads_q: u32, heads_k: u32, pairs_per_head: u32, rotary_pairs: u32
#params position: live
#read q: f32
#read k: f32 if BOTH
#read cosines: f32, sines: f32
#write q_out: f32
#write k_out: f32 if BOTH

struct Turn { first: u32, second: u32, turned: vec2<f32> }

fn turn(pair: u32, heads: u32, of_q: bool) -> Turn {
    let vector = pair / params.pairs_per_head;          // (b * S + s) * H + h
    let d = pair % params.pairs_per_head;
    let row = vector / heads % params.tokens + u32(live_int(params.position));
    let start = vector * params.pairs_per_head * 2u;
    var result: Turn;
    if (d >= params.rotary_pairs || !$HALVES) {
        result.first = start + d * 2u;
        result.second = result.first + 1u;
    } else {
        result.first = start + d;
        result.second = result.first + params.rotary_pairs;
    }
    var x: f32;
    var y: f32;
    if (of_q) {   // not `select`: both sides would be read, and k has fewer heads
        x = load_q(result.first);
        y = load_q(result.second);
    }
    #if BOTH
    else {
        x = load_k(result.first);
        y = load_k(result.second);
    }
    #end
    result.turned = vec2<f32>(x, y);
    if (d < params.rotary_pairs) {
        #if HALVES
        let at = row * params.rotary_pairs * 2u + d;
        let after = at + params.rotary_pairs;
        #else
        let at = row * params.rotary_pairs + d;
        let after = at;
        #end
        result.turned = vec2<f32>(x * load_cosines(at) - y * load_sines(at),
                                  x * load_sines(after) + y * load_cosines(after));
    }
    return result;
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i < params.pairs_q) {
        let result = turn(i, params.heads_q, true);
        store_q_out(result.first, result.turned.x);
        store_q_out(result.second, result.turned.y);
    }
    #if BOTH
    else if (i < params.pairs_q + params.pairs_k) {
        let result = turn(i - params.pairs_q, params.heads_k, false);
        store_k_out(result.first, result.turned.x);
        store_k_out(result.second, result.turned.y);
    }
    #end
}
