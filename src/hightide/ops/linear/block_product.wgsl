// What the products with weights in blocks share: x [m, 32 * blocks], and the tiles that workgroups take one each of.
#params m: u32, blocks: u32, row_tiles: u32, column_tiles: u32
#include "blocks/blocks.wgsl"
#include "linear/epilogue.wgsl"

// The row of x that row `row` of the product is made of, and the row of the output that it becomes.
fn x_row(row: u32) -> u32 { return ${"out_row(row) / params.each" if EXPERTS else "row"}; }
fn out_row(row: u32) -> u32 {
    #if EXPERTS == "grouped"
    return u32(work[1u + params.row_tiles * 3u + row]);
    #elif EXPERTS == "heads"
    return row * params.all_experts + expert;
    #else
    return row;
    #end
}
