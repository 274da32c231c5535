// out = x @ weight.T and the epilogue for few rows, with rows of weights in blocks of 32 (TYPE).
// Of the LANES lanes of a workgroup 1 << STEPS share four columns (of both sides, if gated) and ROWS rows: each takes
// every (1 << STEPS)-th block, and their sums are added up (ADD): "shared" in shared memory, "shuffles" by subgroups.
// NORM: x is divided by its root mean square and multiplied by `norm`: the squares are added up beside the products, of every
// side, and mean = 1 / (K * SIDES).
// INT8: x is in 8 bits (activations_int8.wgsl); a dot product of four is one instruction where the adapter has it.
#read x: vec4<f32> if not INT8
#read codes: vec4<u32>, factors: vec2<f32> if INT8
#read norm: vec4<f32> if NORM
#params mean: f32, eps: f32 if NORM
#const LOOPED = False
#include "linear/block_product.wgsl"

const LANES = ${LANES}u;
const SPLIT = 1u << ${STEPS}u;
#const SUMS = ROWS * (SIDES + NORM)
#if ADD == "shared"
var<workgroup> sums: array<vec4<f32>, $SUMS * LANES>;
#end

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        #if ADD == "shuffles"
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) size: u32,
        @builtin(subgroup_invocation_id) place: u32) {
    let lane = subgroup * size + place;
        #else
        @builtin(local_invocation_index) lane: u32) {
        #end
    let tile = group_number(group, groups);
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    #const TILE_ROWS = ROWS
    #include "linear/tile_rows.wgsl"
    let part = lane % SPLIT;
    let column = (tile / params.row_tiles * (LANES / SPLIT) + lane / SPLIT) * 4u;
    #for r in ROWS
    let row$r = x_row(min(first_row + ${r}u, end_row - 1u)) * params.blocks * ${1 if INT8 else 8}u;
    var gate$r = vec4<f32>();
    var total$r = vec4<f32>();
    #if NORM
    var squares$r = 0.0;
    #end
    #end
    for (var side = 0u; side < ${SIDES}u; side++) {
        let columns = four_columns(column, side);
        #include "linear/next_side.wgsl"
        for (var b = part; b < params.blocks; b += SPLIT) {
            let scales = four_scales(columns, b);
            #for c in 4
            let block$c = open_block(columns[$c], b);
            #end
            #if INT8
            #include "linear/split_int8.wgsl"
            #else
            #include "linear/split_f32.wgsl"
            #end
        }
    }
    #if ADD == "shared"
    // All sums at once: every barrier costs a software adapter much to compile.
    #for r in ROWS
    sums[$r * LANES + lane] = total$r;
    #end
    #for r in ROWS * SIDES - ROWS
    sums[${ROWS + r} * LANES + lane] = gate$r;
    #end
    #for r in SUMS - ROWS * SIDES
    sums[${ROWS * SIDES + r} * LANES + lane] = vec4<f32>(squares$r);
    #end
    for (var step = SPLIT / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        for (var i = lane; part < step && i < $SUMS * LANES; i += LANES) {
            sums[i] += sums[i + step];
        }
    }
    #for r in ROWS
    total$r = sums[$r * LANES + lane];
    #end
    #for r in ROWS * SIDES - ROWS
    gate$r = sums[${ROWS + r} * LANES + lane];
    #end
    #for r in SUMS - ROWS * SIDES
    squares$r = sums[${ROWS * SIDES + r} * LANES + lane].x;
    #end
    #elif ADD == "shuffles"
    #for step in STEPS
    #for r in ROWS
    total$r += subgroupShuffleXor(total$r, 1u << ${step}u);
    #if GATED
    gate$r += subgroupShuffleXor(gate$r, 1u << ${step}u);
    #end
    #if NORM
    squares$r += subgroupShuffleXor(squares$r, 1u << ${step}u);
    #end
    #end
    #end
    #end
    #if NORM
    #for r in ROWS
    let scale$r = inverseSqrt(squares$r * params.mean + params.eps);
    gate$r *= scale$r;
    total$r *= scale$r;
    #end
    #end
    #for r in ROWS
    if (part == 0u && first_row + ${r}u < end_row) { finish_four(out_row(first_row + ${r}u), column, gate$r, total$r); }
    #end
}
