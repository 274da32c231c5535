// Of the COUNT scores of each row, the USED highest: `chosen` has their numbers, the highest first, and `shares` what each
// of these experts has a part of. Of equal scores the one with the lower number comes first.
// One workgroup per row. An expert's place is how many come before it, so that places are never given twice, NaN or not.
// SCORING: a share is "softmax": of the scores of all, or "sigmoid". NORMALIZED: the shares of a row add up to `scale`.
// BIAS: chosen are those whose share plus bias is highest.
// GROUPS > 1: only the experts of the GROUPS_USED best groups of neighbours are chosen. A group is as good as its best
// expert, or the sum of its best two if BEST_TWO.
#params rows: u32, scale: f32
#read x: f32
#read bias: f32 if BIAS
#write chosen: i32, shares: f32

const LANES = ${LANES}u;
const COUNT = ${COUNT}u;
const USED = ${USED}u;
var<workgroup> logits: array<f32, COUNT>;
var<workgroup> keys: array<u32, COUNT>;
var<workgroup> highest: array<f32, USED>;
#if GROUPS > 1
var<workgroup> group_keys: array<u32, ${GROUPS}>;
#end

// Bits in the order of the numbers; 0 comes before all of them.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(select(value, 0.0, value == 0.0));
    return max(select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u), 1u);
}
fn number_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u)); }
fn sigmoid(value: f32) -> f32 { return 1.0 / (1.0 + exp(-value)); }

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    for (var e = lane; e < COUNT; e += LANES) {
        let logit = load_x(row * COUNT + e);
        logits[e] = logit;
        #if BIAS
        keys[e] = key_of(${"sigmoid(logit)" if SCORING == "sigmoid" else "logit"} + load_bias(e));
        #else
        keys[e] = key_of(logit);
        #end
    }
    workgroupBarrier();
    #if GROUPS > 1
    const SIZE = COUNT / ${GROUPS}u;
    for (var g = lane; g < ${GROUPS}u; g += LANES) {
        var best = 0u;
        var second = 0u;
        for (var e = g * SIZE; e < (g + 1u) * SIZE; e++) {
            second = max(second, min(best, keys[e]));
            best = max(best, keys[e]);
        }
        #if BEST_TWO and not BIAS and SCORING == "sigmoid"
        group_keys[g] = key_of(sigmoid(number_of(best)) + sigmoid(number_of(second)));
        #elif BEST_TWO
        group_keys[g] = key_of(number_of(best) + number_of(second));
        #else
        group_keys[g] = best;
        #end
    }
    workgroupBarrier();
    for (var e = lane; e < COUNT; e += LANES) {
        let own = e / SIZE;
        var before = 0u;
        for (var g = 0u; g < ${GROUPS}u; g++) {
            before += u32(group_keys[g] > group_keys[own] || (group_keys[g] == group_keys[own] && g < own));
        }
        if (before >= ${GROUPS_USED}u) { keys[e] = 0u; }
    }
    workgroupBarrier();
    #end
    for (var e = lane; e < COUNT; e += LANES) {
        let key = keys[e];
        var place = 0u;
        for (var other = 0u; other < COUNT; other++) {
            place += u32(keys[other] > key || (keys[other] == key && other < e));
        }
        if (place < USED) {
            chosen[row * USED + place] = i32(e);
            highest[place] = logits[e];
        }
    }
    workgroupBarrier();
    #if SCORING == "softmax"
    var most = highest[0];
    #if GROUPS > 1 or BIAS
    for (var e = 0u; e < COUNT; e++) { most = max(most, logits[e]); }
    #end
    var total = 0.0;
    #if NORMALIZED
    for (var n = 0u; n < USED; n++) { total += exp(highest[n] - most); }
    #else
    for (var e = 0u; e < COUNT; e++) { total += exp(logits[e] - most); }
    #end
    for (var n = lane; n < USED; n += LANES) {
        store_shares(row * USED + n, exp(highest[n] - most) / total * params.scale);
    }
    #else
    var total = 1.0;
    #if NORMALIZED
    total = 0x1p-66;   // so that shares of nothing are no NaN
    for (var n = 0u; n < USED; n++) { total += sigmoid(highest[n]); }
    #end
    for (var n = lane; n < USED; n += LANES) {
        store_shares(row * USED + n, sigmoid(highest[n]) / total * params.scale);
    }
    #end
}
