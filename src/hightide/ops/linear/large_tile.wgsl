// out = x @ weight.T and the epilogue, with rows of weights in blocks of 32 (TYPE): a GEMM in shared memory, for many rows.
// A workgroup is 8 x 16 threads and computes 64 rows x 64 columns (32 of both sides, if gated). A thread has four rows and
// twice four columns, 32 apart (four of each side): neighbours read neighbours in shared memory.
// Half a block at a time; the next half is under way while this one is multiplied.
#const LOOPED = False
#read x: vec4<f32>
#include "linear/block_product.wgsl"

const STRIDE = 17u;   // fours per element of K in shared memory: 16, and one so that they do not meet in a bank
var<workgroup> inputs: array<array<f32, 4>, 16u * STRIDE>;    // of four rows
var<workgroup> weights: array<array<f32, 4>, 16u * STRIDE>;   // of four columns

fn four_inputs(at: u32) -> vec4<f32> { return vec4<f32>(inputs[at][0], inputs[at][1], inputs[at][2], inputs[at][3]); }
fn four_weights(at: u32) -> vec4<f32> { return vec4<f32>(weights[at][0], weights[at][1], weights[at][2], weights[at][3]); }

#main 128
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    #const TILE_ROWS = 64
    #include "linear/tile_rows.wgsl"
    let tile_column = tile / params.row_tiles * ${64 // SIDES}u;
    let tx = lane % 8u;
    let ty = lane / 8u;
    #for r in 4
    var total${r}_0 = vec4<f32>();
    var total${r}_1 = vec4<f32>();
    #end
    // What this thread brings: two chunks of a column's half block, and a vec4 of two rows of x.
    let own = lane / 2u;
    let chunk = lane % 2u * 2u;
    let column_of_own = tile_column + own % ${64 // SIDES}u + own / ${64 // SIDES}u * (params.n / 2u);
    let mine = min(column_of_own, params.n - 1u) + matrix_start();
    #for r in 2
    let from$r = x_row(min(first_row + lane / 4u + ${32 * r}u, end_row - 1u)) * params.blocks * 8u + lane % 4u;
    var next$r = load_x(from$r);
    #end
    var block = open_block(mine, 0u);
    var scale = scale_at(mine, 0u);
    for (var step = 0u; step < params.blocks * 2u; step++) {
        let h = step % 2u * 4u + chunk;
        let run = select(scale.run.y, scale.run.x, step % 2u == 0u);
        #for c in 2
        let weight$c = four(block, mine, step / 2u, h + ${c}u) * (quant_unit(h + ${c}u) * run) + scale.least;
        #end
        workgroupBarrier();
        #for i in 4
        #for r in 2
        inputs[(lane % 4u * 4u + ${i}u) * STRIDE + ${8 * r}u + lane / 16u][lane / 4u % 4u] = next$r[$i];
        #end
        #for c in 2
        weights[((chunk + ${c}u) * 4u + ${i}u) * STRIDE + own / 4u][own % 4u] = weight$c[$i];
        #end
        #end
        workgroupBarrier();
        let after = min(step + 1u, params.blocks * 2u - 1u);
        #for r in 2
        next$r = load_x(from$r + after * 4u);
        #end
        block = open_block(mine, after / 2u);
        scale = scale_at(mine, after / 2u);
        for (var k = 0u; k < 16u; k += 4u) {
            #for j in 4
            {
                let a = four_inputs((k + ${j}u) * STRIDE + ty);
                let w0 = four_weights((k + ${j}u) * STRIDE + tx);
                let w1 = four_weights((k + ${j}u) * STRIDE + 8u + tx);
                #for r in 4
                total${r}_0 += a[$r] * w0;
                total${r}_1 += a[$r] * w1;
                #end
            }
            #end
        }
    }
    let column = tile_column + tx * 4u;
    #for r in 4
    let row$r = first_row + ty * 4u + ${r}u;
    if (row$r < end_row) {
        #if SIDES == 2
        finish_four(out_row(row$r), column, total${r}_0, total${r}_1);
        #else
        finish_four(out_row(row$r), column, vec4<f32>(), total${r}_0);
        finish_four(out_row(row$r), column + 32u, vec4<f32>(), total${r}_1);
        #end
    }
    #end
}
