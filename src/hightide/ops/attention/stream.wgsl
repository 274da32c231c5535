// out[row] = softmax(scale * q[row] . k[t] (+ mask)) @ v over the keys t that the row sees, in one pass over the keys.
// One workgroup per kv head and ROWS query rows: the rows of all query heads that share a kv head lie in one list,
// (s, head within the group), so that a key is read once for them. Its quads take keys in turns, 8 at a time.
// Each lane of a quad holds a quarter of the depth of every row of q and of every sum, so that one load of a
// quad asks for four cache lines, and does the exponentials of two keys of the eight.
// PARTS, VALUE_PARTS: elements of a row of q, and of v, that a lane holds. WHOLE, WHOLE_VALUES: four times these are
// the depths; else a lane's last elements may lie behind a row, where nothing is read. ONE_PAGE: the keys that the quads
// take in a round lie in one page, or there are no pages.
#const SCORE = "vec2<f32>"
#include "attention/common.wgsl"

const LANES = ${LANES}u;
const QUADS = LANES / 4u;
const PARTS = ${PARTS}u;
const VALUE_PARTS = ${VALUE_PARTS}u;
var<workgroup> quad_most: array<f32, QUADS>;
var<workgroup> quad_total: array<f32, QUADS>;
var<workgroup> quad_sums: array<$T, LANES * VALUE_PARTS>;

fn in_depth(part: u32, j: u32) -> bool {
    #if WHOLE
    return true;
    #else
    return part * PARTS + j < params.depth;
    #end
}

// Where a lane finds element j of its part of a row of v, from `at` on.
fn value_place(at: u32, part: u32, j: u32) -> u32 {
    #if WHOLE_VALUES
    return at + j;
    #else
    return select(0u, at + j, part * VALUE_PARTS + j < params.value_depth);
    #end
}
// The same of q and k.
fn place(at: u32, part: u32, j: u32) -> u32 {
    #if WHOLE
    return at + j;
    #else
    return select(0u, at + j, in_depth(part, j));
    #end
}

#main $LANES
    let number = group_number(group, groups);
    let row = number % params.row_tiles * params.rows_per_tile;
    #if PAGED
    if (params.kv_heads == 0u) { return; }
    let kv_head = number / params.row_tiles % params.kv_heads;
    let tile_number = number / params.row_tiles / params.kv_heads;
    if (tile_number >= params.tile_count) { return; }
    #else
    let tile_number = 0u;
    let kv_head = number / params.row_tiles;
    if (kv_head >= params.kv_heads) { return; }
    #end
    let tile = tile_at(tile_number);
    let position = tile.position;
    let keys = tile.keys;
    let rows = tile.tokens * params.group;
    if (row >= rows || keys == 0u) { return; }
    let part = lane & 3u;
    let quad = lane >> 2u;
    #if TURNS
    #const OWN = "position < keys"
    #include "attention/turn_first.wgsl"
    #end

    #for r in ROWS
    var begin_$r = 0u;
    var end_$r = 0u;
    var most_$r = LOWEST;
    var total_$r = 0.0;
    var score_$r = vec2<f32>();
    #if MASK
    var mask_at_$r = 0u;
    #end
    #for j in PARTS
    var q_${r}_$j = $T();
    #end
    #for j in VALUE_PARTS
    var sum_${r}_$j = $T();
    #end
    #end
    var first_of_keys = keys;
    var end_of_keys = 0u;
    for (var i = 0u; i < params.rows_per_tile; i++) {   // a loop: loads are what takes time to compile
        let n = min(row + i, rows - 1u);
        let s = n / params.group;
        let head = kv_head * params.group + n % params.group;
        #if TURNS
        let at = n * params.depth + part * PARTS;
        #else
        let at = q_start(head) + (tile.first + s) * params.q_row + part * PARTS;
        #end
        let first = first_key(position + s);
        let last = end_key(position + s, keys);
        first_of_keys = min(first_of_keys, first);
        end_of_keys = max(end_of_keys, last);
        #for r in ROWS
        begin_$r = select(begin_$r, first, i == ${r}u);
        end_$r = select(end_$r, last, i == ${r}u);
        #if MASK
        mask_at_$r = select(mask_at_$r, mask_start(head, s), i == ${r}u);
        #end
        #end
        #for j in PARTS
        let given_$j = select($T(), query_at(place(at, part, ${j}u)) * params.scale, in_depth(part, ${j}u));
        #for r in ROWS
        q_${r}_$j = select(q_${r}_$j, given_$j, i == ${r}u);
        #end
        #end
    }

    let k_at = k_start(kv_head) + part * PARTS;
    let v_at = v_start(kv_head) + part * VALUE_PARTS;
    // From a multiple on, so that a row's keys are taken alike whatever rows it shares a tile with.
    first_of_keys -= first_of_keys % (QUADS * params.block);
    for (var start = first_of_keys; start < end_of_keys; start += QUADS * params.block) {
        let first = start + quad;
        #if ONE_PAGE
        let shift = key_row(tile, start) - start;   // from a key of this round to its row
        let k_from = k_at + shift * params.k_row;
        let v_from = v_at + shift * params.v_row;
        #end
        for (var key = 0u; key < params.block; key++) {
            let t = min(first + key * QUADS, keys - 1u);
            let at = ${"k_from + t" if ONE_PAGE else "k_at + key_row(tile, t)"} * params.k_row;
            #if CODES
            let coding = coding_at(key_row(tile, t), kv_head);
            #end
            #for r in ROWS
            var dot_$r = 0.0;
            #end
            #for j in PARTS
            let key_$j = select($T(), key_at(place(at, part, ${j}u)$CODING), in_depth(part, ${j}u));
            #for r in ROWS
            dot_$r += product(q_${r}_$j, key_$j);
            #end
            #end
            let mine = vec2<bool>(key == part, key == part + 4u);
            #for r in ROWS
            dot_$r += quadSwapX(dot_$r);
            dot_$r += quadSwapY(dot_$r);
            score_$r = select(score_$r, vec2<f32>(dot_$r), mine);
            #end
        }
        let t = first + vec2<u32>(part, part + 4u) * QUADS;
        #for r in ROWS
        let seen_$r = (t >= vec2<u32>(begin_$r)) & (t < vec2<u32>(end_$r));
        #if SOFTCAP
        score_$r = capped(score_$r);
        #end
        #if MASK
        score_$r += vec2<f32>(load_mask(mask_at_$r + min(t.x, keys - 1u) * params.mask_key),
                              load_mask(mask_at_$r + min(t.y, keys - 1u) * params.mask_key));
        #end
        score_$r = select(vec2<f32>(LOWEST), score_$r, seen_$r);
        var higher_$r = max(score_$r.x, score_$r.y);
        higher_$r = max(higher_$r, quadSwapX(higher_$r));
        higher_$r = max(most_$r, max(higher_$r, quadSwapY(higher_$r)));
        let fade_$r = exp(most_$r - higher_$r);
        most_$r = higher_$r;
        let weight_$r = select(vec2<f32>(), exp(score_$r - higher_$r), seen_$r);
        total_$r = total_$r * fade_$r + weight_$r.x + weight_$r.y;
        #for j in VALUE_PARTS
        sum_${r}_$j *= fade_$r;
        #end
        let low_$r = vec4<f32>(quadBroadcast(weight_$r.x, 0u), quadBroadcast(weight_$r.x, 1u),
                               quadBroadcast(weight_$r.x, 2u), quadBroadcast(weight_$r.x, 3u));
        let high_$r = vec4<f32>(quadBroadcast(weight_$r.y, 0u), quadBroadcast(weight_$r.y, 1u),
                                quadBroadcast(weight_$r.y, 2u), quadBroadcast(weight_$r.y, 3u));
        #end
        for (var key = 0u; key < params.block; key++) {
            let t = min(first + key * QUADS, keys - 1u);
            let at = ${"v_from + t" if ONE_PAGE else "v_at + key_row(tile, t)"} * params.v_row;
            #if CODES
            let coding = coding_at(key_row(tile, t), kv_head);
            #end
            let in_high = key > 3u;
            let in_second = (key & 2u) != 0u;
            let is_odd = (key & 1u) != 0u;
            #for r in ROWS
            let four_$r = select(low_$r, high_$r, in_high);
            let two_$r = select(four_$r.xy, four_$r.zw, in_second);
            let one_$r = select(two_$r.x, two_$r.y, is_odd);
            #end
            #for j in VALUE_PARTS
            let value_$j = value_at(value_place(at, part, ${j}u)$CODING);
            #for r in ROWS
            sum_${r}_$j += one_$r * value_$j;
            #end
            #end
        }
    }

    // Join the quads, row by row: each has a maximum of its own.
    for (var i = 0u; i < params.rows_per_tile; i++) {
        var most = LOWEST;
        var total = 0.0;
        #for r in ROWS
        most = select(most, most_$r, i == ${r}u);
        total = select(total, total_$r, i == ${r}u);
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
        #if SINKS
        whole += sink_weight(kv_head * params.group + min(row + i, rows - 1u) % params.group, highest);
        #end
        let share = exp(most - highest) / select(whole, 1.0, whole == 0.0);
        #for j in VALUE_PARTS
        var own_$j = $T();
        #for r in ROWS
        own_$j = select(own_$j, sum_${r}_$j, i == ${r}u);
        #end
        quad_sums[lane * VALUE_PARTS + ${j}u] = own_$j * share;
        #end
        workgroupBarrier();
        let n = row + i;
        let s = tile.first + n / params.group;
        let at = out_start(kv_head * params.group + n % params.group) + s * params.out_row;
        for (var d = lane; d < params.value_depth; d += LANES) {
            var result = $T();
            for (var n = 0u; n < QUADS; n++) { result += quad_sums[n * 4u * VALUE_PARTS + d]; }
            if (n < rows) { store_out(at + d, result); }
        }
    }
}
