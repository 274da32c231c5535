// Part of kernels with a `live` parameter (value, slot): an integer that the plan decides (slot < 0), or that is read
// from the session's SymInts.
@group(0) @binding(1) var<uniform> symints: array<vec4<i32>, 1024>;

fn live_int(number: vec2<i32>) -> i32 {
    if (number.y < 0) { return number.x; }
    return symints[number.y >> 2u][number.y & 3];
}
