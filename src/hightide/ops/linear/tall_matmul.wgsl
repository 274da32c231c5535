// As matmul.wgsl, with K and N whole fours and y [K, N] row by row: k4 and n4 count these.
// A workgroup is 8 lanes; a lane computes ROWS rows x 4 columns, out of registers. A load of x serves 8 rows: each lane loads
// one and hands it on. Assumes subgroups of at least 8 lanes. BIAS: there is one.
#params batches: u32, m: u32, n4: u32, k4: u32, row_tiles: u32, column_tiles: u32
#params bias_m: u32, bias_n: u32   // strides
#params alpha: f32, beta: f32
#read x: vec4<f32>, y: vec4<f32>
#read bias: f32 if BIAS
#write out: vec4<f32>
#const LOADS = (ROWS + 7) // 8

#main 8
    let tile = group_number(group, groups);
    let tiles = params.row_tiles * params.column_tiles;
    if (tile >= params.batches * tiles) { return; }
    let batch = tile / tiles;
    let row = tile % tiles % params.row_tiles * ${ROWS}u;   // tiles that share columns follow each other
    let column = tile % tiles / params.row_tiles * 8u + lane;
    let start = batch * params.k4 * 4u * params.n4 + min(column, params.n4 - 1u);
    #for f in LOADS
    let rows$f = (batch * params.m + min(row + ${8 * f}u + lane, params.m - 1u)) * params.k4;
    #end
    #for r in ROWS
    var total$r = vec4<f32>();
    #end
    for (var k = 0u; k < params.k4; k++) {
        #for f in LOADS
        let x$f = load_x(rows$f + k);
        #end
        #for i in 4
        let y$i = load_y(start + (k * 4u + ${i}u) * params.n4);
        #end
        #for r in ROWS
        #for i in 4
        let a${r}_$i = subgroupBroadcast(x${r // 8}[$i], ${r % 8}u);
        #end
        total$r += (y0 * a${r}_0 + y1 * a${r}_1) + (y2 * a${r}_2 + y3 * a${r}_3);
        #end
    }
    if (column >= params.n4) { return; }
    for (var m = row; m < min(row + ${ROWS}u, params.m); m++) {   // one row's code for all of them
        var value = params.alpha * total0;
        #if BIAS
        let at = m * params.bias_m + column * 4u * params.bias_n;
        value += params.beta * vec4<f32>(load_bias(at), load_bias(at + params.bias_n),
                                         load_bias(at + 2u * params.bias_n), load_bias(at + 3u * params.bias_n));
        #end
        store_out((batch * params.m + m) * params.n4 + column, value);
        #for r in ROWS - 1
        total$r = total${r + 1};
        #end
    }
}
