// One token id per row of logits: the largest (temperature 0), or one drawn from the softmax at a temperature,
// after top-k, top-p and min-p. One workgroup per row; each lane holds a contiguous run of the vocabulary, in words
// of 32 tokens. Nothing is sorted: thresholds are found by bisection over the bits of logits, mostly of a few that are
// taken into shared memory first.
// LANES: 16 * 16. AHEAD: how many vec4s are loaded at once.
// A row with NaN or +infinity, or with nothing but -infinity, gives -1. -infinity rules a token out.
// MASKED: so does a 0 in the row's mask, if it has one; a mask that leaves nothing gives -2. Words of 0 are skipped.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, width: u32, words: u32, run: u32, settings_row: u32   // words of 32; run: words of a lane; 0 or 5
#params mask_rows: u32 if MASKED
#read logits: $T, settings: f32           // temperature, top-k, top-p, min-p, draw in 0..1
#read masks: i32 if MASKED                // a bit per token
#read masked: i32 if MASKED               // the number of a row's mask, or -1
#write ids: i32

const LANES = ${LANES}u;
const LOWEST = -3.4028234e38;
const RULED_OUT = 0xff800000u;  // the bits of -infinity
const FINITE = 0x00800000u;     // ordered(-infinity) + 1
const NOWHERE = 0xffffffffu;    // the place of a lane that found what is not a number; the mask of a row without one
const MOST_TAKEN = 4u * LANES;
const LIKELY = 256.0;           // tokens that mostly have top-p of all weight
var<workgroup> values: array<f32, LANES>;
var<workgroup> places: array<u32, LANES>;
var<workgroup> groups16: array<f32, 16>;
var<workgroup> taken: array<f32, MOST_TAKEN>;
var<workgroup> taken_places: array<u32, MOST_TAKEN>;
var<workgroup> taken_count: u32;

// The part of a row that a lane holds.
struct Part {
    logits: u32,      // where the row begins
    mask: u32,        // where its mask does
    first: u32,       // word
    end: u32,
    most: f32,        // of the row's allowed logits
    temperature: f32,
    taken_first: u32,
    taken_end: u32,
}

// The sum over all lanes, for every lane. `values` and `groups16` are those of the lanes, and of 16 lanes each, until the next.
fn total(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
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
    return sum;
}

// Behind `total`: the sum over the lanes before this one.
fn total_before(lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < lane / 16u; i++) { sum += groups16[i]; }
    for (var i = lane / 16u * 16u; i < lane; i++) { sum += values[i]; }
    return sum;
}

// Behind `total`: the lane within whose share a part of the total ends, and what of that part is left there.
struct Share { lane: u32, left: f32 }
fn share_at(part_of_total: f32) -> Share {
    var group = Share(0u, part_of_total);
    var left = part_of_total;
    for (var i = 0u; i < 16u; i++) {
        if (groups16[i] <= 0.0) { continue; }
        group = Share(i * 16u, left);
        if (left < groups16[i]) { break; }
        left -= groups16[i];
    }
    var found = group;
    left = group.left;
    for (var i = group.lane; i < group.lane + 16u; i++) {
        if (values[i] <= 0.0) { continue; }
        found = Share(i, left);
        if (left < values[i]) { break; }
        left -= values[i];
    }
    return found;
}

// Which of 16 lanes, `step` apart, found the largest value first; a place that is NOWHERE comes before all.
fn first_largest(first: u32, step: u32) -> u32 {
    var best = first;
    for (var l = first + step; l < first + 16u * step; l += step) {
        let here = places[l];
        let there = places[best];
        let larger = there >= params.width || values[l] > values[best] || (values[l] == values[best] && here < there);
        if (there != NOWHERE && (here == NOWHERE || (here < params.width && larger))) { best = l; }
    }
    return best;
}

// Numbers that order as the floats do.
fn ordered(value: vec4<f32>) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(value);
    return select(bits | vec4<u32>(0x80000000u), ~bits, (bits >> vec4<u32>(31u)) == vec4<u32>(1u));
}

// NaN or +infinity, by the bits: compilers may assume that there are none.
fn is_odd(value: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(value);
    return ((bits & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u)) & (bits != vec4<u32>(RULED_OUT));
}

// Which of the 32 tokens of a word exist, and are allowed.
fn allowed(part: Part, word: u32) -> u32 {
    var bits = 0xffffffffu;
    #if MASKED
    if (part.mask != NOWHERE) { bits = bitcast<u32>(masks[part.mask + word]); }
    #end
    let left = params.width - word * 32u;
    return select(bits, extractBits(bits, 0u, min(left, 31u)), left < 32u);
}

fn are_set(bits: u32, j: u32) -> vec4<bool> {
    return (vec4<u32>(bits >> (j * 4u)) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>();
}

// Logits from a token on, which is a multiple of four; those of others for tokens that do not exist.
fn four(part: Part, token: u32) -> vec4<f32> {
    #if VEC4
    return load_logits((part.logits + min(token, params.width - 4u)) / 4u);
    #else
    let at = part.logits + min(vec4<u32>(token) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.width - 1u));
    return vec4<f32>(load_logits(at.x), load_logits(at.y), load_logits(at.z), load_logits(at.w));
    #end
}

fn weights_of(part: Part, value: vec4<f32>) -> vec4<f32> { return exp((value - part.most) / part.temperature); }

// How many logits of this part reach a threshold.
fn count_from(part: Part, threshold: u32) -> f32 {
    var count = vec4<f32>();
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        if (bits == 0u) { continue; }
        for (var j = 0u; j < 8u; j += ${AHEAD}u) {
            #for a in AHEAD
            let value$a = four(part, word * 32u + (j + ${a}u) * 4u);
            #end
            #for a in AHEAD
            count += select(vec4<f32>(), vec4<f32>(1.0), are_set(bits, j + ${a}u) & (ordered(value$a) >= vec4<u32>(threshold)));
            #end
        }
    }
    return dot(count, vec4<f32>(1.0));
}

// The weights of those logits of this part that reach a threshold; weights below `least` aside.
fn weigh_from(part: Part, threshold: u32, least: f32) -> f32 {
    var sum = vec4<f32>();
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        if (bits == 0u) { continue; }
        for (var j = 0u; j < 8u; j += ${AHEAD}u) {
            #for a in AHEAD
            let value$a = four(part, word * 32u + (j + ${a}u) * 4u);
            #end
            #for a in AHEAD
            let weight$a = weights_of(part, value$a);
            let counts$a = are_set(bits, j + ${a}u) & (ordered(value$a) >= vec4<u32>(threshold)) & (weight$a >= vec4<f32>(least));
            sum += select(vec4<f32>(), weight$a, counts$a);
            #end
        }
    }
    return dot(sum, vec4<f32>(1.0));
}

// The same of what was taken.
fn count_taken(part: Part, threshold: u32) -> f32 {
    var count = 0.0;
    for (var i = part.taken_first; i < part.taken_end; i++) {
        count += select(0.0, 1.0, ordered(vec4<f32>(taken[i])).x >= threshold);
    }
    return count;
}

fn weigh_taken(part: Part, threshold: u32, least: f32) -> f32 {
    var sum = 0.0;
    for (var i = part.taken_first; i < part.taken_end; i++) { sum += weight_of(part, taken[i], true, threshold, least); }
    return sum;
}

// 0 for what is filtered out.
fn weight_of(part: Part, value: f32, is_allowed: bool, threshold: u32, least: f32) -> f32 {
    let weight = weights_of(part, vec4<f32>(value)).x;
    return select(0.0, weight, is_allowed && ordered(vec4<f32>(value)).x >= threshold && weight >= least);
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

    // The largest of each quarter of the part, which are tokens four apart.
    var largest = vec4<f32>(LOWEST);
    var at = vec4<u32>(params.width);
    var odds = vec4<bool>();
    for (var word = part.first; word < part.end; word++) {
        let bits = allowed(part, word);
        for (var j = 0u; j < 8u; j += ${AHEAD}u) {
            #for a in AHEAD
            let value$a = four(part, word * 32u + (j + ${a}u) * 4u);
            #end
            #for a in AHEAD
            odds = odds | is_odd(value$a);
            let better$a = are_set(bits, j + ${a}u) & ((value$a > largest) | (at == vec4<u32>(params.width)));
            largest = select(largest, value$a, better$a);
            at = select(at, vec4<u32>(word * 32u + (j + ${a}u) * 4u) + vec4<u32>(0u, 1u, 2u, 3u), better$a);
            #end
        }
    }
    var most = largest.x;
    var place = at.x;
    for (var i = 1u; i < 4u; i++) {
        let better = place >= params.width || largest[i] > most || (largest[i] == most && at[i] < place);
        if (at[i] < params.width && better) {
            most = largest[i];
            place = at[i];
        }
    }
    values[lane] = most;
    places[lane] = select(place, NOWHERE, any(odds));
    workgroupBarrier();
    if (lane < 16u) {
        let best = first_largest(lane * 16u, 1u);
        values[lane * 16u] = values[best];
        places[lane * 16u] = places[best];
    }
    workgroupBarrier();
    let best = first_largest(0u, 16u);
    part.most = values[best];
    place = places[best];
    let none = select(-1, -2, place != NOWHERE && part.mask != NOWHERE);
    let nothing = place >= params.width || bitcast<u32>(part.most) == RULED_OUT;
    let given = row * params.settings_row;
    part.temperature = load_settings(given + 0u);
    if (part.temperature <= 0.0) {
        if (lane == 0u) { ids[row] = select(i32(place), none, nothing); }
        return;
    }

    let k = load_settings(given + 1u);
    let p = load_settings(given + 2u);
    let least = load_settings(given + 3u);
    let has_k = k > 0.0 && k < f32(params.width);
    var threshold = FINITE;
    var few = 0u;
    var all = 0.0;
    if (has_k || p < 1.0) {
        // At least `enough` logits reach the threshold that so many of the largest ones of quarters reach.
        let enough = select(LIKELY, k, has_k);
        var low = 0u;
        for (var bit = 31; bit >= 12; bit--) {
            let tried = low | (1u << u32(bit));
            let reach = (at < vec4<u32>(params.width)) & (ordered(largest) >= vec4<u32>(tried));
            if (total(lane, dot(select(vec4<f32>(), vec4<f32>(1.0), reach), vec4<f32>(1.0))) >= enough) { low = tried; }
        }
        low = max(low, FINITE);
        let mine = u32(count_from(part, low));
        let count = total(lane, f32(mine));
        if (lane == 0u) { taken_count = select(0u, u32(count), count <= f32(MOST_TAKEN)); }
        few = workgroupUniformLoad(&taken_count);
        if (few > 0u) {
            var next = u32(total_before(lane));
            let end = next + mine;
            for (var word = part.first; word < part.end && next < end; word++) {
                let bits = allowed(part, word);
                for (var i = 0u; i < 32u; i += 4u) {
                    let value = four(part, word * 32u + i);
                    let reach = are_set(bits, i / 4u) & (ordered(value) >= vec4<u32>(low));
                    for (var c = 0u; c < 4u; c++) {
                        if (reach[c]) {
                            taken[next] = value[c];
                            taken_places[next] = word * 32u + i + c;
                            next++;
                        }
                    }
                }
            }
            let share = (few + LANES - 1u) / LANES;
            part.taken_first = min(lane * share, few);
            part.taken_end = min(part.taken_first + share, few);
            workgroupBarrier();
        }
    }
    // top-k: the largest threshold that at least k logits reach.
    if (has_k) {
        var higher = 0u;
        for (var bit = 31; bit >= 0; bit--) {
            let tried = higher | (1u << u32(bit));
            var count = 0.0;
            if (few > 0u) { count = count_taken(part, tried); } else { count = count_from(part, tried); }
            if (total(lane, count) >= k) { higher = tried; }
        }
        threshold = max(higher, FINITE);
    }
    // top-p: the largest threshold above which there is at least p of what top-k left.
    if (p < 1.0) {
        var sum = 0.0;
        if (few > 0u && has_k) { sum = weigh_taken(part, threshold, 0.0); } else { sum = weigh_from(part, threshold, 0.0); }
        let wanted = p * total(lane, sum);
        if (few > 0u) {
            let weight = total(lane, weigh_taken(part, threshold, 0.0));
            if (lane == 0u && weight < wanted) { taken_count = 0u; }
            few = workgroupUniformLoad(&taken_count);
        }
        var higher = 0u;
        for (var bit = 31; bit >= 0; bit--) {
            let tried = higher | (1u << u32(bit));
            if (few > 0u) { sum = weigh_taken(part, max(tried, threshold), 0.0); }
            else { sum = weigh_from(part, max(tried, threshold), 0.0); }
            if (total(lane, sum) >= wanted) { higher = tried; }
        }
        threshold = max(threshold, min(higher, ordered(vec4<f32>(part.most)).x));
    }
    // min-p is a share of the largest probability, which is exp(0). Then to the lane, and to the token, where the draw falls.
    let draw = load_settings(given + 4u);
    var chosen = place;
    if (few > 0u) {
        all = total(lane, weigh_taken(part, threshold, least));
        var found = share_at(draw * all);
        let share = (few + LANES - 1u) / LANES;
        for (var i = found.lane * share; i < min((found.lane + 1u) * share, few); i++) {
            let weight = weight_of(part, taken[i], true, threshold, least);
            if (weight > 0.0) {
                chosen = taken_places[i];
                if (found.left < weight) { break; }
                found.left -= weight;
            }
        }
    } else {
        all = total(lane, weigh_from(part, threshold, least));
        var found = share_at(draw * all);
        // The run of that lane, a piece for each lane.
        let first = found.lane * params.run * 32u;
        let end = min(first + params.run * 32u, params.width);
        let piece = (params.run * 32u + LANES - 1u) / LANES;
        var sum = 0.0;
        for (var i = first + lane * piece; i < min(first + (lane + 1u) * piece, end); i++) {
            let is_allowed = ((allowed(part, i / 32u) >> (i % 32u)) & 1u) == 1u;
            sum += weight_of(part, four(part, i / 4u * 4u)[i % 4u], is_allowed, threshold, least);
        }
        total(lane, sum);
        found = share_at(found.left);
        for (var i = first + found.lane * piece; i < min(first + (found.lane + 1u) * piece, end); i++) {
            let is_allowed = ((allowed(part, i / 32u) >> (i % 32u)) & 1u) == 1u;
            let weight = weight_of(part, four(part, i / 4u * 4u)[i % 4u], is_allowed, threshold, least);
            if (weight > 0.0) {
                chosen = i;
                if (found.left < weight) { break; }
                found.left -= weight;
            }
        }
    }
    if (lane == 0u) { ids[row] = select(i32(chosen), none, nothing); }
}
