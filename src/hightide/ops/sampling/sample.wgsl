// One token id per row of logits: the largest (temperature 0), or one drawn from the softmax at a temperature,
// after top-k, top-p and min-p. One workgroup per row; each lane holds a contiguous run of the vocabulary, in words
// of 32 tokens. Nothing is sorted: thresholds are found by bisection over the bits of logits, mostly of a few that are
// taken into shared memory first.
// ROOT: of the number of lanes. AHEAD: how many vec4s are loaded at once.
// A row with NaN or +infinity, or with nothing but -infinity, gives -1. -infinity rules a token out.
// MASKED: so does a 0 in the row's mask, if it has one; a mask that leaves nothing gives -2. Words of 0 are skipped.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, width: u32, words: u32, run: u32, settings_row: u32   // words of 32; run: words of a lane; 0 or 5
#params root: u32                         // ROOT, where a compiler that knew it would write a loop out, and take twice as long
#params mask_rows: u32 if MASKED
#read logits: $T, settings: f32           // temperature, top-k, top-p, min-p, draw in 0..1
#read masks: i32 if MASKED                // a bit per token
#read masked: i32 if MASKED               // the number of a row's mask, or -1
#write ids: i32

const ROOT = ${ROOT}u;
const LANES = ROOT * ROOT;
const LOWEST = -3.4028234e38;
const RULED_OUT = 0xff800000u;  // the bits of -infinity
const FINITE = 0x00800000u;     // ordered(-infinity) + 1
const NOWHERE = 0xffffffffu;    // the place of a lane that found what is not a number; the mask of a row without one
const MOST_TAKEN = 1024u;
const LIKELY = 256.0;           // tokens that mostly have top-p of all weight
var<workgroup> values: array<vec2<f32>, LANES>;
var<workgroup> places: array<u32, LANES>;
var<workgroup> sums_of_groups: array<vec2<f32>, ROOT>;
var<workgroup> taken: array<f32, MOST_TAKEN>;
var<workgroup> taken_places: array<u32, MOST_TAKEN>;

// What the sum over the lanes is for. A search takes a turn for each bit of its threshold.
const BOUND = 0u;   // search: a threshold that enough logits reach for sure
const TAKE = 1u;    // the logits that reach it
const TOP_K = 2u;   // search: the largest threshold that at least k logits reach
const WEIGH = 3u;   // all that top-k left
const TOP_P = 4u;   // search: the largest threshold above which there is at least p of that
const DRAW = 5u;    // the lane in whose share the draw falls
const TOKEN = 6u;   // the token of that lane

// The part of a row that a lane holds.
struct Part {
    logits: u32,      // where the row begins
    mask: u32,        // where its mask does
    first: u32,       // word
    end: u32,
    most: f32,        // of the row's allowed logits
    temperature: f32,
}

// The lane in whose share a part of the sum over all lanes ends, and what of that part is left there.
struct Share { lane: u32, left: f32 }
fn share_at(part_of_sum: f32) -> Share {
    var group = Share(0u, part_of_sum);
    var left = part_of_sum;
    for (var i = 0u; i < params.root; i++) {
        if (sums_of_groups[i].y <= 0.0) { continue; }
        group = Share(i * ROOT, left);
        if (left < sums_of_groups[i].y) { break; }
        left -= sums_of_groups[i].y;
    }
    var found = group;
    left = group.left;
    for (var i = group.lane; i < group.lane + params.root; i++) {
        if (values[i].y <= 0.0) { continue; }
        found = Share(i, left);
        if (left < values[i].y) { break; }
        left -= values[i].y;
    }
    return found;
}

// How many logits the lanes before this one counted.
fn counted_before(lane: u32) -> u32 {
    var sum = 0.0;
    for (var i = 0u; i < lane / ROOT; i++) { sum += sums_of_groups[i].x; }
    for (var i = lane / ROOT * ROOT; i < lane; i++) { sum += values[i].x; }
    return u32(sum);
}

// Which of ROOT lanes, `step` apart, found the largest value first; a place that is NOWHERE comes before all.
fn first_largest(first: u32, step: u32) -> u32 {
    var best = first;
    for (var l = first + step; l < first + params.root * step; l += step) {
        let here = places[l];
        let there = places[best];
        let value = values[l].x;
        let most = values[best].x;
        let larger = there >= params.width || value > most || (value == most && here < there);
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

// How many fours of a word to look at.
fn fours_of(bits: u32) -> u32 { return select(min(8u, params.root), 0u, bits == 0u); }

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

// The weights of logits that are allowed and reach a threshold; -1 for others, and for those with less than `least`.
fn weights_of(part: Part, value: vec4<f32>, is_allowed: vec4<bool>, threshold: u32, least: f32) -> vec4<f32> {
    let weight = exp((value - part.most) / part.temperature);
    let kept = is_allowed & (ordered(value) >= vec4<u32>(threshold)) & (weight >= vec4<f32>(least));
    return select(vec4<f32>(-1.0), weight, kept);
}

// The items of a lane: of `few` that were taken, or tokens if that is 0.
fn first_item(lane: u32, few: u32) -> u32 {
    return select(min(lane * params.run * 32u, params.width), min(lane * ((few + LANES - 1u) / LANES), few), few > 0u);
}

// The items of one of the LANES pieces that a lane's items are divided into: the first, and the one behind the last.
fn items_of_piece(lane: u32, piece: u32, few: u32) -> vec2<u32> {
    let first = first_item(lane, few);
    let end = first_item(lane + 1u, few);
    let size = (end - first + LANES - 1u) / LANES;
    return min(vec2<u32>(first + piece * size, first + (piece + 1u) * size), vec2<u32>(end));
}

// The weight of an item, as of a logit.
fn item_weight(part: Part, item: u32, few: u32, threshold: u32, least: f32) -> f32 {
    if (few > 0u) { return weights_of(part, vec4<f32>(taken[item]), vec4<bool>(true), threshold, least).x; }
    let is_allowed = are_set(allowed(part, item / 32u), item / 4u % 8u);
    return weights_of(part, four(part, item / 4u * 4u), is_allowed, threshold, least)[item % 4u];
}

// How many logits of this lane reach a threshold, and their weight.
fn measure(part: Part, lane: u32, few: u32, threshold: u32, least: f32) -> vec2<f32> {
    var count = vec4<f32>();
    var weight = vec4<f32>();
    for (var i = first_item(lane, few); few > 0u && i < first_item(lane + 1u, few); i++) {
        let one = weights_of(part, vec4<f32>(taken[i]), vec4<bool>(true, false, false, false), threshold, least);
        count += step(vec4<f32>(), one);
        weight += max(one, vec4<f32>());
    }
    for (var word = part.first; few == 0u && word < part.end; word++) {
        let bits = allowed(part, word);
        for (var j = 0u; j < fours_of(bits); j += ${AHEAD}u) {
            #for a in AHEAD
            let value$a = four(part, word * 32u + (j + ${a}u) * 4u);
            #end
            #for a in AHEAD
            let weights$a = weights_of(part, value$a, are_set(bits, j + ${a}u), threshold, least);
            count += step(vec4<f32>(), weights$a);
            weight += max(weights$a, vec4<f32>());
            #end
        }
    }
    return vec2<f32>(dot(count, vec4<f32>(1.0)), dot(weight, vec4<f32>(1.0)));
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
        for (var j = 0u; j < min(8u, params.root); j += ${AHEAD}u) {
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
    values[lane].x = most;
    places[lane] = select(place, NOWHERE, any(odds));
    workgroupBarrier();
    if (lane < ROOT) {
        let best = first_largest(lane * ROOT, 1u);
        values[lane * ROOT].x = values[best].x;
        places[lane * ROOT] = places[best];
    }
    workgroupBarrier();
    let best = first_largest(0u, ROOT);
    part.most = values[best].x;
    place = places[best];
    let none = select(-1, -2, place != NOWHERE && part.mask != NOWHERE);
    let nothing = place >= params.width || bitcast<u32>(part.most) == RULED_OUT;
    let given = row * params.settings_row;
    let temperature = load_settings(given + 0u);
    if (temperature <= 0.0) {
        if (lane == 0u) { ids[row] = select(i32(place), none, nothing); }
        return;
    }
    workgroupBarrier();

    part.temperature = temperature;
    let k = load_settings(given + 1u);
    let p = load_settings(given + 2u);
    let has_k = k > 0.0 && k < f32(params.width);
    let has_p = p < 1.0;
    let least = load_settings(given + 3u);
    var threshold = FINITE;
    var few = 0u;            // that were taken
    var few_weight = 0.0;
    var wanted = 0.0;
    var found = Share();
    // Every turn is one sum over the lanes. One loop for all of them, since a barrier costs a software adapter much to compile.
    var purpose = select(DRAW, BOUND, has_k || has_p);
    var bit = 31u;
    var searched = 0u;
    loop {
        let tried = searched | (1u << bit);
        var mine = vec2<f32>();
        if (purpose == BOUND) {
            let reach = (at < vec4<u32>(params.width)) & (ordered(largest) >= vec4<u32>(tried));
            mine.x = dot(select(vec4<f32>(), vec4<f32>(1.0), reach), vec4<f32>(1.0));
        } else if (purpose == TOKEN) {
            let items = items_of_piece(found.lane, lane, few);
            for (var i = items.x; i < items.y; i++) {
                mine.y += max(0.0, item_weight(part, i, few, threshold, least));
            }
        } else {
            let reaching = select(threshold, max(threshold, tried), purpose == TOP_K || purpose == TOP_P);
            let items = select(few, 0u, purpose == WEIGH && !has_k);
            mine = measure(part, lane, items, reaching, select(0.0, least, purpose == DRAW));
        }
        values[lane] = mine;
        workgroupBarrier();
        if (lane < ROOT) {
            var sum = vec2<f32>();
            for (var i = 0u; i < params.root; i++) { sum += values[lane * ROOT + i]; }
            sums_of_groups[lane] = sum;
        }
        workgroupBarrier();
        var sum = vec2<f32>();
        for (var i = 0u; i < params.root; i++) { sum += sums_of_groups[i]; }
        let bisecting = purpose == BOUND || purpose == TOP_K || purpose == TOP_P;
        let reached = select(sum.x >= select(LIKELY, k, has_k), sum.y >= wanted, purpose == TOP_P);
        if (bisecting && reached) { searched = tried; }
        if (bisecting && bit > select(0u, 12u, purpose == BOUND)) {
            bit -= 1u;
        } else if (purpose == BOUND) {
            threshold = max(FINITE, searched);
            purpose = TAKE;
        } else if (purpose == TAKE) {
            if (sum.x <= f32(MOST_TAKEN)) {
                few = u32(sum.x);
                few_weight = sum.y;
                var next = counted_before(lane);
                let end = next + u32(mine.x);
                for (var word = part.first; word < part.end && next < end; word++) {
                    let bits = allowed(part, word);
                    for (var j = 0u; j < fours_of(bits); j++) {
                        let value = four(part, word * 32u + j * 4u);
                        let reach = are_set(bits, j) & (ordered(value) >= vec4<u32>(threshold));
                        for (var c = 0u; c < 4u; c++) {
                            if (reach[c]) {
                                taken[next] = value[c];
                                taken_places[next] = word * 32u + j * 4u + c;
                                next++;
                            }
                        }
                    }
                }
            }
            threshold = select(FINITE, threshold, has_k);
            purpose = select(WEIGH, TOP_K, has_k);
            searched = 0u;
            bit = 31u;
        } else if (purpose == TOP_K) {
            threshold = max(threshold, searched);
            purpose = select(DRAW, WEIGH, has_p);
        } else if (purpose == WEIGH) {
            wanted = p * sum.y;
            few = select(0u, few, has_k || few_weight >= wanted);
            purpose = TOP_P;
            searched = 0u;
            bit = 31u;
        } else if (purpose == TOP_P) {
            threshold = max(threshold, min(searched, ordered(vec4<f32>(part.most)).x));
            purpose = DRAW;
        } else if (purpose == DRAW) {
            found = share_at(load_settings(given + 4u) * sum.y);
            purpose = TOKEN;
        } else {
            if (lane == 0u) {
                let inner = share_at(found.left);
                let items = items_of_piece(found.lane, inner.lane, few);
                var left = inner.left;
                var chosen = place;
                for (var i = items.x; i < items.y; i++) {
                    let weight = item_weight(part, i, few, threshold, least);
                    if (weight <= 0.0) { continue; }
                    if (few > 0u) { chosen = taken_places[i]; } else { chosen = i; }
                    if (left < weight) { break; }
                    left -= weight;
                }
                ids[row] = select(i32(chosen), none, nothing);
            }
            return;
        }
        workgroupBarrier();
    }
}
