// out[m, n] = sum_k x[m, k] * weight[n, k], and the epilogue; rows of both are contiguous, k4 whole vec4s.
// One thread computes ROWS rows x 4 columns (of both sides, if gated), out of registers.
#params m: u32, k4: u32, row_tiles: u32, column_tiles: u32
#read x: vec4<f32>, weight: vec4<f32>
#include "linear/epilogue.wgsl"

const LANES = ${LANES}u;

#main LANES
    let tile = group_number(group, groups) * LANES + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * ${ROWS}u;
    #for r in ROWS
    let row$r = min(row + ${r}u, params.m - 1u) * params.k4;
    var gate$r = vec4<f32>();
    var total$r = vec4<f32>();
    #end
    for (var side = 0u; side < ${SIDES}u; side++) {
        let columns = four_columns(column, side) * params.k4;
        #include "linear/next_side.wgsl"
        for (var k = 0u; k < params.k4; k++) {
            #for c in 4
            let w$c = load_weight(columns[$c] + k);
            #end
            #for r in ROWS
            let a$r = load_x(row$r + k);
            total$r += vec4<f32>(dot(w0, a$r), dot(w1, a$r), dot(w2, a$r), dot(w3, a$r));
            #end
        }
    }
    #for r in ROWS
    if (row + ${r}u < params.m) { finish_four(row + ${r}u, column, gate$r, total$r); }
    #end
}
