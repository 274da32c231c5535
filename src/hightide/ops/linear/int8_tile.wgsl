// out = x @ weight.T and the epilogue, with rows of 4-bit weights in blocks of 32 (TYPE) and x in 8 bits
// (activations_int8.wgsl): a GEMM in shared memory. A dot product of four is one instruction where the adapter has it.
// A workgroup is 8 x 16 threads and computes 16 * ROWS rows x 64 columns (32 of both sides, if gated). A thread has ROWS rows and
// twice four columns, 32 apart (four of each side). The next block is under way while this one is multiplied.
#const LOOPED = False
#read codes: vec4<u32>, factors: vec2<f32>
#include "linear/block_product.wgsl"

const STRIDE = 17u;   // threads' rows, or fours of columns, per word in shared memory: 16, and one so that they do not meet in a bank
var<workgroup> inputs: array<array<u32, $ROWS>, 8u * STRIDE>;
var<workgroup> weights: array<array<u32, 4>, 8u * STRIDE>;
var<workgroup> input_factors: array<vec2<f32>, ${16 * ROWS}>;
var<workgroup> weight_scales: array<vec2<f32>, 64>;   // scale, minimum

fn four_weights(at: u32) -> vec4<u32> { return vec4<u32>(weights[at][0], weights[at][1], weights[at][2], weights[at][3]); }

#main 128
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let first_row = tile % params.row_tiles * ${16 * ROWS}u;
    let first_column = tile / params.row_tiles * ${64 // SIDES}u;
    let tx = lane % 8u;
    let ty = lane / 8u;
    #for r in ROWS
    var total${r}_0 = vec4<f32>();
    var total${r}_1 = vec4<f32>();
    #end
    // What this thread brings: half of a column's block, and half of a row's.
    let own = lane / 2u;
    let part = lane % 2u;
    let mine = min(first_column + own % ${64 // SIDES}u + own / ${64 // SIDES}u * (params.n / 2u), params.n - 1u);
    let row_start = min(first_row + own, params.m - 1u) * params.blocks;
    var block = open_block(mine, 0u).q;
    var scale = scale_at(mine, 0u);
    var next = load_codes(row_start * 2u + part);
    var factor = load_factors(row_start);
    for (var b = 0u; b < params.blocks; b++) {
        workgroupBarrier();
        let words = select(block.zw, block.xy, part == 0u);
        #for w in 4
        weights[(part * 4u + ${w}u) * STRIDE + own / 4u][own % 4u] = (words[${w // 2}] >> ${w % 2 * 4}u) & 0x0f0f0f0fu;
        #end
        if (own < ${16 * ROWS}u) {
            #for w in 4
            inputs[(part * 4u + ${w}u) * STRIDE + own / ${ROWS}u][own % ${ROWS}u] = next[$w];
            #end
            input_factors[own] = factor;
        }
        weight_scales[own] = vec2<f32>(scale.run.x, scale.least);
        workgroupBarrier();
        let after = min(b + 1u, params.blocks - 1u);
        block = open_block(mine, after).q;
        scale = scale_at(mine, after);
        next = load_codes((row_start + after) * 2u + part);
        factor = load_factors(row_start + after);
        #for r in ROWS
        var sum${r}_0 = vec4<i32>();
        var sum${r}_1 = vec4<i32>();
        #end
        #for w in 8
        {
            let a = inputs[${w}u * STRIDE + ty];
            let w0 = four_weights(${w}u * STRIDE + tx);
            let w1 = four_weights(${w}u * STRIDE + 8u + tx);
            #for r in ROWS
            sum${r}_0 += vec4<i32>(
                dot4I8Packed(w0.x, a[$r]), dot4I8Packed(w0.y, a[$r]), dot4I8Packed(w0.z, a[$r]), dot4I8Packed(w0.w, a[$r]));
            sum${r}_1 += vec4<i32>(
                dot4I8Packed(w1.x, a[$r]), dot4I8Packed(w1.y, a[$r]), dot4I8Packed(w1.z, a[$r]), dot4I8Packed(w1.w, a[$r]));
            #end
        }
        #end
        #for s in 2
        {
            var run = vec4<f32>();
            var least = vec4<f32>();
            #for c in 4
            run[$c] = weight_scales[${32 * s}u + tx * 4u + ${c}u].x;
            least[$c] = weight_scales[${32 * s}u + tx * 4u + ${c}u].y;
            #end
            #for r in ROWS
            let by${r} = input_factors[ty * ${ROWS}u + ${r}u];
            total${r}_$s += vec4<f32>(sum${r}_$s) * by${r}.x * run + by${r}.y * least;
            #end
        }
        #end
    }
    let column = first_column + tx * 4u;
    #for r in ROWS
    if (first_row + ty * ${ROWS}u + ${r}u < params.m) {
        #if SIDES == 2
        finish_four(first_row + ty * ${ROWS}u + ${r}u, column, total${r}_0, total${r}_1);
        #else
        finish_four(first_row + ty * ${ROWS}u + ${r}u, column, vec4<f32>(), total${r}_0);
        finish_four(first_row + ty * ${ROWS}u + ${r}u, column + 32u, vec4<f32>(), total${r}_1);
        #end
    }
    #end
}
