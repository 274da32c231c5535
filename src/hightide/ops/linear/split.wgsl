// out = x @ weight.T and the epilogue for few rows, with rows of weights in blocks of 32 ($TYPE).
// Of $LANES lanes of a workgroup $SPLIT share four columns (of both sides, if gated) and $ROWS rows: each takes every
// $SPLIT-th block, and their sums are added up $WHERE.
struct Params {
    m: u32, n: u32, blocks: u32, row_tiles: u32, column_tiles: u32, out_width: u32, first: u32, $PARAMS
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;
$EPILOGUE
$UNPACK
$SHARED

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, $LANE) {
    $FIND_LANE
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let row = tile % params.row_tiles * ${ROWS}u;
    let part = lane % ${SPLIT}u;
    let column = (tile / params.row_tiles * ${QUADS}u + lane / ${SPLIT}u) * 4u;
#for r in $ROWS
    let row#r = min(row + #ru, params.m - 1u) * params.blocks * 8u;
    var gate#r = vec4<f32>();
    var total#r = vec4<f32>();
#end
    for (var side = 0u; side < SIDES; side++) {
        let columns = four_columns(column, side);
#for r in $ROWS
        gate#r = total#r;
        total#r = vec4<f32>();
#end
        for (var b = part; b < params.blocks; b += ${SPLIT}u) {
            let scales = four_scales(columns, b);
#for c in 4
            let block#c = open_block(columns[#c], b);
#end
#for r in $ROWS
            var x_sum#r = 0.0;
#end
#for e in $RUNS
            {
#for r in $ROWS
                var sum#r = vec4<f32>();
#end
                for (var h = #eu * ${CHUNKS}u; h < (#eu + 1u) * ${CHUNKS}u; h++) {
#for c in 4
                    let w#c = four(block#c, columns[#c], b, h);
#end
#for r in $ROWS
                    let chunk#r = x[row#r + b * 8u + h];
                    if (MINIMUM) { x_sum#r += dot(chunk#r, vec4<f32>(1.0)); }
                    let a#r = chunk#r * quant_unit(h);
                    sum#r += vec4<f32>(dot(w0, a#r), dot(w1, a#r), dot(w2, a#r), dot(w3, a#r));
#end
                }
#for r in $ROWS
                total#r += sum#r * scales.run[#e];
#end
            }
#end
            if (MINIMUM) {
#for r in $ROWS
                total#r += x_sum#r * scales.least;
#end
            }
        }
    }
$ADD_UP
#for r in $ROWS
    if (part == 0u && row + #ru < params.m) { finish_four(row + #ru, column, gate#r, total#r); }
#end
}
