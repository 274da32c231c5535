// out[m, n] = sum_k x[m, k] * (q[n, k] - 8) * scale[k / group, n], and the epilogue; q in 4 bits, low nibble first.
// One thread per output; any K, group and row length. The route for shapes that are not whole blocks.
#params m: u32, k: u32, row_bytes: u32, group: u32, scale_row: u32
#read x: f32, weight: u32, scales: f32
#include "linear/epilogue.wgsl"

fn product(row: u32, column: u32) -> f32 {
    var total = 0.0;
    for (var start = 0u; start < params.k; start += params.group) {
        var sum = 0.0;
        for (var k = start; k < min(start + params.group, params.k); k++) {
            let byte = column * params.row_bytes + k / 2u;
            let nibble = (weight[byte / 4u] >> (byte % 4u * 8u + (k & 1u) * 4u)) & 15u;
            sum += load_x(row * params.k + k) * (f32(nibble) - 8.0);
        }
        total += sum * load_scales(start / params.group * params.scale_row + column);
    }
    return total;
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.m * params.out_width) { return; }
    let row = i / params.out_width;
    let column = i % params.out_width;
    var up = 0.0;
    #if GATED
    up = product(row, params.n / 2u + column);
    #end
    finish(row, column, product(row, column), up);
}
