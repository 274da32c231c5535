// out = x @ weight.T and the epilogue, with x in 8 bits (activations_int8.wgsl) and weights of 4 bits in blocks ($TYPE).
// Of $LANES lanes of a workgroup $SPLIT share four columns (of both sides, if gated) and $ROWS rows: each takes every
// $SPLIT-th block, and their sums are added up $WHERE. A dot product of four is one instruction where the adapter has it.
struct Params {
    m: u32, n: u32, blocks: u32, row_tiles: u32, column_tiles: u32, out_width: u32, first: u32, $PARAMS
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> factors: array<vec2<f32>>;
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
    let row#r = min(row + #ru, params.m - 1u) * params.blocks;
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
            let q#c = open_block(columns[#c], b).q;
            let even#c = q#c & vec4<u32>(0x0f0f0f0fu);
            let odd#c = (q#c >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
#end
#for r in $ROWS
            {
                let low = codes[(row#r + b) * 2u];
                let high = codes[(row#r + b) * 2u + 1u];
                let factor = factors[row#r + b];
                var sum = vec4<i32>();
#for c in 4
                sum[#c] = dot4I8Packed(even#c.x, low.x) + dot4I8Packed(odd#c.x, low.y)
                    + dot4I8Packed(even#c.y, low.z) + dot4I8Packed(odd#c.y, low.w)
                    + dot4I8Packed(even#c.z, high.x) + dot4I8Packed(odd#c.z, high.y)
                    + dot4I8Packed(even#c.w, high.z) + dot4I8Packed(odd#c.w, high.w);
#end
                total#r += vec4<f32>(sum) * factor.x * scales.run[0] + factor.y * scales.least;
            }
#end
        }
    }
$ADD_UP
#for r in $ROWS
    if (part == 0u && row + #ru < params.m) { finish_four(row + #ru, column, gate#r, total#r); }
#end
}
