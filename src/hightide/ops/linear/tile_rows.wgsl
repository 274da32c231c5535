    // Within a kernel of tiles of TILE_ROWS rows: the first row of this tile, and the end of those that it may have.
    #if EXPERTS == "gathered"
    let first_row = tile % params.row_tiles;
    let end_row = first_row + 1u;
    let of_expert = u32(clamp(chosen[first_row], 0, i32(params.all_experts) - 1));
    #elif EXPERTS == "grouped"
    if (tile % params.row_tiles >= u32(work[0])) { return; }
    let listed = 1u + tile % params.row_tiles * 3u;
    let of_expert = u32(work[listed]);
    let first_row = u32(work[listed + 1u]);
    let end_row = u32(work[listed + 2u]);
    #elif EXPERTS == "heads"
    let of_expert = tile % params.row_tiles % params.all_experts;
    let first_row = tile % params.row_tiles / params.all_experts * ${TILE_ROWS}u;   // of the rows of this head
    let end_row = params.m / params.all_experts;
    #else
    let first_row = tile % params.row_tiles * ${TILE_ROWS}u;   // tiles that share weights follow each other
    let end_row = params.m;
    #end
    #if EXPERTS
    if (of_expert - params.first_expert >= params.part_experts) { return; }
    expert = of_expert;
    #end
