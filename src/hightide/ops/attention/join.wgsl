// out[head, s]: what tiles.wgsl found for parts of the context, joined. A part has a row of sums, and the maximum
// and the total of its weights. One workgroup per row (head, s), its lanes over the elements.
// VEC4: elements are vec4<f32>, and depths and strides count those. `block`: the keys of a part.
// PAGED: s is the number of a tile of one row, which says its row of `out` and how many keys it sees.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, tokens: u32, value_depth: u32, out_head: u32, out_row: u32, block: u32
#params position: live, added: i32 if not PAGED
#params q_rows: u32, most_keys: u32 if PAGED
#read sums: $T, stats: vec2<f32>
#read tiles: i32 if PAGED
#write out: $T

const LOWEST = -3.4028234e38;

#main 64
    let row = group_number(group, groups);
    if (row >= params.rows) { return; }
    let s = row % params.tokens;
    #if PAGED
    let keys = min(u32(load_tiles(s * 4u + 2u)), params.most_keys - 1u) + 1u;
    let row_out = u32(load_tiles(s * 4u));
    if (row_out >= params.q_rows || params.most_keys == 0u) { return; }
    #else
    let keys = u32(live_int(params.position) + params.added);
    let row_out = s;
    #end
    let parts = (keys + params.block - 1u) / params.block;
    var most = LOWEST;
    for (var p = 0u; p < parts; p++) { most = max(most, load_stats(p * params.rows + row).x); }
    var total = 0.0;
    for (var p = 0u; p < parts; p++) {
        let of_part = load_stats(p * params.rows + row);
        total += of_part.y * exp(of_part.x - most);
    }
    let at = row / params.tokens * params.out_head + row_out * params.out_row;
    for (var d = lane; d < params.value_depth; d += 64u) {
        var result = $T();
        for (var p = 0u; p < parts; p++) {
            let of_part = p * params.rows + row;
            result += load_sums(of_part * params.value_depth + d) * exp(load_stats(of_part).x - most);
        }
        store_out(at + d, result / total);
    }
}
