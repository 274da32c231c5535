// out[b, m, n] = alpha * sum_k x[b, m, k] * y[b, k, n] (+ beta * bias[m, n]), y and bias at any strides.
// One thread computes 4 rows x 4 columns, out of registers. BIAS: there is one.
#params batches: u32, m: u32, n: u32, k: u32, row_tiles: u32, column_tiles: u32
#params y_batch: u32, y_k: u32, y_n: u32, bias_m: u32, bias_n: u32   // strides
#params alpha: f32, beta: f32
#read x: f32, y: f32
#read bias: f32 if BIAS
#write out: f32

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    let tiles = params.row_tiles * params.column_tiles;
    if (tile >= params.batches * tiles) { return; }
    let batch = tile / tiles;
    let column = tile % params.column_tiles * 4u;
    let row = tile % tiles / params.column_tiles * 4u;
    let steps = vec4<u32>(0u, 1u, 2u, 3u);
    let rows = batch * params.m * params.k + min(vec4<u32>(row) + steps, vec4<u32>(params.m - 1u)) * params.k;
    let columns = batch * params.y_batch + min(vec4<u32>(column) + steps, vec4<u32>(params.n - 1u)) * params.y_n;
    var total = array<vec4<f32>, 4>();
    for (var k = 0u; k < params.k; k++) {
        let at = columns + k * params.y_k;
        let b = vec4<f32>(load_y(at.x), load_y(at.y), load_y(at.z), load_y(at.w));
        #for r in 4
        total[$r] += load_x(rows[$r] + k) * b;
        #end
    }
    for (var r = 0u; r < min(4u, params.m - row); r++) {
        for (var c = 0u; c < min(4u, params.n - column); c++) {
            var value = params.alpha * total[r][c];
            #if BIAS
            value += params.beta * load_bias((row + r) * params.bias_m + (column + c) * params.bias_n);
            #end
            store_out((batch * params.m + row + r) * params.n + column + c, value);
        }
    }
}
