// out[i] = row indices[i] of a table of codes, less the zero point and times the scale of its group.
// One thread per output element. CODE: how codes lie in their bytes, two to a byte as value + 8 ("low_first" or
// "high_first", which nibble), four as value + 2 ("two_bits"), or one ("signed" or "unsigned").
// ZEROS: there are zero points. Indices given by the caller were checked; others are clamped into the table, of which
// this part has the rows first .. first + rows - 1.
#const NIBBLES = CODE in ("low_first", "high_first")
#const PER_BYTE = 2 if NIBBLES else 4 if CODE == "two_bits" else 1
#params count: u32, width: u32, row_bytes: u32, first: i32, rows: i32, all_rows: i32, group: u32, groups_per_row: u32
#read weight: u32, scales: f32, indices: i32
#read zeros: f32 if ZEROS
#write out: f32

fn code(row: u32, column: u32) -> f32 {
    let byte = row * params.row_bytes + column / ${PER_BYTE}u;
    let shift = byte % 4u * 8u;
    #if NIBBLES
    let high = ((column & 1u) == 1u) == ${"true" if CODE == "low_first" else "false"};
    return f32((weight[byte / 4u] >> (shift + select(0u, 4u, high))) & 15u) - 8.0;
    #elif CODE == "two_bits"
    return f32((weight[byte / 4u] >> (shift + (column & 3u) * 2u)) & 3u) - 2.0;
    #elif CODE == "signed"
    return f32(extractBits(bitcast<i32>(weight[byte / 4u]), shift, 8u));
    #else
    return f32((weight[byte / 4u] >> shift) & 255u);
    #end
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count * params.width) { return; }
    let place = clamp(indices[i / params.width], 0, params.all_rows - 1) - params.first;
    if (place < 0 || place >= params.rows) { return; }
    let row = u32(place);
    let column = i % params.width;
    let at = row * params.groups_per_row + min(column / params.group, params.groups_per_row - 1u);
    var value = code(row, column);
    #if ZEROS
    value -= load_zeros(at);
    #end
    store_out(i, value * load_scales(at));
}
