    // Within a kernel of register tiles: its totals, and the loops over sides and blocks, which the kernel closes.
    #for r in ROWS
    var gate$r = vec4<f32>();
    var total$r = vec4<f32>();
    #end
    for (var side = 0u; side < ${SIDES}u; side++) {
        let columns = four_columns(column, side);
        #include "linear/next_side.wgsl"
        for (var b = 0u; b < params.blocks; b++) {
            let scales = four_scales(columns, b);
            #for c in 4
            let block$c = open_block(columns[$c], b);
            #end
