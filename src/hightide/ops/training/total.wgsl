// out[0] = the sum of `count` numbers, which may be none.
// One workgroup; lane 0 adds up the lanes' parts.
#params outputs: u32, count: u32   // outputs: 1
#read x: f32
#write out: f32

var<workgroup> parts: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < params.count; i += 64u) { sum += load_x(i); }
    parts[lane] = sum;
    workgroupBarrier();
    if (lane != 0u || params.outputs == 0u) { return; }
    sum = 0.0;
    for (var i = 0u; i < 64u; i++) { sum += parts[i]; }
    store_out(0u, sum);
}
