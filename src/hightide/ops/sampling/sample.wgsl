// One token id per row of logits: the largest (temperature 0), or one drawn from the softmax at a temperature,
// after top-k, top-p and min-p. One workgroup per row; each lane holds a contiguous run of the vocabulary, in words
// of 32 tokens. Thresholds are found by bisection over the bits of the logits, so that nothing is sorted or written.
// LANES: 16 * 16. A row with NaN or +infinity, or with nothing but -infinity, gives -1. -infinity rules a token out.
// MASKED: so does a 0 in the row's mask, if it has one; a mask that leaves nothing gives -2. Words of 0 are skipped.
#params rows: u32, width: u32, words: u32, run: u32, settings_row: u32   // words of 32; run: words of a lane; 0 or 5
#params mask_rows: u32 if MASKED
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
var<workgroup> places16: array<u32, 16>;

// The part of a row that a lane holds.
struct Part {
    logits: u32,      // where the row begins
    mask: u32,        // where its mask does
    first: u32,       // word
    end: u32,
    most: f32,        // of the row's allowed logits
    temperature: f32,
}

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

// Which of the 32 tokens of a word are allowed.
fn allowed(part: Part, word: u32) -> u32 {
    #if MASKED
    if (part.mask != NOWHERE) { return bitcast<u32>(masks[part.mask + word]); }
    #end
    return 0xffffffffu;
}

fn end_of(word: u32) -> u32 { return min(word * 32u + 32u, params.width); }

fn is_set(bits: u32, i: u32) -> bool { return ((bits >> (i & 31u)) & 1u) == 1u; }

// How many logits of this part reach a threshold.
fn count_from(part: Part, threshold: u32) -> f32 {
    var count = 0.0;
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        if (bits == 0u) { continue; }
        for (var i = word * 32u; i < end_of(word); i++) {
            count += select(0.0, 1.0, is_set(bits, i) && ordered(load_logits(part.logits + i)) >= threshold);
        }
    }
    return count;
}

// The weights of those logits of this part that reach a threshold; weights below `least` aside.
fn weigh_from(part: Part, threshold: u32, least: f32) -> f32 {
    var sum = 0.0;
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        if (bits == 0u) { continue; }
        for (var i = word * 32u; i < end_of(word); i++) {
            let value = load_logits(part.logits + i);
            let weight = exp((value - part.most) / part.temperature);
            sum += select(0.0, weight, is_set(bits, i) && ordered(value) >= threshold && weight >= least);
        }
    }
    return sum;
}

#main LANES
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    var part: Part;
    part.logits = row * params.width;
    part.mask = NOWHERE;
    #if MASKED
    if (masked[row] >= 0) { part.mask = min(u32(masked[row]), params.mask_rows - 1u) * params.words; }
    #end
    part.first = min(lane * params.run, params.words);
    part.end = min(part.first + params.run, params.words);

    var most = LOWEST;
    var place = params.width;
    var odd = false;
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        for (var i = word * 32u; i < end_of(word); i++) {
            let value = load_logits(part.logits + i);
            odd = odd || is_odd(value);
            if (is_set(bits, i) && (value > most || place == params.width)) { most = value; place = i; }
        }
    }
    values[lane] = most;
    places[lane] = select(place, NOWHERE, odd);
    workgroupBarrier();
    // The first largest of 16 lanes each, then of those; a place that is NOWHERE comes before all.
    if (lane < 16u) {
        most = values[lane * 16u];
        place = places[lane * 16u];
        odd = place == NOWHERE;
        for (var i = lane * 16u + 1u; i < lane * 16u + 16u; i++) {
            odd = odd || places[i] == NOWHERE;
            if (places[i] < params.width && (place >= params.width || values[i] > most)) {
                most = values[i];
                place = places[i];
            }
        }
        groups16[lane] = most;
        places16[lane] = select(place, NOWHERE, odd);
    }
    workgroupBarrier();
    most = groups16[0];
    place = places16[0];
    odd = place == NOWHERE;
    for (var i = 1u; i < 16u; i++) {
        odd = odd || places16[i] == NOWHERE;
        if (places16[i] < params.width && (place >= params.width || groups16[i] > most)) {
            most = groups16[i];
            place = places16[i];
        }
    }
    workgroupBarrier();
    let nothing = place >= params.width || bitcast<u32>(most) == RULED_OUT;
    let none = select(-1, -2, !odd && part.mask != NOWHERE);
    odd = odd || nothing;
    let given = row * params.settings_row;
    part.most = most;
    part.temperature = load_settings(given + 0u);
    if (part.temperature <= 0.0) {
        if (lane == 0u) { ids[row] = select(i32(place), none, odd); }
        return;
    }

    // top-k: the largest threshold that at least k logits reach.
    var threshold = 0u;
    let k = load_settings(given + 1u);
    if (k > 0.0 && k < f32(params.width)) {
        for (var bit = 31; bit >= 0; bit--) {
            let tried = threshold | (1u << u32(bit));
            if (total(lane, count_from(part, tried)) >= k) { threshold = tried; }
        }
    }
    threshold = max(threshold, FINITE);
    // top-p: the largest threshold above which there is at least p of what top-k left.
    let p = load_settings(given + 2u);
    if (p < 1.0) {
        let wanted = p * total(lane, weigh_from(part, threshold, 0.0));
        var higher = 0u;
        for (var bit = 31; bit >= 0; bit--) {
            let tried = higher | (1u << u32(bit));
            if (total(lane, weigh_from(part, max(tried, threshold), 0.0)) >= wanted) { higher = tried; }
        }
        threshold = max(threshold, min(higher, ordered(most)));
    }
    // min-p: a share of the largest probability, which is exp(0).
    let least = load_settings(given + 3u);
    let all = total(lane, weigh_from(part, threshold, least));
    // `total` left every lane's sum in `values`: walk to the lane, then to the token, where the draw falls.
    if (lane == 0u) {
        var left = load_settings(given + 4u) * all;
        var chosen = place;
        var l = 0u;
        while (l < LANES - 1u && left >= values[l]) { left -= values[l]; l++; }
        let end = min((l + 1u) * params.run * 32u, params.width);
        for (var i = l * params.run * 32u; i < end; i++) {
            let value = load_logits(part.logits + i);
            let weight = exp((value - most) / part.temperature);
            if (is_set(allowed(part, i / 32u), i) && ordered(value) >= threshold && weight >= least) {
                chosen = i;
                if (left < weight) { break; }
                left -= weight;
            }
        }
        ids[row] = select(i32(chosen), none, odd);
    }
}
