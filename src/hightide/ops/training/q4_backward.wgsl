// out[m, k] = sum_n gradient[m, n] * (q[n, k] - 8) * scale[k / group, n], q in 4 bits, low nibble first.
// One thread, of LANES in a workgroup, computes ROWS rows x 8 columns, four bytes of each weight row.
// Any group and row length; WHOLE_WORDS: groups are multiples of 8 columns, so that a word has one scale.
#params m: u32, n: u32, k: u32, group: u32, scale_row: u32
#read gradient: f32, weight: u32, scales: f32
#write out: f32

const ROWS = $ROWS;

fn four_bytes(at: u32) -> u32 {
    let shift = at % 4u * 8u;
    if (shift == 0u) { return weight[at / 4u]; }
    return (weight[at / 4u] >> shift) | (weight[at / 4u + 1u] << (32u - shift));
}
fn scale_at(column: u32, n: u32) -> f32 {
    return load_scales(min(column, params.k - 1u) / params.group * params.scale_row + n);
}
// Of columns 0, 2, 4 and 6 from `column` on.
fn scales_at(column: u32, n: u32) -> vec4<f32> {
    #if WHOLE_WORDS
    return vec4<f32>(scale_at(column, n));
    #else
    return vec4<f32>(scale_at(column, n), scale_at(column + 2u, n), scale_at(column + 4u, n), scale_at(column + 6u, n));
    #end
}

#main $LANES
    let tile = group_number(group, groups) * ${LANES}u + lane;
    let column_tiles = (params.k + 7u) / 8u;
    let column = tile % column_tiles * 8u;
    let row = tile / column_tiles * u32(ROWS);
    if (row >= params.m) { return; }
    var even: array<vec4<f32>, ROWS>;   // columns 0, 2, 4, 6
    var odd: array<vec4<f32>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        even[r] = vec4<f32>();
        odd[r] = vec4<f32>();
    }
    for (var n = 0u; n < params.n; n++) {
        let word = four_bytes(n * (params.k / 2u) + column / 2u);
        let low = (vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)) - 8.0) * scales_at(column, n);
        let high = (vec4<f32>(unpack4xU8((word >> 4u) & 0x0f0f0f0fu)) - 8.0) * scales_at(column + 1u, n);
        for (var r = 0; r < ROWS; r++) {
            let g = load_gradient(min(row + u32(r), params.m - 1u) * params.n + n);
            even[r] += g * low;
            odd[r] += g * high;
        }
    }
    for (var r = 0; r < ROWS; r++) {
        if (row + u32(r) < params.m) {
            for (var c = 0u; c < min(8u, params.k - column); c++) {
                let value = select(even[r][c / 2u], odd[r][c / 2u], c % 2u == 1u);
                store_out((row + u32(r)) * params.k + column + c, value);
            }
        }
    }
}
