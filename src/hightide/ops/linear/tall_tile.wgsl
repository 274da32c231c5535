// As tile.wgsl, for eight rows and more, and for floats. A chunk at a time, in a loop: the code fits the caches of a CPU.
// A load of x serves eight rows, one in each lane (loads of single numbers wait for each other), and both sides, if gated.
#read x: vec4<f32>
#const LOOPED = True
#include "linear/block_product.wgsl"
#const LANES = 8
#const LOADS = (ROWS + LANES - 1) // LANES
#main $LANES
    #include "linear/tile_place.wgsl"
    #for f in LOADS
    let rows$f = x_row(min(first_row + ${LANES * f}u + lane, end_row - 1u)) * params.blocks * 8u;
    #end
    #for s in SIDES
    let columns$s = four_columns(column, ${s}u);
    #for r in ROWS
    var total${r}_$s = vec4<f32>();
    #end
    #end
    for (var b = 0u; b < params.blocks; b++) {
        #for s in SIDES
        let scales$s = four_scales(columns$s, b);
        #for c in 4
        let block${s}_$c = open_block(columns$s[$c], b);
        #end
        #end
        for (var h = 0u; h < 8u; h++) {
            #for f in LOADS
            let x$f = load_x(rows$f + b * 8u + h);
            #end
            #for s in SIDES
            {
                #if RUNS == 2
                let scale = select(scales$s.run[0], scales$s.run[1], h >= 4u);
                #else
                let scale = scales$s.run[0];
                #end
                let unit = quant_unit(h);
                #for c in 4
                let q$c = four(block${s}_$c, columns$s[$c], b, h) * (unit * scale[$c])
                #if MINIMUM
                    + scales$s.least[$c]
                #end
                    ;
                #end
                #for i in 4
                let w_$i = vec4<f32>(q0[$i], q1[$i], q2[$i], q3[$i]);
                #end
                #for r in ROWS
                {
                    #for i in 4
                    let a_$i = subgroupBroadcast(x${r // LANES}[$i], ${r % LANES}u);
                    #end
                    total${r}_$s += (w_0 * a_0 + w_1 * a_1) + (w_2 * a_2 + w_3 * a_3);
                }
                #end
            }
            #end
        }
    }
    for (var row = first_row; row < min(first_row + ${ROWS}u, end_row); row++) {   // one row's code for all of them
        finish_four(out_row(row), column, total0_0, total0_${SIDES - 1});
        #for r in ROWS - 1
        #for s in SIDES
        total${r}_$s = total${r + 1}_$s;
        #end
        #end
    }
}
