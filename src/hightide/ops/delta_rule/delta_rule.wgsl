// state = state * decay + k (v - state^T k) beta, out = state^T q, token after token; `last` is the state after all.
// One workgroup per head and LANES columns of its state; a lane holds a column, and needs no other.
// KEYS: elements of a key, which is the length of a column. BY_KEY: each of them has a decay of its own.
#params heads: u32, tokens: u32, values: u32
#read q: f32, k: f32, v: f32, decay: f32, beta: f32, state: f32
#write out: f32, last: f32

const KEYS = ${KEYS}u;
const LANES = ${LANES}u;

#main LANES
    let number = group_number(group, groups);
    let head = number % max(params.heads, 1u);
    let column = number / max(params.heads, 1u) * LANES + lane;
    if (column >= params.values) { return; }
    var held: array<f32, KEYS>;
    let first = head * KEYS * params.values + column;
    for (var i = 0u; i < KEYS; i++) { held[i] = load_state(first + i * params.values); }
    for (var t = 0u; t < params.tokens; t++) {
        let row = head * params.tokens + t;
        #if not BY_KEY
        let fade = load_decay(row);
        #end
        var known = 0.0;
        for (var i = 0u; i < KEYS; i++) {
            #if BY_KEY
            let fade = load_decay(row * KEYS + i);
            #end
            held[i] *= fade;
            known += held[i] * load_k(row * KEYS + i);
        }
        let change = (load_v(row * params.values + column) - known) * load_beta(row);
        var result = 0.0;
        for (var i = 0u; i < KEYS; i++) {
            held[i] += load_k(row * KEYS + i) * change;
            result += held[i] * load_q(row * KEYS + i);
        }
        store_out(row * params.values + column, result);
    }
    for (var i = 0u; i < KEYS; i++) { store_last(first + i * params.values, held[i]); }
}
