// linear_tile.wgsl for rows of any length: out[m, n] = scale[n] * sum_k x[m, k] * w[n, k] (+ bias[n]).
// One thread per four consecutive outputs, each summed on its own.
struct Params {
    m: u32, n: u32, k: u32, row_bytes: u32,
    none: u32, x_zero: i32, x_scale: f32, inverse: f32, out_zero: f32,
}
@group(0) @binding(0) var<uniform> params: Params;
$BINDINGS

$PRODUCT
$TAIL

fn element(i: u32) -> $OUT {
    let row = i / params.n;
    let column = i % params.n;
    var total = $T(0);
    for (var k = 0u; k < params.k; k++) {
        total += x_at(row * params.k + k) * weight_at(column * params.row_bytes, k);
    }
    return $RESULT;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    let numel = params.m * params.n;
    if (i * 4u >= numel) { return; }
    var result = vec4<$OUT>();
    for (var e = 0u; e < min(4u, numel - i * 4u); e++) { result[e] = element(i * 4u + e); }
    out[i] = $STORE;
}
