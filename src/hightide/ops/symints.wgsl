// Prepended to kernels that read SymInts: an integer that the plan decides (slot < 0), or that is read
// from the session's SymInts.
@group(0) @binding(1) var<uniform> symints: array<vec4<i32>, 1024>;

fn live_int(value: i32, slot: i32) -> i32 {
    if (slot < 0) { return value; }
    return symints[slot >> 2u][slot & 3];
}

