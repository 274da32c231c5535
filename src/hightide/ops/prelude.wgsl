// Prepended to every kernel: the SymInts of the session, and the workgroup's number in a folded grid.
@group(0) @binding(1) var<uniform> symints: array<vec4<i32>, 1024>;

// An integer that the plan decides (slot < 0) or that is read from the session's SymInts.
fn live_int(value: i32, slot: i32) -> i32 {
    if (slot < 0) { return value; }
    return symints[slot >> 2][slot & 3];
}

fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.y * groups.x;
}
