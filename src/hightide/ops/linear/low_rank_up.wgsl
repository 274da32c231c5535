// y[adapted[i], first + c] += sum_r held[i, r] * up[c, r], in place.
// One thread per (i, c); no row is twice in `adapted`, so that no two threads write the same place.
// Numbers of rows are clamped to those that there are.
#params rows: u32, rank: u32, columns: u32, first: u32, y_width: u32, last_row: u32
#read held: f32, up: f32, adapted: i32
#write y: f32

#main 64
    let n = group_number(group, groups) * 64u + lane;
    if (n >= params.rows * params.columns) { return; }
    let i = n / params.columns;
    let c = n % params.columns;
    var sum = 0.0;
    for (var r = 0u; r < params.rank; r++) { sum += load_held(i * params.rank + r) * load_up(c * params.rank + r); }
    let at = min(u32(max(load_adapted(i), 0)), params.last_row) * params.y_width + params.first + c;
    store_y(at, load_y(at) + sum);
}
