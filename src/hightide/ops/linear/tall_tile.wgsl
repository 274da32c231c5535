// As tile.wgsl, for eight rows and more, and for floats. STEP chunks at a time, in a loop: the code fits the caches of a CPU.
// A load of x serves 8 / STEP rows, in STEP lanes each (loads of single numbers wait for each other).
#read x: vec4<f32>
#const LOOPED = True
#include "linear/block_product.wgsl"
#const LANES = 8
#const SERVED = LANES // STEP              // rows, by a load of x
#const LOADS = (ROWS + SERVED - 1) // SERVED
#main $LANES
    #include "linear/tile_place.wgsl"
    #for f in LOADS
    let rows$f = x_row(min(first_row + ${SERVED * f}u + lane / ${STEP}u, end_row - 1u)) * params.blocks * 8u + lane % ${STEP}u;
    #end
    #include "linear/each_block.wgsl"
            for (var j = 0u; j < ${8 // STEP}u; j++) {
                #for f in LOADS
                let x$f = load_x(rows$f + b * 8u + j * ${STEP}u);
                #end
                #if RUNS == 2
                let scale = select(scales.run[0], scales.run[1], j >= ${4 // STEP}u);
                #else
                let scale = scales.run[0];
                #end
                #for h in STEP
                #for c in 4
                let q${h}_$c = four(block$c, columns[$c], b, j * ${STEP}u + ${h}u) * (quant_unit(${h}u) * scale[$c])
                #if MINIMUM
                    + scales.least[$c]
                #end
                    ;
                #end
                #for i in 4
                let w${h}_$i = vec4<f32>(q${h}_0[$i], q${h}_1[$i], q${h}_2[$i], q${h}_3[$i]);
                #end
                #end
                #for r in ROWS
                #for h in STEP
                let a${r}_$h = vec4<f32>(
                    #for i in 4
                    subgroupBroadcast(x${r // SERVED}[$i], ${r % SERVED * STEP + h}u),
                    #end
                );
                let sum${r}_$h = (w${h}_0 * a${r}_$h.x + w${h}_1 * a${r}_$h.y) + (w${h}_2 * a${r}_$h.z + w${h}_3 * a${r}_$h.w);
                #end
                total$r +=
                    #for h in STEP
                    ${"+ " if h else ""}sum${r}_$h
                    #end
                    ;
                #end
            }
        }
    }
    #for r in ROWS
    if (first_row + ${r}u < end_row) { finish_four(out_row(first_row + ${r}u), column, gate$r, total$r); }
    #end
}
