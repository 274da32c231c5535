// out[m, n] = sum_k x[m, k] * (q[n, k] - 8) * scale[k / group, n] (+ bias[n]), q in 4 bits, low nibble first.
// One thread computes $ROWS rows x 4 columns: weights are unpacked once for all its rows.
// Assumes K and the group are multiples of 32, and rows of weights are whole vec4<u32>s.
struct Params {
    m: u32, n: u32, k: u32, row_words: u32,   // row_words: vec4<u32>s per weight row
    group: u32, scale_row: u32, row_tiles: u32, column_tiles: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<f32>;
$BIAS
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

const ROWS = $ROWS;

fn low(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u)) - 8.0;
}
fn high(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u)) - 8.0;
}

@compute @workgroup_size($LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group_number(group, groups) * ${LANES}u + lane;
    if (tile >= params.row_tiles * params.column_tiles) { return; }
    let column = tile % params.column_tiles * 4u;
    let row = tile / params.column_tiles * u32(ROWS);
    let last = params.n - 1u;
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last));
    let k4 = params.k / 4u;
    var x_row: array<u32, ROWS>;
    var total: array<vec4<f32>, ROWS>;
    for (var r = 0; r < ROWS; r++) {
        x_row[r] = min(row + u32(r), params.m - 1u) * k4;
        total[r] = vec4<f32>();
    }
    let group_blocks = params.group / 32u;
    var block = 0u;
    for (var g = 0u; g < params.k / params.group; g++) {
        var sum: array<vec4<f32>, ROWS>;
        for (var r = 0; r < ROWS; r++) { sum[r] = vec4<f32>(); }
        for (var b = 0u; b < group_blocks; b++) {
            let w0 = weight[columns.x * params.row_words + block];
            let w1 = weight[columns.y * params.row_words + block];
            let w2 = weight[columns.z * params.row_words + block];
            let w3 = weight[columns.w * params.row_words + block];
            for (var j = 0u; j < 4u; j++) {
                let l0 = low(w0[j]); let l1 = low(w1[j]); let l2 = low(w2[j]); let l3 = low(w3[j]);
                let h0 = high(w0[j]); let h1 = high(w1[j]); let h2 = high(w2[j]); let h3 = high(w3[j]);
                for (var r = 0; r < ROWS; r++) {
                    let at = x_row[r] + block * 8u + j * 2u;
                    let a = x[at];
                    let c = x[at + 1u];
                    sum[r] += vec4<f32>(dot(l0, a) + dot(h0, c), dot(l1, a) + dot(h1, c),
                                        dot(l2, a) + dot(h2, c), dot(l3, a) + dot(h3, c));
                }
            }
            block++;
        }
        let s = g * params.scale_row;
        let scale = vec4<f32>(scales[s + columns.x], scales[s + columns.y], scales[s + columns.z], scales[s + columns.w]);
        for (var r = 0; r < ROWS; r++) { total[r] += sum[r] * scale; }
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
