// How columns of the product become columns of the output: bias, an activation, a residual.
// n: columns of this weight; first: where they start in the output, whose rows are out_width long.
// BIAS, RESIDUAL: there is one. ACTIVATION: a function of activations.wgsl, or "". GATED: the weight holds the gate's
// columns, then as many of `up`, and a thread computes a column of both sides. APART: the residual may be one row, for all.
// EXPERTS: rows have matrices, and rows of the bias, of their own (row_experts.wgsl), or "".
#params n: u32, out_width: u32, first: u32
#read bias: f32 if BIAS
#read residual: f32 if RESIDUAL
#params residual_row: u32 if RESIDUAL and APART
#write out: f32
#const SIDES = 2 if GATED else 1
#if ACTIVATION
#include "linear/activations.wgsl"
#end
#if EXPERTS
#include "linear/row_experts.wgsl"
#end

// One output: of the product `total` and, where it is gated, of `total_up` from the second half of the columns.
fn finish(row: u32, column: u32, total: f32, total_up: f32) {
    let at = row * params.out_width + params.first + column;
    var value = total;
    #if BIAS
    let bias_at = ${"expert * params.n" if EXPERTS else "params.first"} + column;
    value += load_bias(bias_at);
    #end
    #if ACTIVATION
    value = $ACTIVATION(value);
    #end
    #if GATED
    var up = total_up;
    #if BIAS
    up += load_bias(bias_at + params.n / 2u);
    #end
    #if ACTIVATION == "clamped_swiglu"
    up = clamp(up, -7.0, 7.0) + 1.0;
    #end
    value *= up;
    #end
    #if RESIDUAL
    value += load_residual(${"row * params.residual_row + column" if APART else "at"});
    #end
    store_out(at, value);
}

// Where the columns of this tile's matrix start in the weight.
fn matrix_start() -> u32 { return ${"(expert - params.first_expert) * params.n" if EXPERTS else "0u"}; }
// Four columns of a side, adjacent; those past the end repeat the last.
fn four_columns(column: u32, side: u32) -> vec4<u32> {
    let at = column + side * (params.n / 2u);
    return min(vec4<u32>(at, at + 1u, at + 2u, at + 3u), vec4<u32>(params.n - 1u)) + matrix_start();
}
// Four outputs from `column` on; `gate` is what the first side gave where there are two.
fn finish_four(row: u32, column: u32, gate: vec4<f32>, total: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        if (column + c < params.n / ${SIDES}u) {
            #if GATED
            finish(row, column + c, gate[c], total[c]);
            #else
            finish(row, column + c, total[c], 0.0);
            #end
        }
    }
}
