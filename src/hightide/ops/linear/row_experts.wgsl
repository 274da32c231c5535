// Rows that are multiplied with a matrix of their expert each. each: rows that share a row of x.
// EXPERTS: "gathered": the rows as they come, one to a tile, with their experts in `chosen`; "grouped": the tiles that
// experts/group.wgsl makes of rows that have an expert in common; "heads": the experts take turns from row to row.
// This weight has the matrices of part_experts experts from first_expert on; the tiles of others are not its own.
#params each: u32, all_experts: u32, first_expert: u32, part_experts: u32
#read chosen: i32 if EXPERTS == "gathered"
#read work: i32 if EXPERTS == "grouped"
var<private> expert: u32;   // of this tile
