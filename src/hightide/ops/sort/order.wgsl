// The order of pairs (key, index), and which two of them a step of the sorting network compares.
fn before(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x < b.x || (a.x == b.x && a.y < b.y); }

// The n-th comparison of a step: of pairs `step` apart, a power of two, or mirrored in blocks of twice that.
fn compared(n: u32, step: u32, mirrored: bool) -> vec2<u32> {
    let a = (n & ~(step - 1u)) * 2u + (n & (step - 1u));
    return vec2<u32>(a, select(a + step, a ^ (2u * step - 1u), mirrored));
}
