// out[row] = softmax(scale * q[row] . k[t] (+ mask)) @ v over the keys t that the row sees, in one pass over the keys.
// One workgroup per kv head and $ROWS query rows: the rows of all query heads that share a kv head lie in one list,
// (s, head within the group), so that a key is read once for them. Its quads take keys in turns, 8 at a time.
// Each lane of a quad holds a quarter of the depth of every row of q and of every sum, so that one load of a
// quad asks for four cache lines, and does the exponentials of two keys of the eight.
// $T is vec4<f32> where both depths are multiples of 4, else f32; strides and depths count $T.
$PARAMS
@group(0) @binding(2) var<storage, read> q: array<$T>;
@group(0) @binding(3) var<storage, read> k: array<$T>;
@group(0) @binding(4) var<storage, read> v: array<$T>;
$MASK
@group(0) @binding($OUT) var<storage, read_write> out: array<$T>;

const LANES = ${LANES}u;
const QUADS = LANES / 4u;
const PARTS = ${PARTS}u;              // how much of a row of q a lane holds, in $T
const VALUE_PARTS = ${VALUE_PARTS}u;  // and of a row of v
const LOWEST = -3.4028234e38;
$VISIBLE
var<workgroup> quad_most: array<f32, QUADS>;
var<workgroup> quad_total: array<f32, QUADS>;
var<workgroup> quad_sums: array<$T, LANES * VALUE_PARTS>;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let number = group_number(group, groups);
    let row = number % params.row_tiles * params.rows_per_tile;
    let kv_head = number / params.row_tiles;
    if (kv_head >= params.kv_heads) { return; }
    let position = live_int(params.position, params.position_slot);
    let keys = u32(position + params.added);
    let rows = params.tokens * params.group;
    let part = lane & 3u;
    let quad = lane >> 2u;

    #for r in $ROWS
    var begin_#r = 0u;
    var end_#r = 0u;
    var most_#r = LOWEST;
    var total_#r = 0.0;
    var score_#r = vec2<f32>();
    $MASK_START
    #for j in $PARTS
    var q_#r_#j = $T();
    #end
    #for j in $VALUE_PARTS
    var sum_#r_#j = $T();
    #end
    #end
    var first_of_keys = keys;
    var end_of_keys = 0u;
    for (var i = 0u; i < params.rows_per_tile; i++) {   // a loop: loads are what takes time to compile
        let n = min(row + i, rows - 1u);
        let s = n / params.group;
        let head = kv_head * params.group + n % params.group;
        let at = head * params.q_head + s * params.q_row + part * PARTS;
        let first = first_key(u32(position) + s);
        let last = end_key(u32(position) + s, keys);
        first_of_keys = min(first_of_keys, first);
        end_of_keys = max(end_of_keys, last);
        #for r in $ROWS
        begin_#r = select(begin_#r, first, i == #ru);
        end_#r = select(end_#r, last, i == #ru);
        $MASK_AT
        #end
        #for j in $PARTS
        let given_#j = select($T(), q[at + #ju] * params.scale, $IN_DEPTH);
        #for r in $ROWS
        q_#r_#j = select(q_#r_#j, given_#j, i == #ru);
        #end
        #end
    }

    let k_at = kv_head * params.k_head + part * PARTS;
    let v_at = kv_head * params.v_head + part * VALUE_PARTS;
    for (var start = first_of_keys; start < end_of_keys; start += QUADS * params.block) {
        let first = start + quad;
        for (var key = 0u; key < params.block; key++) {
            let at = k_at + min(first + key * QUADS, keys - 1u) * params.k_row;
            #for r in $ROWS
            var dot_#r = 0.0;
            #end
            #for j in $PARTS
            let key_#j = select($T(), k[at + #ju], $IN_DEPTH);
            #for r in $ROWS
            dot_#r += $DOT(q_#r_#j, key_#j);
            #end
            #end
            let mine = vec2<bool>(key == part, key == part + 4u);
            #for r in $ROWS
            dot_#r += quadSwapX(dot_#r);
            dot_#r += quadSwapY(dot_#r);
            score_#r = select(score_#r, vec2<f32>(dot_#r), mine);
            #end
        }
        let t = first + vec2<u32>(part, part + 4u) * QUADS;
        #for r in $ROWS
        let seen_#r = (t >= vec2<u32>(begin_#r)) & (t < vec2<u32>(end_#r));
        $SOFTCAP
        $ADD_MASK
        score_#r = select(vec2<f32>(LOWEST), score_#r, seen_#r);
        var higher_#r = max(score_#r.x, score_#r.y);
        higher_#r = max(higher_#r, quadSwapX(higher_#r));
        higher_#r = max(most_#r, max(higher_#r, quadSwapY(higher_#r)));
        let fade_#r = exp(most_#r - higher_#r);
        most_#r = higher_#r;
        let weight_#r = select(vec2<f32>(), exp(score_#r - higher_#r), seen_#r);
        total_#r = total_#r * fade_#r + weight_#r.x + weight_#r.y;
        #for j in $VALUE_PARTS
        sum_#r_#j *= fade_#r;
        #end
        let low_#r = vec4<f32>(quadBroadcast(weight_#r.x, 0u), quadBroadcast(weight_#r.x, 1u),
                               quadBroadcast(weight_#r.x, 2u), quadBroadcast(weight_#r.x, 3u));
        let high_#r = vec4<f32>(quadBroadcast(weight_#r.y, 0u), quadBroadcast(weight_#r.y, 1u),
                                quadBroadcast(weight_#r.y, 2u), quadBroadcast(weight_#r.y, 3u));
        #end
        for (var key = 0u; key < params.block; key++) {
            let at = v_at + min(first + key * QUADS, keys - 1u) * params.v_row;
            let in_high = key > 3u;
            let in_second = (key & 2u) != 0u;
            let is_odd = (key & 1u) != 0u;
            #for r in $ROWS
            let four_#r = select(low_#r, high_#r, in_high);
            let two_#r = select(four_#r.xy, four_#r.zw, in_second);
            let one_#r = select(two_#r.x, two_#r.y, is_odd);
            #end
            #for j in $VALUE_PARTS
            let value_#j = v[at + #ju];
            #for r in $ROWS
            sum_#r_#j += one_#r * value_#j;
            #end
            #end
        }
    }

    // Join the quads, row by row: each has a maximum of its own.
    for (var i = 0u; i < params.rows_per_tile; i++) {
        var most = LOWEST;
        var total = 0.0;
        #for r in $ROWS
        most = select(most, most_#r, i == #ru);
        total = select(total, total_#r, i == #ru);
        #end
        total += quadSwapX(total);
        total += quadSwapY(total);
        quad_most[quad] = most;
        quad_total[quad] = total;
        workgroupBarrier();
        var highest = LOWEST;
        for (var n = 0u; n < QUADS; n++) { highest = max(highest, quad_most[n]); }
        var whole = 0.0;
        for (var n = 0u; n < QUADS; n++) { whole += quad_total[n] * exp(quad_most[n] - highest); }
        let share = exp(most - highest) / whole;
        #for j in $VALUE_PARTS
        var own_#j = $T();
        #for r in $ROWS
        own_#j = select(own_#j, sum_#r_#j, i == #ru);
        #end
        quad_sums[lane * VALUE_PARTS + #ju] = own_#j * share;
        #end
        workgroupBarrier();
        let n = row + i;
        let at = (kv_head * params.group + n % params.group) * params.out_head + n / params.group * params.out_row;
        for (var d = lane; d < params.value_depth; d += LANES) {
            var result = $T();
            for (var n = 0u; n < QUADS; n++) { result += quad_sums[n * 4u * VALUE_PARTS + d]; }
            if (n < rows) { out[at + d] = result; }
        }
    }
}

fn times(a: f32, b: f32) -> f32 { return a * b; }
