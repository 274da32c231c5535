// out[n, k] = sum_m gradient[m, n] * x[m, k].
// One thread computes 4 x 4 outputs, out of registers.
#params m: u32, n: u32, k: u32
#read gradient: f32, x: f32
#write out: f32

#main 64
    let tile = group_number(group, groups) * 64u + lane;
    let column_tiles = (params.k + 3u) / 4u;
    let column = tile % column_tiles * 4u;
    let row = tile / column_tiles * 4u;
    if (row >= params.n) { return; }
    let steps = vec4<u32>(0u, 1u, 2u, 3u);
    let rows = min(vec4<u32>(row) + steps, vec4<u32>(params.n - 1u));
    let columns = min(vec4<u32>(column) + steps, vec4<u32>(params.k - 1u));
    var total = array<vec4<f32>, 4>();
    for (var m = 0u; m < params.m; m++) {
        let source = vec4<u32>(m * params.k) + columns;
        let b = vec4<f32>(load_x(source.x), load_x(source.y), load_x(source.z), load_x(source.w));
        let at = vec4<u32>(m * params.n) + rows;
        total[0] += load_gradient(at.x) * b;
        total[1] += load_gradient(at.y) * b;
        total[2] += load_gradient(at.z) * b;
        total[3] += load_gradient(at.w) * b;
    }
    for (var r = 0u; r < min(4u, params.n - row); r++) {
        for (var c = 0u; c < min(4u, params.k - column); c++) {
            store_out((row + r) * params.k + column + c, total[r][c]);
        }
    }
}
