// Two elements of a head that turn together, of a joined row [(heads + 2 * kv_heads) * depth], q then k then v: normed if
// there are weights, and turned by a row of the tables, if they are of q or k.
// VEC4: of vec4<f32>. HALVES: element d turns with d + rotary/2, tables [L, rotary]; else neighbours turn, tables
// [L, rotary/2]. NORM: there are weights. A norm is summed by each thread itself: no barrier.
// PART: "q" or "kv" if only heads of these are asked for; "" if of all. A file that includes this has the parameter
// `kv_heads`.
#const TABLE = 2 if HALVES else 1
#params heads: u32, pairs: u32, rotary_pairs: u32
#params mean: f32, eps: f32   // mean = 1 / elements of a head
#read qkv: $T, cosines: $T, sines: $T
#read q_norm: $T if NORM and PART != "kv"
#read k_norm: $T if NORM and PART != "q"

struct Pair { first: u32, second: u32, a: $T, b: $T }   // places in the head, and what they hold

fn turned_pair(s: u32, row: u32, head: u32, pair: u32) -> Pair {
    let depth = params.pairs * 2u;
    let start = (s * (params.heads + 2u * params.kv_heads) + head) * depth;
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
    return Pair(first, second, a, b);
}
