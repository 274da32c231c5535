// out[m, first + n] = x[m] . weight[n] (+ bias), weight rows in blocks of a GGUF type ($TYPE).
// One thread computes $ROWS rows x 4 columns: weights are unpacked once for all its rows.
struct Params {
    m: u32, n: u32, blocks: u32, row_tiles: u32, column_tiles: u32, out_width: u32, first: u32,
    plane1: u32, plane2: u32, plane3: u32,   // where planes start, in words
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;
$BIAS
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;
$UNPACK

const ROWS = $ROWS;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group_number(group, groups) * ${LANES}u + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * u32(ROWS);
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u)) * params.blocks;
    var x_row: array<u32, ROWS>;
    var total: array<vec4<f32>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        x_row[r] = min(row + u32(r), params.m - 1u) * params.blocks * 8u;
        total[r] = vec4<f32>();
    }
    for (var b = 0u; b < params.blocks; b++) {
        let b0 = open_block(columns.x + b);
        let b1 = open_block(columns.y + b);
        let b2 = open_block(columns.z + b);
        let b3 = open_block(columns.w + b);
        for (var half = 0u; half < 2u; half++) {
            var sum: array<vec4<f32>, ROWS>;
            var x_sum: array<f32, ROWS>;
            for (var r = 0; r < ROWS; r++) { sum[r] = vec4<f32>(); x_sum[r] = 0.0; }
            for (var j = half * 2u; j < half * 2u + 2u; j++) {
                let w0 = eight(columns.x + b, b0, j);
                let w1 = eight(columns.y + b, b1, j);
                let w2 = eight(columns.z + b, b2, j);
                let w3 = eight(columns.w + b, b3, j);
                for (var r = 0; r < ROWS; r++) {
                    let a = x[x_row[r] + b * 8u + j * 2u];
                    let c = x[x_row[r] + b * 8u + j * 2u + 1u];
                    sum[r] += vec4<f32>(dot(w0.low, a) + dot(w0.high, c), dot(w1.low, a) + dot(w1.high, c),
                                        dot(w2.low, a) + dot(w2.high, c), dot(w3.low, a) + dot(w3.high, c));
                    if ($MINIMUM) { x_sum[r] += dot(a + c, vec4<f32>(1.0)); }
                }
            }
            let scale = vec4<f32>(b0.scale[half * 2u], b1.scale[half * 2u], b2.scale[half * 2u], b3.scale[half * 2u]);
            for (var r = 0; r < ROWS; r++) { total[r] += sum[r] * scale; }
            if ($MINIMUM) {
                let least = vec4<f32>(b0.scale[1], b1.scale[1], b2.scale[1], b3.scale[1]);
                for (var r = 0; r < ROWS; r++) { total[r] += least * x_sum[r]; }
            }
        }
    }
    for (var r = 0; r < ROWS; r++) {
        if (row + u32(r) < params.m) {
            for (var c = 0u; c < min(4u, params.n - column); c++) {
                var value = total[r][c];
                $ADD_BIAS
                out[(row + u32(r)) * params.out_width + params.first + column + c] = value;
            }
        }
    }
}
