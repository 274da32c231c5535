// out[row] = softmax(scale * q[row] . k[t] (+ mask)) @ v over the keys t that the row sees, in one pass over tiles
// of 64 keys; for adapters with fast workgroup memory, and for heads of any depth.
// One workgroup per kv head, ROWS query rows (in the order that stream.wgsl has) and `block` keys. For the scores
// a lane has a key; for their exponentials, an eighth of a row; for the sums, an element and some of the keys.
// SPLIT: a workgroup's keys are a part of the context; join.wgsl joins what it writes. CHUNKS: 64s of elements of a
// row of v. AHEAD: elements of a key that are loaded at once, which divide `depth`.
#const SCORE = "f32"
#include "attention/common.wgsl"
#write stats: vec2<f32> if SPLIT   // the maximum and the total of a part's weights

const LANES = 64u;
var<workgroup> weights: array<f32, $ROWS * LANES>;
var<workgroup> shared_by_lane: array<f32, LANES>;
var<workgroup> fades: array<f32, $ROWS>;
var<workgroup> mosts: array<f32, $ROWS>;
var<workgroup> totals: array<f32, $ROWS>;
var<workgroup> lane_sums: array<$T, LANES>;
#if PAGED
var<workgroup> key_rows: array<u32, LANES>;
#end

#main 64
    if (params.kv_heads == 0u) { return; }
    let number = group_number(group, groups);
    let row = number % params.row_tiles * $ROWS;
    let kv_head = number / params.row_tiles % params.kv_heads;
    #if PAGED
    if (params.tile_count == 0u) { return; }
    let tile_number = number / params.row_tiles / params.kv_heads % params.tile_count;
    let part = number / params.row_tiles / params.kv_heads / params.tile_count;
    #else
    let tile_number = 0u;
    let part = number / params.row_tiles / params.kv_heads;
    #end
    let tile = tile_at(tile_number);
    let position = tile.position;
    let keys = tile.keys;
    let rows = tile.tokens * params.group;
    if (row >= rows || part * params.block >= keys) { return; }

    #if TURNS
    #const OWN = "position < keys && position / params.block == part"
    #include "attention/turn_first.wgsl"
    #end
    var first_of_keys = keys;
    var end_of_keys = 0u;
    #for r in ROWS
    let n_$r = min(row + ${r}u, rows - 1u);
    let head_$r = kv_head * params.group + n_$r % params.group;
    let s_$r = n_$r / params.group;
    #if TURNS
    let q_at_$r = n_$r * params.depth;
    #else
    let q_at_$r = q_start(head_$r) + (tile.first + s_$r) * params.q_row;
    #end
    let begin_$r = first_key(position + s_$r);
    let end_$r = end_key(position + s_$r, keys);
    first_of_keys = min(first_of_keys, begin_$r);
    end_of_keys = max(end_of_keys, end_$r);
    #if MASK
    let mask_at_$r = mask_start(head_$r, s_$r);
    #end
    #for c in CHUNKS
    var sum_${r}_$c = $T();
    #end
    #end
    first_of_keys = max(first_of_keys, part * params.block);
    end_of_keys = min(end_of_keys, (part + 1u) * params.block);

    let stat_row = lane / 8u;
    let stat_at = min(stat_row, $ROWS - 1u) * LANES + lane % 8u * 8u;
    var most = LOWEST;
    var total = 0.0;
    let depth = min(params.value_depth, LANES);     // lanes that a row of v takes
    let slices = LANES / depth;
    let slice = lane / depth;
    let d = lane % depth;
    for (var start = first_of_keys; start < end_of_keys; start += LANES) {
        let t = start + lane;
        if (t < end_of_keys) {
            #for r in ROWS
            var score_$r = 0.0;
            #end
            let t_row = key_row(tile, t);
            #if PAGED
            key_rows[lane] = t_row;
            #end
            let k_at = k_start(kv_head) + t_row * params.k_row;
            #if CODES
            let coding = coding_at(t_row, kv_head);
            #end
            for (var i = 0u; i < params.depth; i += ${AHEAD}u) {
                #for a in AHEAD
                let key_$a = key_at(k_at + i + ${a}u$CODING);
                #end
                #for a in AHEAD
                #for r in ROWS
                score_$r += product(query_at(q_at_$r + i + ${a}u), key_$a);
                #end
                #end
            }
            #for r in ROWS
            score_$r *= params.scale;
            #if SOFTCAP
            score_$r = capped(score_$r);
            #end
            #if MASK
            score_$r += load_mask(mask_at_$r + t * params.mask_key);
            #end
            weights[$r * LANES + lane] = select(LOWEST, score_$r, t >= begin_$r && t < end_$r);
            #end
        } else {
            #for r in ROWS
            weights[$r * LANES + lane] = LOWEST;
            #end
        }
        workgroupBarrier();
        var higher = most;
        for (var i = 0u; i < 8u; i++) { higher = max(higher, weights[stat_at + i]); }
        shared_by_lane[lane] = higher;
        workgroupBarrier();
        for (var i = 0u; i < 8u; i++) { higher = max(higher, shared_by_lane[stat_row * 8u + i]); }
        let fade = exp(most - higher);
        most = higher;
        total *= fade;
        if (stat_row < $ROWS) {
            for (var i = 0u; i < 8u; i++) {
                let score = weights[stat_at + i];
                let weight = select(exp(score - higher), 0.0, score == LOWEST);
                weights[stat_at + i] = weight;
                total += weight;
            }
            fades[stat_row] = fade;
        }
        workgroupBarrier();
        #for r in ROWS
        let fade_$r = fades[$r];
        #for c in CHUNKS
        sum_${r}_$c *= fade_$r;
        #end
        #end
        if (slice < slices) {
            let here = min(LANES, end_of_keys - start);
            for (var i = slice; i < here; i += slices * 4u) {
                #for a in 4
                let i_$a = min(i + ${a}u * slices, here - 1u);
                #if PAGED
                let row_$a = key_rows[i_$a];
                #else
                let row_$a = start + i_$a;
                #end
                let at_$a = v_start(kv_head) + row_$a * params.v_row + d;
                #if CODES
                let coding_$a = coding_at(row_$a, kv_head);
                #end
                #for c in CHUNKS
                let value_${a}_$c = value_at(select(0u, at_$a + $c * LANES, d + $c * LANES < params.value_depth)${", coding_" if CODES else ""}${a if CODES else ""});
                #end
                #end
                #for a in 4
                #for r in ROWS
                let weight_${a}_$r = select(0.0, weights[$r * LANES + i_$a], i + ${a}u * slices < here);
                #for c in CHUNKS
                sum_${r}_$c += weight_${a}_$r * value_${a}_$c;
                #end
                #end
                #end
            }
        }
        workgroupBarrier();
    }

    shared_by_lane[lane] = total;
    workgroupBarrier();
    if (stat_row < $ROWS && lane % 8u == 0u) {
        var whole = 0.0;
        for (var i = 0u; i < 8u; i++) { whole += shared_by_lane[lane + i]; }
        #if SINKS
        whole += sink_weight(kv_head * params.group + min(row + stat_row, rows - 1u) % params.group, most);
        #end
        mosts[stat_row] = most;
        totals[stat_row] = whole;
    }
    for (var i = 0u; i < $ROWS; i++) {
        for (var c = 0u; c < $CHUNKS; c++) {
            var own = $T();
            #for r in ROWS
            #for c in CHUNKS
            own = select(own, sum_${r}_$c, i == ${r}u && c == ${c}u);
            #end
            #end
            lane_sums[lane] = own;
            workgroupBarrier();
            let n = row + i;
            let head = kv_head * params.group + n % params.group;
            let s = n / params.group;
            if (n < rows && lane < depth && lane + c * LANES < params.value_depth) {
                var result = $T();
                for (var p = 0u; p < slices; p++) { result += lane_sums[p * depth + lane]; }
                #if SPLIT
                let part_head = part * params.kv_heads * params.group + head;
                #if PAGED
                let place = part_head * params.tile_count + tile_number;   // a tile has one row
                #else
                let place = part_head * params.tokens + s;
                #end
                store_out(place * params.value_depth + lane + c * LANES, result);
                if (lane == 0u && c == 0u) { store_stats(place, vec2<f32>(mosts[i], totals[i])); }
                #else
                store_out(out_start(head) + (tile.first + s) * params.out_row + lane + c * LANES, result / select(totals[i], 1.0, totals[i] == 0.0));
                #end
            }
            workgroupBarrier();
        }
    }
}
