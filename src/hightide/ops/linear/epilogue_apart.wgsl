// out = the epilogue of a product [rows, n] in memory: for products that no kernel has it for.
// One thread per output. product_row: from row to row of the product, 0 if it is one row, for all.
#params rows: u32, product_row: u32
#read product: f32
#include "linear/epilogue.wgsl"

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.rows * params.out_width) { return; }
    let row = i / params.out_width;
    let column = i % params.out_width;
    let at = row * params.product_row + column;
    finish(row, column, load_product(at), load_product(at + params.n - params.out_width));
}
