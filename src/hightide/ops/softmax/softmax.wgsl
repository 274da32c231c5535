// out = softmax(x) (LOG: its logarithm) along one dim of `size` elements that lie `stride` apart.
// One workgroup per vector; each lane keeps a running maximum and the sum of exp(x - maximum) over
// every LANES-th element, then joins all lanes' pairs itself: one barrier.
#params vectors: u32, size: u32, stride: u32
#read x: f32
#write out: f32

const LANES = ${LANES}u;
const LOWEST = -3.4028234e38;
var<workgroup> lanes: array<vec2<f32>, LANES>;

#main LANES
    let vector = group_number(group, groups);
    if (vector >= params.vectors) { return; }
    let start = vector / params.stride * params.size * params.stride + vector % params.stride;
    var most = LOWEST;
    var sum = 0.0;
    for (var i = lane; i < params.size; i += LANES) {
        let value = load_x(start + i * params.stride);
        let higher = max(most, value);
        sum = sum * exp(most - higher) + exp(value - higher);
        most = higher;
    }
    lanes[lane] = vec2<f32>(most, sum);
    workgroupBarrier();
    for (var i = 0u; i < LANES; i++) {
        most = max(most, lanes[i].x);
    }
    sum = 0.0;
    for (var i = 0u; i < LANES; i++) {
        sum += lanes[i].y * exp(lanes[i].x - most);
    }
    for (var i = lane; i < params.size; i += LANES) {
        let shifted = load_x(start + i * params.stride) - most;
        #if LOG
        store_out(start + i * params.stride, shifted - log(sum));
        #else
        store_out(start + i * params.stride, exp(shifted) / sum);
        #end
    }
}
