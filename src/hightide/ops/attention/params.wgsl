struct Params {
    kv_heads: u32, group: u32, tokens: u32, row_tiles: u32, rows_per_tile: u32, block: u32,
    depth: u32, value_depth: u32,
    q_head: u32, q_row: u32, k_head: u32, k_row: u32, v_head: u32, v_row: u32, out_head: u32, out_row: u32,
    position: i32, position_slot: i32, added: i32, causal: u32, window: u32, scale: f32, softcap: f32,
    heads_per_batch: u32, mask_batch: u32, mask_head: u32, mask_row: u32, mask_key: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
