// Rows of one sequence, and where its keys are. A file that includes this has the parameter `tokens`: rows, at most.
// PAGED: keys and values lie in pages of 2^page_bits rows. A tile is some rows of q of one sequence: its first row, how
// many, the position of the first, and where in `pages` the sequence's pages begin. Else there is one tile, all of q.
// SPANS (with PAGED): there are no pages, as keys and values are rows of the same step. A tile is some rows of a
// sequence: its first row, how many, the sequence's first row and how many it has.
#params position: live, added: i32 if not PAGED
#params tile_count: u32, q_rows: u32 if PAGED
#params page_bits: u32, page_count: u32, table_size: u32 if PAGED and not SPANS
#read tiles: i32 if PAGED
#read pages: i32 if PAGED and not SPANS

struct Tile {
    first: u32,      // its first row of q
    tokens: u32,
    position: u32,   // of its first row
    keys: u32,
    table: u32,      // where its pages begin, or the rows of its sequence
}
#if SPANS
fn tile_at(n: u32) -> Tile {
    let start = min(u32(load_tiles(n * 4u + 2u)), params.q_rows);
    let keys = min(u32(load_tiles(n * 4u + 3u)), params.q_rows - start);
    let first = clamp(u32(load_tiles(n * 4u)), start, start + keys);
    let tokens = min(u32(load_tiles(n * 4u + 1u)), min(params.tokens, start + keys - first));
    return Tile(first, tokens, first - start, keys, start);
}
fn key_row(tile: Tile, t: u32) -> u32 { return tile.table + t; }
#else
#if PAGED
// Tables may be computed on the GPU: what does not fit is cut, down to a tile without rows or keys.
fn tile_at(n: u32) -> Tile {
    let first = min(u32(load_tiles(n * 4u)), params.q_rows);
    let tokens = min(u32(load_tiles(n * 4u + 1u)), min(params.tokens, params.q_rows - first));
    let table = min(u32(load_tiles(n * 4u + 3u)), params.table_size);
    let most = min(params.table_size - table, params.page_count) << params.page_bits;
    let position = min(u32(load_tiles(n * 4u + 2u)), most);
    return Tile(first, tokens, position, min(position + tokens, most), table);
}
// Where key t of a sequence lies in the pool.
fn key_row(tile: Tile, t: u32) -> u32 {
    let page = min(u32(load_pages(tile.table + (t >> params.page_bits))), params.page_count - 1u);
    return (page << params.page_bits) + (t & ((1u << params.page_bits) - 1u));
}
#else
fn tile_at(n: u32) -> Tile {
    let position = live_int(params.position);
    return Tile(0u, params.tokens, u32(position), u32(position + params.added), 0u);
}
fn key_row(tile: Tile, t: u32) -> u32 { return t; }
#end
#end
