// out[n, c, p] = x[n, c] at the place that belongs to pixel p: the nearest pixel there, or four mixed
// (bilinear), or sixteen (bicubic), as SAMPLER says.
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
// A place beyond the edges moved inside.
fn padded(place: vec2<f32>) -> vec2<f32> {
    let size = vec2<f32>(params.in_size);
    #if PADDING == "zeros"
    return place;
    #elif PADDING == "border"
    return clamp(place, vec2<f32>(), size - 1.0);
    #elif CORNERS
    return clamp(reflect_at(place, vec2<f32>(0.0), size - 1.0), vec2<f32>(), size - 1.0);
    #else
    return clamp(reflect_at(place, vec2<f32>(-0.5), size), vec2<f32>(), size - 1.0);
    #end
}

#if SAMPLER == "nearest"
fn sample(plane: u32, place: vec2<f32>) -> f32 {
    return pixel(plane, vec2<i32>(round(place)));
}
#elif SAMPLER == "bicubic"
// Weights of the pixels at -1, 0, 1 and 2 for a place `part` beyond 0.
fn weights(part: f32) -> vec4<f32> {
    let far = vec2<f32>(1.0 + part, 2.0 - part);
    let near = vec2<f32>(part, 1.0 - part);
    let outer = ((-0.75 * far + 3.75) * far - 6.0) * far + 3.0;
    let inner = (1.25 * near - 2.25) * near * near + 1.0;
    return vec4<f32>(outer.x, inner.x, inner.y, outer.y);
}
fn sample(plane: u32, place: vec2<f32>) -> f32 {
    let corner = floor(place);
    let down = weights(place.x - corner.x);
    let right = weights(place.y - corner.y);
    var sum = 0.0;
    for (var row = 0; row < 4; row++) {
        for (var column = 0; column < 4; column++) {
            let tap = padded(corner + vec2<f32>(f32(row - 1), f32(column - 1)));
            sum += down[row] * right[column] * pixel(plane, vec2<i32>(tap));
        }
    }
    return sum;
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
    let place = from_low * 0.5 * (size - 1.0);
    #else
    let place = (from_low * size - 1.0) * 0.5;
    #end
    #else
    let scale = vec2<f32>(params.scale_y, params.scale_x);
    #if SAMPLER == "nearest"
    let place = floor(at * scale);
    #elif CORNERS
    let place = at * scale;
    #else
    let place = (at + 0.5) * scale - 0.5;
    #end
    #end
    #if SAMPLER == "bicubic"
    // Each pixel is padded by itself. Far outside is as good as just outside, but for a mirror, whose turns floats count.
    #if PADDING == "reflection"
    store_out(i, sample(plane, clamp(place, vec2<f32>(-16777216.0), vec2<f32>(16777216.0))));
    #else
    store_out(i, sample(plane, clamp(place, vec2<f32>(-3.0), size + 2.0)));
    #end
    #else
    // Far outside is as good as just outside, and stays within the integers.
    store_out(i, sample(plane, clamp(padded(place), vec2<f32>(-2.0), size + 1.0)));
    #end
}
