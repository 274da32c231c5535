// out[i] = row indices[i] of a table in blocks of TYPE; this part of it has the rows first .. first + rows - 1.
// One thread per eight elements. Indices given by the caller were checked; others are clamped into the table.
#params count: u32, blocks: u32, first: i32, rows: i32, all_rows: i32
#read indices: i32
#write out: vec4<f32>
#const LOOPED = True
#include "blocks/blocks.wgsl"

#main 64
    let i = group_number(group, groups) * 64u + lane;
    let j = i % 4u;
    let b = i / 4u % params.blocks;
    let number = i / 4u / params.blocks;
    if (number >= params.count) { return; }
    let row = clamp(indices[number], 0, params.all_rows - 1) - params.first;
    if (row < 0 || row >= params.rows) { return; }
    let block = open_block(u32(row), b);
    let scale = scale_at(u32(row), b);
    let run = select(scale.run.y, scale.run.x, j < 2u);
    let h = j * 2u;
    store_out(i * 2u, four(block, u32(row), b, h) * quant_unit(h) * run + scale.least);
    store_out(i * 2u + 1u, four(block, u32(row), b, h + 1u) * quant_unit(h + 1u) * run + scale.least);
}
