// Heads of one joined row [S, (heads + 2 * kv_heads) * depth], q then k then v: q and k are normed if there are
// weights, and turned by their position's angles; q goes to `q`, k and v to their places in the caches.
// One thread per pair of elements (VEC4: of vec4<f32>). HALVES: element d turns with d + rotary/2, tables
// [L, rotary]; else neighbours turn, tables [L, rotary/2]. NORM: there are weights. A norm is summed by each thread
// itself: no barrier. PAGED: each row has a position and a place of its own; else they follow one position.
// PART: "q" or "kv" alone, for adapters that do not bind the buffers of both at once; "" is all of it.
#const T = "vec4<f32>" if VEC4 else "f32"
#const TABLE = 2 if HALVES else 1
#params count: u32, heads: u32, kv_heads: u32, pairs: u32, rotary_pairs: u32
#params mean: f32, eps: f32   // mean = 1 / elements of a head
#params position: live if not PAGED
#params angles: u32, capacity: u32 if PAGED   // rows of the tables, and of the caches
#read qkv: $T, cosines: $T, sines: $T
#read q_norm: $T if NORM and PART != "kv"
#read k_norm: $T if NORM and PART != "q"
#read positions: i32 if PAGED
#read places: i32 if PAGED and PART != "q"
#write q: $T if PART != "kv"
#write k_cache: $T, v_cache: $T if PART != "q"

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
    let depth = params.pairs * 2u;
    let start = (s * all_heads + head) * depth;
    let turns = pair < params.rotary_pairs && head < params.heads + params.kv_heads;
    let split = $HALVES && pair < params.rotary_pairs;   // what does not turn is taken in neighbours
    let first = select(pair * 2u, pair, split);
    let second = select(pair * 2u + 1u, pair + params.rotary_pairs, split);
    var a = load_qkv(start + first);
    var b = load_qkv(start + second);
    #if NORM
    var squares = 0.0;
    for (var n = 0u; n < depth; n++) {
        let element = load_qkv(start + n);
        squares += ${"dot(element, element)" if VEC4 else "element * element"};
    }
    let scale = inverseSqrt(squares * params.mean + params.eps);
    if (head < params.heads) {
        #if PART != "kv"
        a *= scale * load_q_norm(first);
        b *= scale * load_q_norm(second);
        #end
    } else if (head < params.heads + params.kv_heads) {
        #if PART != "q"
        a *= scale * load_k_norm(first);
        b *= scale * load_k_norm(second);
        #end
    }
    #end
    if (turns) {
        #if VEC4 and not HALVES
        let x = vec4<f32>(a.xz, b.xz);   // first and second elements of the four pairs
        let y = vec4<f32>(a.yw, b.yw);
        #else
        let x = a;
        let y = b;
        #end
        let at = row * params.rotary_pairs * ${TABLE}u + pair;
        let after = at + params.rotary_pairs * ${TABLE - 1}u;
        let turned_x = x * load_cosines(at) - y * load_sines(at);
        let turned_y = x * load_sines(after) + y * load_cosines(after);
        #if VEC4 and not HALVES
        a = vec4<f32>(turned_x.x, turned_y.x, turned_x.y, turned_y.y);
        b = vec4<f32>(turned_x.z, turned_y.z, turned_x.w, turned_y.w);
        #else
        a = turned_x;
        b = turned_y;
        #end
    }
    if (head < params.heads) {
        #if PART != "kv"
        let to = (s * params.heads + head) * depth;
        store_q(to + first, a);
        store_q(to + second, b);
        #end
    }
    #if PART != "q"
    else if (head < params.heads + params.kv_heads) {
        let to = (place * params.kv_heads + head - params.heads) * depth;
        store_k_cache(to + first, a);
        store_k_cache(to + second, b);
    } else {
        let to = (place * params.kv_heads + head - params.heads - params.kv_heads) * depth;
        store_v_cache(to + first, a);
        store_v_cache(to + second, b);
    }
    #end
}
