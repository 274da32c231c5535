    // Within a kernel of register tiles, of LANES lanes: its tile, the first of its rows, and the first column of a lane.
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let row = tile % params.row_tiles * ${ROWS}u;   // tiles that share weights follow each other
    let column = tile / params.row_tiles * ${4 * LANES}u + lane * 4u;
