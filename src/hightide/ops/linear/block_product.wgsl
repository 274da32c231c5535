// What the products with weights in blocks share: x [m, 32 * blocks], and the tiles that workgroups take one each of.
#params m: u32, blocks: u32, row_tiles: u32, column_tiles: u32
#const LOOPED = ROWS >= 8  // in tall_tile.wgsl
#include "blocks/blocks.wgsl"
#include "linear/epilogue.wgsl"
