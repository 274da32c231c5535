// What the products with weights in blocks share: x [m, 32 * blocks], and the tiles that workgroups take one each of.
#params m: u32, blocks: u32, row_tiles: u32, column_tiles: u32
#include "blocks/blocks.wgsl"
#include "linear/epilogue.wgsl"
