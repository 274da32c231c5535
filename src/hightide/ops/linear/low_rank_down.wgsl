// held[i, r] = strengths[i, owner of r] * sum_k x[adapted[i], k] * down[r, k].
// One workgroup of LANES lanes per (i, r); each lane takes every LANES-th k, then adds up all lanes' sums itself.
// Numbers of rows and adapters are clamped, so that none is read beyond its tensor.
#const T = "f32"
#params rows: u32, rank: u32, width: u32, last_row: u32, adapters: u32
#read x: f32, down: f32, owners: i32, adapted: i32, strengths: f32
#write held: f32

const LANES = ${LANES}u;
var<workgroup> partial: array<f32, LANES>;

#main LANES
    let n = group_number(group, groups);
    if (n >= params.rows * params.rank) { return; }
    let i = n / params.rank;
    let r = n % params.rank;
    let start = min(u32(max(load_adapted(i), 0)), params.last_row) * params.width;
    var sum = 0.0;
    for (var k = lane; k < params.width; k += LANES) { sum += load_x(start + k) * load_down(r * params.width + k); }
    #const PARTIAL = "partial"
    #include "norm/add_up.wgsl"
    if (lane == 0u) {
        let owner = min(u32(max(load_owners(r), 0)), params.adapters - 1u);
        store_held(n, sum * load_strengths(i * params.adapters + owner));
    }
}
