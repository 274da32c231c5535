// One token id per row of logits: the largest (temperature 0), or one drawn from the softmax at a temperature,
// after top-k, top-p and min-p. One workgroup per row; each lane holds a contiguous run of the vocabulary, in words
// of 32 tokens. Nothing is sorted: thresholds are found by bisection over the bits of logits, mostly of a few that are
// taken aside first.
// ROOT: of the number of lanes. AHEAD: how many vec4s are loaded at once. SHARED: those few, and what the lanes tell each other,
// are in shared memory. On software adapters they are not: browsers have it set to zero, for which SwiftShader compiles
// an instruction per number.
// A row with NaN or +infinity, or with nothing but -infinity, gives -1. -infinity rules a token out.
// MASKED: so does a 0 in the row's mask, if it has one; a mask that leaves nothing gives -2. Words of 0 are skipped.
#const T = "vec4<f32>" if VEC4 else "f32"
#const BARRIER = "workgroupBarrier" if SHARED else "storageBarrier"
#params rows: u32, width: u32, words: u32, run: u32, settings_row: u32   // words of 32; run: words of a lane; 0 or 5
#params root: u32                         // ROOT, where a compiler that knew it would write a loop out, and take twice as long
#params mask_rows: u32 if MASKED
#read logits: $T, settings: f32           // temperature, top-k, top-p, min-p, draw in 0..1
#read masks: i32 if MASKED                // a bit per token
#read masked: i32 if MASKED               // the number of a row's mask, or -1
#write ids: i32
#write taken: vec2<u32> if not SHARED     // ROW_TAKEN for each row

const ROOT = ${ROOT}u;
const LANES = ROOT * ROOT;
const LOWEST = -3.4028234e38;
const RULED_OUT = 0xff800000u;  // the bits of -infinity
const FINITE = 0x00800000u;     // ordered(-infinity) + 1
const NOWHERE = 0xffffffffu;    // the place of a lane that found what is not a number; the mask of a row without one
const MOST_TAKEN = ${MOST_TAKEN}u;
const LIKELY = 256.0;           // tokens that mostly have top-p of all weight
// `taken` has the bits of logits and their tokens; then, for each lane, the bits of its largest logit and the token, in
// the loop its numbers, then the sum of those before it in its group; then the sums of the groups.
const SUMS = LANES;
const ROW_TAKEN = MOST_TAKEN + LANES + ROOT;
#if SHARED
var<workgroup> taken: array<vec2<u32>, ROW_TAKEN>;
#end

// What the sum over the lanes is for. A search takes a turn for each bit of its threshold.
const BOUND = 0u;   // search: a threshold that enough logits reach for sure
const TAKE = 1u;    // the logits that reach it
const TOP_K = 2u;   // search: the largest threshold that at least k logits reach
const WEIGH = 3u;   // all that top-k left
const TOP_P = 4u;   // search: the largest threshold above which there is at least p of that
const DRAW = 5u;    // the lane in whose share the draw falls
const PIECE = 6u;   // the piece of that lane's items
const TOKEN = 7u;   // the item of that piece

// The part of a row that a lane holds.
struct Part {
    logits: u32,      // where the row begins
    mask: u32,        // where its mask does
    taken: u32,       // where what is taken of it does
    first: u32,       // word
    end: u32,
    most: f32,        // of the row's allowed logits
    temperature: f32,
}

// What a lane told the others, or from SUMS on the sum of a group.
fn told(part: Part, i: u32) -> vec2<f32> { return bitcast<vec2<f32>>(taken[part.taken + MOST_TAKEN + i]); }
fn tell(part: Part, i: u32, value: vec2<f32>) { taken[part.taken + MOST_TAKEN + i] = bitcast<vec2<u32>>(value); }

// The lane in whose share a part of the sum over all lanes ends, and what of that part is left there.
struct Share { lane: u32, left: f32 }
fn share_at(part: Part, part_of_sum: f32, sum: f32) -> Share {
    var group = 0u;
    var before = 0.0;
    var running = 0.0;
    for (var i = 0u; i < params.root; i++) {
        if (running <= part_of_sum && running < sum) {
            group = i;
            before = running;
        }
        running += told(part, SUMS + i).y;
    }
    var found = Share(group * ROOT, part_of_sum - before);
    for (var i = group * ROOT; i < group * ROOT + params.root; i++) {
        let begins = told(part, i).y;
        let left = part_of_sum - before - begins;
        if (left >= 0.0 && begins < told(part, SUMS + group).y) { found = Share(i, left); }
    }
    return found;
}

// What that of ROOT lanes, `step` apart, told that found the largest value first; a place that is NOWHERE comes before all.
fn first_largest(part: Part, first: u32, step: u32) -> vec2<u32> {
    let told = part.taken + MOST_TAKEN + first;
    var best = taken[told];
    for (var l = step; l < params.root * step; l += step) {
        let here = taken[told + l];
        let value = bitcast<f32>(here.x);
        let most = bitcast<f32>(best.x);
        let larger = best.y >= params.width || value > most || (value == most && here.y < best.y);
        if (best.y != NOWHERE && (here.y == NOWHERE || (here.y < params.width && larger))) { best = here; }
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

// The items of a lane: four of the `few` that were taken, or tokens if that is 0.
fn first_item(lane: u32, few: u32) -> u32 {
    return select(min(lane * params.run * 32u, params.width), min(lane * 4u, few), few > 0u);
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
    var is_allowed = vec4<bool>(true);
    var value = vec4<f32>();
    if (few > 0u) {
        value = vec4<f32>(bitcast<f32>(taken[part.taken + item].x));
    } else {
        is_allowed = are_set(allowed(part, item / 32u), item / 4u % 8u);
        value = four(part, item / 4u * 4u);
    }
    return weights_of(part, value, is_allowed, threshold, least)[item % 4u];
}

// Four logits of a word, or those of a lane that were taken.
fn four_of(part: Part, word: u32, j: u32, lane: u32, few: u32) -> vec4<f32> {
    if (few == 0u) { return four(part, word * 32u + j * 4u); }
    let at = part.taken + lane * 4u;
    return bitcast<vec4<f32>>(vec4<u32>(taken[at].x, taken[at + 1u].x, taken[at + 2u].x, taken[at + 3u].x));
}

// How many logits of this lane reach a threshold, and their weight.
fn measure(part: Part, lane: u32, few: u32, threshold: u32, least: f32) -> vec2<f32> {
    var count = vec4<f32>();
    var weight = vec4<f32>();
    let items = first_item(lane + 1u, few) - first_item(lane, few);
    let words = select(part.end - part.first, min(items, 1u), few > 0u);
    for (var n = 0u; n < words; n++) {
        var bits = (1u << items) - 1u;
        if (few == 0u) { bits = allowed(part, part.first + n); }
        for (var j = 0u; j < select(fours_of(bits), 1u, few > 0u); j += ${AHEAD}u) {
            #for a in AHEAD
            let value$a = four_of(part, part.first + n, j + ${a}u, lane, few);
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
    #if not SHARED
    part.taken = row * ROW_TAKEN;
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
    let own = part.taken + MOST_TAKEN + lane;
    taken[own] = vec2<u32>(bitcast<u32>(most), select(place, NOWHERE, any(odds)));
    $BARRIER();
    if (lane < ROOT) { taken[own + lane * (ROOT - 1u)] = first_largest(part, lane * ROOT, 1u); }
    $BARRIER();
    let best = first_largest(part, 0u, ROOT);
    part.most = bitcast<f32>(best.x);
    place = best.y;
    let none = select(-1, -2, place != NOWHERE && part.mask != NOWHERE);
    let nothing = place >= params.width || bitcast<u32>(part.most) == RULED_OUT;
    let given = row * params.settings_row;
    let temperature = load_settings(given + 0u);
    if (temperature <= 0.0) {
        if (lane == 0u) { ids[row] = select(i32(place), none, nothing); }
        return;
    }
    $BARRIER();

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
    var holder = 0u;         // the lane that has the token
    var found = Share();     // where in a sum the draw falls
    var chosen = NOWHERE;    // item
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
        } else if (purpose == PIECE || purpose == TOKEN) {
            let items = items_of_piece(holder, select(lane, found.lane, purpose == TOKEN), few);
            for (var i = items.x; i < items.y; i++) {
                let weight = max(0.0, item_weight(part, i, few, threshold, least));
                if (weight > 0.0 && mine.y <= found.left) { chosen = i; }
                mine.y += weight;
            }
        } else {
            let reaching = select(threshold, max(threshold, tried), purpose == TOP_K || purpose == TOP_P);
            let items = select(few, 0u, purpose == WEIGH && !has_k);
            mine = measure(part, lane, items, reaching, select(0.0, least, purpose == DRAW));
        }
        tell(part, lane, mine);
        $BARRIER();
        if (lane < ROOT) {
            var sum = vec2<f32>();
            for (var i = lane * ROOT; i < lane * ROOT + params.root; i++) {
                let before = sum;
                sum += told(part, i);
                tell(part, i, before);
            }
            tell(part, SUMS + lane, sum);
        }
        $BARRIER();
        var sum = vec2<f32>();
        for (var i = 0u; i < params.root; i++) { sum += told(part, SUMS + i); }
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
                var before = told(part, lane).x;
                for (var i = 0u; i < lane / ROOT; i++) { before += told(part, SUMS + i).x; }
                var next = u32(before);
                let end = next + u32(mine.x);
                for (var word = part.first; word < part.end && next < end; word++) {
                    let bits = allowed(part, word);
                    for (var j = 0u; j < fours_of(bits); j++) {
                        let value = four(part, word * 32u + j * 4u);
                        let reach = are_set(bits, j) & (ordered(value) >= vec4<u32>(threshold));
                        for (var c = 0u; c < 4u; c++) {
                            if (reach[c]) {
                                taken[part.taken + next] = vec2<u32>(bitcast<u32>(value[c]), word * 32u + j * 4u + c);
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
        } else if (purpose == TOKEN) {
            if (lane == 0u) {
                if (chosen == NOWHERE) {
                    chosen = place;
                } else if (few > 0u) {
                    chosen = taken[part.taken + chosen].y;
                }
                ids[row] = select(i32(chosen), none, nothing);
            }
            return;
        } else {
            found = share_at(part, select(found.left, load_settings(given + 4u) * sum.y, purpose == DRAW), sum.y);
            holder = select(holder, found.lane, purpose == DRAW);
            purpose += 1u;
        }
        $BARRIER();
    }
}
