// out[m, n] = scale[n] * sum_k x[m, k] * w[n, k] (+ bias[n]), w in 8 or 4 bits, x in floats or 8-bit codes.
// One thread computes $ROWS rows x 4 columns; a step takes one word of each weight row.
// Assumes rows of x and of weights are whole steps, and for codes that N is a multiple of 4.
struct Params {
    m: u32, n: u32, steps: u32, row_words: u32, row_tiles: u32, column_tiles: u32,
    none: u32, x_zero: i32, x_scale: f32, inverse: f32, out_zero: f32,
}
@group(0) @binding(0) var<uniform> params: Params;
$BINDINGS

const ROWS = $ROWS;
$PRODUCT
$TAIL

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group_number(group, groups) * ${LANES}u + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * u32(ROWS);
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u));
    let starts = columns * params.row_words;
    var x_row: array<u32, ROWS>;
    var total: array<vec4<$T>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        x_row[r] = min(row + u32(r), params.m - 1u) * params.steps;
        total[r] = vec4<$T>();
    }
    for (var step = 0u; step < params.steps; step++) {
        let w0 = unpack(weight[starts.x + step]);
        let w1 = unpack(weight[starts.y + step]);
        let w2 = unpack(weight[starts.z + step]);
        let w3 = unpack(weight[starts.w + step]);
        for (var r = 0; r < ROWS; r++) {
            let at = x_row[r] + step;
            total[r] += vec4<$T>(product(at, w0), product(at, w1), product(at, w2), product(at, w3));
        }
    }
    for (var r = 0; r < ROWS; r++) {
        if (row + u32(r) < params.m) {
            let first = (row + u32(r)) * params.n + column;
            $STORE
        }
    }
}
