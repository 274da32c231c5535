// One step of the sorting network over pairs that are too far apart for a workgroup's memory. One thread per comparison.
// Rows are as long as a power of two, and at least twice `step`: so they can be taken as one.
#params comparisons: u32, step: u32, mirrored: u32
#write pairs: vec2<u32>

#include "sort/order.wgsl"

#main 64
    let n = group_number(group, groups) * 64u + lane;
    if (n >= params.comparisons) { return; }
    let at = compared(n, params.step, params.mirrored == 1u);
    let a = pairs[at.x];
    let b = pairs[at.y];
    if (before(b, a)) {
        pairs[at.x] = b;
        pairs[at.y] = a;
    }
}
