// out[m, n] = sum_k x[m, k] * weight[n, k] (+ bias[n]); rows of both are contiguous whole vec4s.
// One thread computes $ROWS rows x 4 columns, out of registers.
struct Params { m: u32, n: u32, k4: u32, row_tiles: u32, column_tiles: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
$BIAS
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

const ROWS = $ROWS;

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group_number(group, groups) * ${LANES}u + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * u32(ROWS);
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u)) * params.k4;
    var x_row: array<u32, ROWS>;
    var total: array<vec4<f32>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        x_row[r] = min(row + u32(r), params.m - 1u) * params.k4;
        total[r] = vec4<f32>();
    }
    for (var k = 0u; k < params.k4; k++) {
        let w0 = weight[columns.x + k];
        let w1 = weight[columns.y + k];
        let w2 = weight[columns.z + k];
        let w3 = weight[columns.w + k];
        for (var r = 0; r < ROWS; r++) {
            let a = x[x_row[r] + k];
            total[r] += vec4<f32>(dot(w0, a), dot(w1, a), dot(w2, a), dot(w3, a));
        }
    }
    for (var r = 0; r < ROWS; r++) {
        if (row + u32(r) < params.m) {
            for (var c = 0u; c < min(4u, params.n - column); c++) {
                var value = total[r][c];
                $ADD_BIAS
                out[(row + u32(r)) * params.n + column + c] = value;
            }
        }
    }
}
