// What an adapter can do at most: entry points that only read, only copy, only multiply and add, or do nothing.
// Each thread takes every THREADS-th vec4 (neighbours read neighbours), or, BLOCKED, a run of its own; loops are
// unrolled by UNROLL, or software adapters would measure their loops.
// Sums and products are written where nobody can foresee it, so that no compiler leaves the work out.

@group(0) @binding(0) var<storage, read> input: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;

const THREADS = u32($THREADS);  // in all
const PER_THREAD = u32($PER_THREAD);  // vec4s, or products per chain
const STEP = select(THREADS, 1u, $BLOCKED);
const FIRST = select(1u, PER_THREAD, $BLOCKED);
const UNROLL = u32($UNROLL);

@compute @workgroup_size($LANES)
fn stream(@builtin(global_invocation_id) id: vec3<u32>) {
    var a = vec4<f32>();
    var b = vec4<f32>();
    var at = id.x * FIRST;
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
$SUMS
        at += UNROLL * STEP;
    }
    if (dot(a, b) == 1.5) {
        output[id.x] = a;
    }
}

@compute @workgroup_size($LANES)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    var at = id.x * FIRST;
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
$COPIES
        at += UNROLL * STEP;
    }
}

@compute @workgroup_size($LANES)
fn multiply(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = input[0] + f32(id.x) * 1e-9;
    let y = input[1];
$START
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
$PRODUCTS
    }
    let total = $TOTAL;
    if (dot(total, total) == 1.5) {
        output[id.x] = total;
    }
}

@compute @workgroup_size($LANES)
fn nothing(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x == 0xFFFFFFFFu) {
        output[0] = input[0];
    }
}
