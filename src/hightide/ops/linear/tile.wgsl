// out = x @ weight.T and the epilogue, with rows of weights in blocks of 32 (TYPE); out of registers, with no barrier.
// A workgroup is 8 lanes; a lane computes ROWS rows x 4 columns (of both sides, if gated). It loads an eighth of a block
// of x and hands it on to the others, which costs less than loads. Assumes subgroups of at least 8 lanes.
// NORM: x is divided by its root mean square and multiplied by `norm`, as in split.wgsl.
#read x: vec4<f32>
#read norm: vec4<f32> if NORM
#params mean: f32, eps: f32 if NORM
#const LOOPED = False
#include "linear/block_product.wgsl"
#const LANES = 8
#main $LANES
    #include "linear/tile_place.wgsl"
    let unit = quant_unit(lane);
    #for r in ROWS
    let row$r = x_row(min(first_row + ${r}u, end_row - 1u)) * params.blocks * 8u;
    #if NORM
    var squares$r = 0.0;
    #end
    #end
    #include "linear/each_block.wgsl"
            #for r in ROWS
            #if NORM
            let plain$r = load_x(row$r + b * 8u + lane);
            squares$r += dot(plain$r, plain$r);
            let mine$r = plain$r * load_norm(b * 8u + lane);
            #else
            let mine$r = load_x(row$r + b * 8u + lane);
            #end
            let units$r = mine$r * unit;
            #if MINIMUM
            var x_sum$r = dot(mine$r, vec4<f32>(1.0));
            x_sum$r += subgroupShuffleXor(x_sum$r, 1u);
            x_sum$r += subgroupShuffleXor(x_sum$r, 2u);
            x_sum$r += subgroupShuffleXor(x_sum$r, 4u);
            #end
            #end
            #for e in RUNS
            {
                #for r in ROWS
                var sum$r = vec4<f32>();
                #end
                #for h in CHUNKS
                {
                    #for c in 4
                    let w$c = four(block$c, columns[$c], b, ${e * CHUNKS + h}u);
                    #end
                    #for i in 4
                    let w_$i = vec4<f32>(w0[$i], w1[$i], w2[$i], w3[$i]);
                    #end
                    #for r in ROWS
                    #for i in 4
                    let a${r}_$i = subgroupBroadcast(units$r[$i], ${e * CHUNKS + h}u);
                    #end
                    sum$r += (w_0 * a${r}_0 + w_1 * a${r}_1) + (w_2 * a${r}_2 + w_3 * a${r}_3);
                    #end
                }
                #end
                #for r in ROWS
                total$r += sum$r * scales.run[$e];
                #end
            }
            #end
            #include "linear/add_minimum.wgsl"
        }
    }
    #if NORM
    #for r in ROWS
    squares$r += subgroupShuffleXor(squares$r, 1u);
    squares$r += subgroupShuffleXor(squares$r, 2u);
    squares$r += subgroupShuffleXor(squares$r, 4u);
    let scale$r = inverseSqrt(squares$r * params.mean + params.eps);
    gate$r *= scale$r;
    total$r *= scale$r;
    #end
    #end
    for (var row = first_row; row < min(first_row + ${ROWS}u, end_row); row++) {   // one row's code for all of them
        finish_four(out_row(row), column, gate0, total0);
        #for r in ROWS - 1
        gate$r = gate${r + 1};
        total$r = total${r + 1};
        #end
    }
}
