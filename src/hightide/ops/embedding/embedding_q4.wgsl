// out[i] = row indices[i] of a 4-bit table, less the zero point and times the scale of its group.
// One thread per output element. Rows are bytes of two nibbles (value - 8). LOW_FIRST: the low one comes first.
// ZEROS: there are zero points. Indices given by the caller were checked; others are clamped into the table, of which
// this part has the rows first .. first + rows - 1.
#params count: u32, width: u32, row_bytes: u32, first: i32, rows: i32, all_rows: i32, group: u32, groups_per_row: u32
#read weight: u32, scales: f32, indices: i32
#read zeros: f32 if ZEROS
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count * params.width) { return; }
    let place = clamp(indices[i / params.width], 0, params.all_rows - 1) - params.first;
    if (place < 0 || place >= params.rows) { return; }
    let row = u32(place);
    let column = i % params.width;
    let byte = row * params.row_bytes + column / 2u;
    let high = ((column & 1u) == 1u) == $LOW_FIRST;
    let nibble = (weight[byte / 4u] >> (byte % 4u * 8u + select(0u, 4u, high))) & 15u;
    let at = row * params.groups_per_row + min(column / params.group, params.groups_per_row - 1u);
    var value = f32(nibble) - 8.0;
    #if ZEROS
    value -= load_zeros(at);
    #end
    store_out(i, value * load_scales(at));
}
