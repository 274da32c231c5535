// out[plane, p] = the mean or the maximum (and where it is) of x over the window at p.
// One thread per output. A window goes from `start` to before `end`, both cut at the edges of the plane.
struct Params {
    numel: u32, divisor: i32, in_size: vec2<i32>, out_size: vec2<i32>,   // height, width
    window: vec2<i32>, stride: vec2<i32>, padding: vec2<i32>, dilation: vec2<i32>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
$INDICES

fn is_nan(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}
// WGSL has no literal for it.
fn minus_infinity() -> f32 {
    return bitcast<f32>(0xff800000u + params.numel * 0u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let width = u32(params.out_size.y);
    let at = vec2<i32>(i32(i / width % u32(params.out_size.x)), i32(i % width));
    let plane = i / width / u32(params.out_size.x) * u32(params.in_size.x * params.in_size.y);
    $WINDOW
    $INIT
    for (var row = start.x; row < end.x; row += params.dilation.x) {
        for (var column = start.y; column < end.y; column += params.dilation.y) {
            let place = row * params.in_size.y + column;
            let value = x[plane + u32(place)];
            $STEP
        }
    }
    $STORE
}
