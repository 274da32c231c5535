// One token id per row of logits: the largest (temperature 0), or one drawn from the softmax at a temperature,
// after top-k, top-p and min-p. One workgroup per row; each lane holds a contiguous run of the vocabulary.
// Thresholds are found by bisection over the bits of the logits, so that nothing is sorted or written. LANES: 16 * 16.
// A row with NaN or +infinity, or with nothing but -infinity, gives -1. -infinity rules a token out.
// MASKED: so does a 0 in the row's mask, if it has one; a mask that leaves nothing gives -2.
#params rows: u32, width: u32, run: u32, settings_row: u32   // run = ceil(width / LANES); settings_row: 0 or 5
#params words: u32, mask_rows: u32 if MASKED                    // words of a mask: ceil(width / 32)
#read logits: f32, settings: f32          // temperature, top-k, top-p, min-p, draw in 0..1
#read masks: i32 if MASKED                // a bit per token
#read masked: i32 if MASKED               // the number of a row's mask, or -1
#write ids: i32

const LANES = ${LANES}u;
const LOWEST = -3.4028234e38;
const RULED_OUT = 0xff800000u;  // the bits of -infinity
const FINITE = 0x00800000u;     // ordered(-infinity) + 1
const NOWHERE = 0xffffffffu;    // the place of a lane that found what is not a number; the mask of a row without one
var<workgroup> values: array<f32, LANES>;
var<workgroup> places: array<u32, LANES>;
var<workgroup> groups16: array<f32, 16>;

// The sum over all lanes, for every lane.
fn total(lane: u32, value: f32) -> f32 {
    values[lane] = value;
    workgroupBarrier();
    if (lane < 16u) {
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) { sum += values[lane * 16u + i]; }
        groups16[lane] = sum;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) { sum += groups16[i]; }
    workgroupBarrier();
    return sum;
}

// A number that orders as the float does.
fn ordered(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// NaN or +infinity, by the bits: compilers may assume that there are none.
fn is_odd(value: f32) -> bool {
    let bits = bitcast<u32>(value);
    return (bits & 0x7f800000u) == 0x7f800000u && bits != RULED_OUT;
}

// A logit, or -infinity if the mask that begins at this word rules the token out.
fn allowed_logit(start: u32, mask: u32, i: u32) -> f32 {
    let value = load_logits(start + i);
    #if MASKED
    if (mask != NOWHERE && ((masks[mask + i / 32u] >> (i % 32u)) & 1) == 0) { return bitcast<f32>(RULED_OUT); }
    #end
    return value;
}

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let start = row * params.width;
    var mask = NOWHERE;
    #if MASKED
    if (masked[row] >= 0) { mask = min(u32(masked[row]), params.mask_rows - 1u) * params.words; }
    #end
    let given = row * params.settings_row;
    let first = min(lane * params.run, params.width);
    let end = min(first + params.run, params.width);

    var most = LOWEST;
    var place = params.width;
    var odd = false;
    for (var i = first; i < end; i++) {
        odd = odd || is_odd(load_logits(start + i));
        let value = allowed_logit(start, mask, i);
        if (value > most || place == params.width) { most = value; place = i; }
    }
    values[lane] = most;
    places[lane] = select(place, NOWHERE, odd);
    workgroupBarrier();
    for (var i = 0u; i < LANES; i++) {
        odd = odd || places[i] == NOWHERE;
        if (places[i] < params.width && (values[i] > most || (values[i] == most && places[i] < place))) {
            most = values[i];
            place = places[i];
        }
    }
    workgroupBarrier();
    let nothing = bitcast<u32>(most) == RULED_OUT;
    let none = select(-1, -2, nothing && !odd && mask != NOWHERE);
    odd = odd || nothing;
    let temperature = load_settings(given + 0u);
    if (temperature <= 0.0) {
        if (lane == 0u) { ids[row] = select(i32(place), none, odd); }
        return;
    }

    // top-k: the largest threshold that at least k logits reach.
    var threshold = 0u;
    let k = load_settings(given + 1u);
    if (k > 0.0 && k < f32(params.width)) {
        for (var bit = 31; bit >= 0; bit--) {
            let tried = threshold | (1u << u32(bit));
            var count = 0.0;
            for (var i = first; i < end; i++) { count += select(0.0, 1.0, ordered(allowed_logit(start, mask, i)) >= tried); }
            if (total(lane, count) >= k) { threshold = tried; }
        }
    }
    threshold = max(threshold, FINITE);
    // top-p: the largest threshold above which there is at least p of what top-k left.
    let p = load_settings(given + 2u);
    if (p < 1.0) {
        var sum = 0.0;
        for (var i = first; i < end; i++) {
            let value = allowed_logit(start, mask, i);
            sum += select(0.0, exp((value - most) / temperature), ordered(value) >= threshold);
        }
        let wanted = p * total(lane, sum);
        var higher = 0u;
        for (var bit = 31; bit >= 0; bit--) {
            let tried = higher | (1u << u32(bit));
            var reached = 0.0;
            for (var i = first; i < end; i++) {
                let value = allowed_logit(start, mask, i);
                reached += select(0.0, exp((value - most) / temperature), ordered(value) >= max(tried, threshold));
            }
            if (total(lane, reached) >= wanted) { higher = tried; }
        }
        threshold = max(threshold, min(higher, ordered(most)));
    }
    // min-p: a share of the largest probability, which is exp(0).
    let least = load_settings(given + 3u);
    var sum = 0.0;
    for (var i = first; i < end; i++) {
        let value = allowed_logit(start, mask, i);
        let weight = exp((value - most) / temperature);
        sum += select(0.0, weight, ordered(value) >= threshold && weight >= least);
    }
    let all = total(lane, sum);
    // `total` left every lane's sum in `values`: walk to the lane, then to the token, where the draw falls.
    if (lane == 0u) {
        var left = load_settings(given + 4u) * all;
        var chosen = place;
        var l = 0u;
        while (l < LANES - 1u && left >= values[l]) { left -= values[l]; l++; }
        for (var i = l * params.run; i < min((l + 1u) * params.run, params.width); i++) {
            let value = allowed_logit(start, mask, i);
            let weight = exp((value - most) / temperature);
            if (ordered(value) >= threshold && weight >= least) {
                chosen = i;
                if (left < weight) { break; }
                left -= weight;
            }
        }
        ids[row] = select(i32(chosen), none, odd);
    }
}
