// How columns of the product become columns of the output: bias, a gated activation, a residual.
// Uses params.n (columns of this weight), params.out_width and params.first (where its columns start in the output).
const GATED = $GATED;
const SIDES = select(1u, 2u, GATED);   // a gated weight holds the gate's columns, then as many of `up`

fn activate(value: f32) -> f32 { return $ACTIVATE; }

// One output: of the product `value` and, where it is gated, of `up` from the second half of the columns.
fn finish(row: u32, column: u32, value: f32, up: f32) {
    let at = row * params.out_width + params.first + column;
    let n = params.first + column;   // of the bias
    if (GATED) {
        let n2 = n + params.n / 2u;
        out[at] = activate(value$BIAS_N) * (up$BIAS_N2)$RESIDUAL;
    } else {
        out[at] = value$BIAS_N$RESIDUAL;
    }
}

// Four columns of a side, adjacent; those past the end repeat the last.
fn four_columns(column: u32, side: u32) -> vec4<u32> {
    let at = column + side * (params.n / 2u);
    return min(vec4<u32>(at, at + 1u, at + 2u, at + 3u), vec4<u32>(params.n - 1u));
}
// Four outputs from `column` on; `gate` is what the first side gave where there are two.
fn finish_four(row: u32, column: u32, gate: vec4<f32>, total: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        if (column + c < params.n / SIDES) {
            if (GATED) { finish(row, column + c, gate[c], total[c]); } else { finish(row, column + c, total[c], 0.0); }
        }
    }
}
