    // Within a kernel of register tiles, of LANES lanes: its tile, the first of its rows, and the first column of a lane.
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    #const TILE_ROWS = ROWS
    #include "linear/tile_rows.wgsl"
    let column = tile / params.row_tiles * ${4 * LANES}u + lane * 4u;
