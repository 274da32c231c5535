// Complex products of the pairs of x [B, N, C] and a table [N, C] that is the same for each of B.
// One thread per pair.
#params pairs: u32, table_pairs: u32
#read x: vec2<f32>, table: vec2<f32>
#write out: vec2<f32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.pairs) { return; }
    let pair = load_x(i);
    let turn = load_table(i % params.table_pairs);
    store_out(i, vec2<f32>(pair.x * turn.x - pair.y * turn.y, pair.x * turn.y + pair.y * turn.x));
}
