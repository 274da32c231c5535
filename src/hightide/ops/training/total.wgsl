// out[0] = the sum of `count` numbers, which may be none.
// One workgroup; lane 0 adds up the lanes' parts.
struct Params { outputs: u32, count: u32 }   // outputs: 1
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

var<workgroup> parts: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < params.count; i += 64u) { sum += x[i]; }
    parts[lane] = sum;
    workgroupBarrier();
    if (lane != 0u || params.outputs == 0u) { return; }
    sum = 0.0;
    for (var i = 0u; i < 64u; i++) { sum += parts[i]; }
    out[0] = sum;
}
