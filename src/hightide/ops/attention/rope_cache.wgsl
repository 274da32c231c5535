// Heads of one joined row [S, (heads + 2 * kv_heads) * depth], q then k then v: q and k are normed if there are
// weights, and turned by their position's angles (see turned_pair.wgsl); q goes to `q`, k and v to their places in the
// caches. One thread per pair of elements.
// PAGED: each row has a position and a place of its own; else they follow one position.
// PART: "q" or "kv" alone, for adapters that do not bind the buffers of both at once; "" is all of it.
#const T = "vec4<f32>" if VEC4 else "f32"
#params count: u32, kv_heads: u32
#params position: live if not PAGED
#params angles: u32, capacity: u32 if PAGED   // rows of the tables, and of the caches
#read positions: i32 if PAGED
#read places: i32 if PAGED and PART != "q"
#write q: $T if PART != "kv"
#write k_cache: $T, v_cache: $T if PART != "q"
#include "attention/turned_pair.wgsl"

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let pair = i % params.pairs;
    let vector = i / params.pairs;
    let all_heads = params.heads + 2u * params.kv_heads;
    let own = ${"params.heads" if PART == "q" else "2u * params.kv_heads" if PART == "kv" else "all_heads"};
    let head = vector % own + ${"params.heads" if PART == "kv" else "0u"};
    let s = vector / own;
    #if PAGED
    let row = min(u32(load_positions(s)), params.angles - 1u);
    let place = ${"0u" if PART == "q" else "u32(load_places(s))"};
    if (head >= params.heads && place >= params.capacity) { return; }
    #else
    let row = u32(live_int(params.position)) + s;
    let place = row;
    #end
    let turned = turned_pair(s, row, head, pair);
    let depth = params.pairs * 2u;
    if (head < params.heads) {
        #if PART != "kv"
        let to = (s * params.heads + head) * depth;
        store_q(to + turned.first, turned.a);
        store_q(to + turned.second, turned.b);
        #end
    }
    #if PART != "q"
    else if (head < params.heads + params.kv_heads) {
        let to = (place * params.kv_heads + head - params.heads) * depth;
        store_k_cache(to + turned.first, turned.a);
        store_k_cache(to + turned.second, turned.b);
    } else {
        let to = (place * params.kv_heads + head - params.heads - params.kv_heads) * depth;
        store_v_cache(to + turned.first, turned.a);
        store_v_cache(to + turned.second, turned.b);
    }
    #end
}
