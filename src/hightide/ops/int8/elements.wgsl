// out = $EXPR, element by element, over floats and 8-bit codes that lie at any strides of one box.
// One thread per four consecutive outputs: a word of four codes, or a vec4.
// Every product and sum is rounded to float32 on its own, as in torch: codes then agree at ties.
struct Params {
    numel: u32,
    none: u32,                       // always zero, which the compiler cannot know
    $SCALARS
    dims: array<vec4<u32>, 2>,
    strides0: array<vec4<u32>, 2>,
    strides1: array<vec4<u32>, 2>,
    strides2: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<uniform> params: Params;
$BINDINGS

// A product that is not fused with the sum it goes into.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ params.none);
}
fn to_code(x: f32, zero: f32, low: f32, high: f32) -> i32 {
    return i32(clamp(round(x) + zero, low, high));
}

fn element(i: u32) -> $T {
    var rest = i;
    var at = vec3<u32>();
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            let h = d >> 2u;
            at += rest % size * vec3<u32>(params.strides0[h][d & 3], params.strides1[h][d & 3], params.strides2[h][d & 3]);
            rest = rest / size;
        }
    }
$LOADS
    return $EXPR;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    var result = vec4<$T>();
    for (var e = 0u; e < min(4u, params.numel - i * 4u); e++) { result[e] = element(i * 4u + e); }
    out[i] = $STORE;
}
