// scores[row] = softmax(scores[row]) over the keys that the row may see, in place.
// One workgroup per row (head, s); each lane keeps a running maximum and sum over every 64th key, then
// joins all lanes' pairs itself: one barrier.
struct Params {
    rows: u32, tokens: u32, first: u32, score_row: u32,
    position: i32, position_slot: i32, added: i32, causal: u32, window: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> scores: array<f32>;

$VISIBLE
const LANES = 64u;
const LOWEST = -3.4028234e38;
var<workgroup> lanes: array<vec2<f32>, LANES>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let position = live_int(params.position, params.position_slot);
    let p = u32(position) + params.first + row % params.tokens;
    let begin = first_key(p) + lane;
    let end = end_key(p, u32(position + params.added));
    let start = row * params.score_row;
    var most = LOWEST;
    var sum = 0.0;
    for (var t = begin; t < end; t += LANES) {
        let score = scores[start + t];
        let higher = max(most, score);
        sum = sum * exp(most - higher) + exp(score - higher);
        most = higher;
    }
    lanes[lane] = vec2<f32>(most, sum);
    workgroupBarrier();
    for (var i = 0u; i < LANES; i++) { most = max(most, lanes[i].x); }
    sum = 0.0;
    for (var i = 0u; i < LANES; i++) { sum += lanes[i].y * exp(lanes[i].x - most); }
    for (var t = begin; t < end; t += LANES) {
        scores[start + t] = exp(scores[start + t] - most) / sum;
    }
}
