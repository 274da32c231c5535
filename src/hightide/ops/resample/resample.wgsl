// out[n, c, p] = x[n, c] at the place that belongs to pixel p: the nearest pixel there, or four mixed (bilinear).
// One thread per output. The place comes from scales (upsampling) or from a tensor of coordinates (GRID).
// Pixels outside x count as zero; PADDING says what happens to places there: nothing ("zeros"), clamped to the edges
// ("border"), mirrored at them ("reflection"). CORNERS: the centers of the corner pixels are the image's ends.
#params numel: u32, channels: u32, in_size: vec2<i32>, out_size: vec2<i32>   // height, width
#params scale_y: f32, scale_x: f32 if not GRID                               // input pixels per output pixel
#read x: f32
#read grid: vec2<f32> if GRID
#write out: f32

fn pixel(plane: u32, at: vec2<i32>) -> f32 {
    if (any(at < vec2<i32>()) || any(at >= params.in_size)) { return 0.0; }
    return load_x(plane + u32(at.x * params.in_size.y + at.y));
}

#if NEAREST
fn sample(plane: u32, place: vec2<f32>) -> f32 {
    return pixel(plane, vec2<i32>(round(place)));
}
#else
fn sample(plane: u32, place: vec2<f32>) -> f32 {
    let corner = floor(place);
    let part = place - corner;
    let at = vec2<i32>(corner);
    let above = (1.0 - part.y) * pixel(plane, at) + part.y * pixel(plane, at + vec2<i32>(0, 1));
    let below = (1.0 - part.y) * pixel(plane, at + vec2<i32>(1, 0)) + part.y * pixel(plane, at + vec2<i32>(1, 1));
    return (1.0 - part.x) * above + part.x * below;
}
#end

#if PADDING == "reflection"
// Mirrored at both edges as often as needed, for pixels from `low` on over `span`.
fn reflect_at(place: vec2<f32>, low: vec2<f32>, span: vec2<f32>) -> vec2<f32> {
    let distance = abs(place - low);
    let turns = floor(distance / max(span, vec2<f32>(0.5)));
    let rest = distance - turns * span;
    let odd = turns - 2.0 * floor(turns * 0.5) == vec2<f32>(1.0);
    return select(low + select(rest, span - rest, odd), vec2<f32>(), span == vec2<f32>());
}
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let width = u32(params.out_size.y);
    let height = u32(params.out_size.x);
    let at = vec2<f32>(f32(i / width % height), f32(i % width));
    let image = i / (width * height);                                      // batch * channels + channel
    let plane = image * u32(params.in_size.x * params.in_size.y);
    let size = vec2<f32>(params.in_size);
    #if GRID
    let from_low = load_grid(image / params.channels * width * height + i % (width * height)).yx + 1.0;
    #if CORNERS
    var place = from_low * 0.5 * (size - 1.0);
    #else
    var place = (from_low * size - 1.0) * 0.5;
    #end
    #else
    let scale = vec2<f32>(params.scale_y, params.scale_x);
    #if NEAREST
    var place = floor(at * scale);
    #elif CORNERS
    var place = at * scale;
    #else
    var place = (at + 0.5) * scale - 0.5;
    #end
    #end
    #if PADDING == "reflection" and CORNERS
    place = reflect_at(place, vec2<f32>(0.0), size - 1.0);
    #elif PADDING == "reflection"
    place = reflect_at(place, vec2<f32>(-0.5), size);
    #end
    #if PADDING != "zeros"
    place = clamp(place, vec2<f32>(), size - 1.0);
    #end
    // Far outside is as good as just outside, and stays within the integers.
    store_out(i, sample(plane, clamp(place, vec2<f32>(-2.0), size + 1.0)));
}
