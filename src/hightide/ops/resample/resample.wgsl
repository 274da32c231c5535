// out[n, c, p] = x[n, c] at the place that belongs to pixel p: the nearest pixel there, or four mixed (bilinear).
// One thread per output. The place comes from scales (upsampling) or from a tensor of coordinates (a grid).
// Pixels outside x count as zero; most places are clamped to its edges before.
struct Params {
    numel: u32, channels: u32, in_size: vec2<i32>, out_size: vec2<i32>,   // height, width
    scale: vec2<f32>,                                                     // input pixels per output pixel
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;
$GRID
@group(0) @binding($OUT) var<storage, read_write> out: array<f32>;

// Mirrored at both edges as often as needed, for pixels from `low` on over `span`.
fn reflect_at(place: vec2<f32>, low: vec2<f32>, span: vec2<f32>) -> vec2<f32> {
    let distance = abs(place - low);
    let turns = floor(distance / max(span, vec2<f32>(0.5)));
    let rest = distance - turns * span;
    let odd = turns - 2.0 * floor(turns * 0.5) == vec2<f32>(1.0);
    return select(low + select(rest, span - rest, odd), vec2<f32>(), span == vec2<f32>());
}

fn pixel(plane: u32, at: vec2<i32>) -> f32 {
    if (any(at < vec2<i32>()) || any(at >= params.in_size)) { return 0.0; }
    return x[plane + u32(at.x * params.in_size.y + at.y)];
}

fn nearest(plane: u32, place: vec2<f32>) -> f32 {
    return pixel(plane, vec2<i32>(round(place)));
}

fn bilinear(plane: u32, place: vec2<f32>) -> f32 {
    let corner = floor(place);
    let part = place - corner;
    let at = vec2<i32>(corner);
    let above = (1.0 - part.y) * pixel(plane, at) + part.y * pixel(plane, at + vec2<i32>(0, 1));
    let below = (1.0 - part.y) * pixel(plane, at + vec2<i32>(1, 0)) + part.y * pixel(plane, at + vec2<i32>(1, 1));
    return (1.0 - part.x) * above + part.x * below;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let width = u32(params.out_size.y);
    let height = u32(params.out_size.x);
    let at = vec2<f32>(f32(i / width % height), f32(i % width));
    let image = i / (width * height);                                      // batch * channels + channel
    let plane = image * u32(params.in_size.x * params.in_size.y);
    let size = vec2<f32>(params.in_size);
    $PLACE
    // Far outside is as good as just outside, and stays within the integers.
    out[i] = $SAMPLE(plane, clamp(place, vec2<f32>(-2.0), size + 1.0));
}
