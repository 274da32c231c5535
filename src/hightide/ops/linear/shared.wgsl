// out = x @ weight.T and the epilogue, with rows of weights in blocks of 32 (TYPE): a GEMM in shared memory.
// A workgroup is 8 x 8 threads and computes 8 * ROWS rows x 32 columns (of both sides, if gated), a thread ROWS x 4.
// Block by block, it unpacks the weights of its columns and loads x for its rows into shared memory (at most 9 KiB).
#const TILE_ROWS = 8 * ROWS
#read x: vec4<f32>
#const LOOPED = False
#include "linear/block_product.wgsl"

const STRIDE = 9u;   // vec4s per row of shared memory: 8, and one so that rows do not meet in a bank
var<workgroup> weights: array<vec4<f32>, 32u * STRIDE>;
var<workgroup> inputs: array<vec4<f32>, ${TILE_ROWS}u * STRIDE>;

#main 64
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    #include "linear/tile_rows.wgsl"
    let tile_column = tile / params.row_tiles * 32u;
    let column = lane % 8u * 4u;             // of this thread, in the tile
    let row = lane / 8u * ${ROWS}u;
    #for r in ROWS
    var gate$r = vec4<f32>();
    var total$r = vec4<f32>();
    #end
    for (var side = 0u; side < ${SIDES}u; side++) {
        let mine = min(tile_column + lane / 2u + side * (params.n / 2u), params.n - 1u) + matrix_start();   // to unpack
        #include "linear/next_side.wgsl"
        for (var b = 0u; b < params.blocks; b++) {
            let block = open_block(mine, b);
            let scale = scale_at(mine, b);
            let run = select(scale.run.y, scale.run.x, lane % 2u == 0u);
            for (var i = 0u; i < 4u; i++) {
                let h = lane % 2u * 4u + i;
                weights[lane / 2u * STRIDE + h] = four(block, mine, b, h) * (quant_unit(h) * run) + scale.least;
            }
            for (var i = lane; i < ${TILE_ROWS}u * 8u; i += 64u) {
                let from_row = x_row(min(first_row + i / 8u, end_row - 1u));
                inputs[i / 8u * STRIDE + i % 8u] = load_x((from_row * params.blocks + b) * 8u + i % 8u);
            }
            workgroupBarrier();
            for (var h = 0u; h < 8u; h++) {
                #for c in 4
                let w$c = weights[(column + ${c}u) * STRIDE + h];
                #end
                #for r in ROWS
                let a$r = inputs[(row + ${r}u) * STRIDE + h];
                total$r += vec4<f32>(dot(w0, a$r), dot(w1, a$r), dot(w2, a$r), dot(w3, a$r));
                #end
            }
            workgroupBarrier();
        }
    }
    #for r in ROWS
    if (first_row + row + ${r}u < end_row) {
        finish_four(out_row(first_row + row + ${r}u), tile_column + column, gate$r, total$r);
    }
    #end
}
