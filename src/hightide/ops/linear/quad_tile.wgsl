// out = x @ weight.T and the epilogue, with rows of weights in blocks of 32 (TYPE); out of registers, with no barrier.
// A workgroup is a quad: a lane computes ROWS rows x 4 columns (of both sides, if gated). It loads a quarter of a block of x,
// which goes round by swaps: at turn t a lane has chunks 2t and 2t + 1 of the lane `lane ^ t`, and its weights are turned
// likewise. On a CPU of four lanes a load or a broadcast costs several times what a swap does.
#read x: vec4<f32>
#const LOOPED = False
#include "linear/block_product.wgsl"
#include "blocks/turned.wgsl"
#const LANES = 4
// Where both chunks of a pair are nibbles of one word, tiles of some rows take them in a loop that shifts the word: it takes
// SwiftShader two thirds of the time to compile, which is most of a short prompt. Of 16 rows the loop takes a third longer.
#const SHIFTED = PAIRS_IN == "word" and ROWS in (4, 8)
#const CHUNK = " + chunk" if SHIFTED else ""
#main $LANES
    #include "linear/tile_place.wgsl"
    #for r in ROWS
    let row$r = x_row(min(first_row + ${r}u, end_row - 1u)) * params.blocks * 8u + lane * 2u;
    #end
    #include "linear/each_block.wgsl"
            #for c in 4
            var turned$c = turned(block$c, lane);
            #end
            #for r in ROWS
            var x_sum$r = 0.0;
            #for e in RUNS
            var sum${r}_$e = vec4<f32>();
            #end
            #end
            #if SHIFTED
            for (var chunk = 0u; chunk < 2u; chunk++) {
            #end
            #for g in 1 if SHIFTED else 2
            {
                #for r in ROWS
                let mine$r = load_x(row$r + b * 8u + ${g}u$CHUNK);
                x_sum$r += dot(mine$r, vec4<f32>(1.0));
                let x${r}_0 = mine$r * quant_unit(${g}u);
                let x${r}_1 = quadSwapX(x${r}_0);
                let x${r}_2 = quadSwapY(x${r}_0);
                let x${r}_3 = quadSwapX(x${r}_2);
                #end
                #for t in 4
                {
                    #for c in 4
                    let w$c = four(turned$c, columns[$c], b, ${2 * t + g}u$TURN);
                    #end
                    #for i in 4
                    let w_$i = vec4<f32>(w0[$i], w1[$i], w2[$i], w3[$i]);
                    #end
                    #for r in ROWS
                    sum${r}_${t * RUNS // 4} += (w_0 * x${r}_$t.x + w_1 * x${r}_$t.y) + (w_2 * x${r}_$t.z + w_3 * x${r}_$t.w);
                    #end
                }
                #end
            }
            #end
            #if SHIFTED
                #for c in 4
                turned$c.q >>= vec4<u32>(16u);
                #end
            }
            #end
            #for r in ROWS
            #if RUNS == 2
            total$r += sum${r}_0 * select(scales.run[0], scales.run[1], lane >= 2u);
            total$r += sum${r}_1 * select(scales.run[1], scales.run[0], lane >= 2u);
            #else
            total$r += sum${r}_0 * scales.run[0];
            #end
            #if MINIMUM
            x_sum$r += quadSwapX(x_sum$r);
            x_sum$r += quadSwapY(x_sum$r);
            #end
            #end
            #include "linear/add_minimum.wgsl"
        }
    }
    #for r in ROWS
    if (first_row + ${r}u < end_row) { finish_four(out_row(first_row + ${r}u), column, gate$r, total$r); }
    #end
}
