// As tile.wgsl, for eight rows and more. Eight quants at a time, in a loop: the code fits the caches of a CPU, and a load
// of x serves four rows, in two lanes each (loads of single numbers wait for each other).
#read x: vec4<f32>
#const LOOPED = True
#include "linear/block_product.wgsl"
#const FOURS = ROWS // 4
#const LANES = 8
#main $LANES
    #include "linear/tile_place.wgsl"
    #for f in FOURS
    let rows$f = min(row + ${4 * f}u + lane / 2u, params.m - 1u) * params.blocks * 8u + lane % 2u;
    #end
    #include "linear/each_block.wgsl"
            for (var j = 0u; j < 4u; j++) {
                #for f in FOURS
                let x$f = load_x(rows$f + b * 8u + j * 2u);
                #end
                #if RUNS == 2
                let scale = select(scales.run[0], scales.run[1], j >= 2u);
                #else
                let scale = scales.run[0];
                #end
                #for h in 2
                #for c in 4
                let q${h}_$c = four(block$c, columns[$c], b, j * 2u + ${h}u) * (quant_unit(${h}u) * scale[$c])
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
                #for h in 2
                let a${r}_$h = vec4<f32>(
                    #for i in 4
                    subgroupBroadcast(x${r // 4}[$i], ${r % 4 * 2 + h}u),
                    #end
                );
                let sum${r}_$h = (w${h}_0 * a${r}_$h.x + w${h}_1 * a${r}_$h.y) + (w${h}_2 * a${r}_$h.z + w${h}_3 * a${r}_$h.w);
                #end
                total$r += sum${r}_0 + sum${r}_1;
                #end
            }
        }
    }
    #for r in ROWS
    if (row + ${r}u < params.m) { finish_four(row + ${r}u, column, gate$r, total$r); }
    #end
}
