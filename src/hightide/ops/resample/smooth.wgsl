// out[n, c, p] = the mean of x[n, c] around the place that belongs to pixel p, by weights that fall to both sides.
// One thread per output. Weights reach one pixel, or as many as an output pixel stands for where x gets smaller.
#params numel: u32, in_size: vec2<i32>, out_size: vec2<i32>   // height, width
#params scale_y: f32, scale_x: f32                            // input pixels per output pixel
#read x: f32
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let width = u32(params.out_size.y);
    let height = u32(params.out_size.x);
    let scale = vec2<f32>(params.scale_y, params.scale_x);
    let reach = max(scale, vec2<f32>(1.0));
    let center = scale * (vec2<f32>(f32(i / width % height), f32(i % width)) + 0.5);
    let first = max(vec2<i32>(center - reach + 0.5), vec2<i32>());
    let end = min(vec2<i32>(center + reach + 0.5), params.in_size);
    let plane = i / (width * height) * u32(params.in_size.x * params.in_size.y);
    var sum = 0.0;
    var weights = 0.0;
    for (var row = first.x; row < end.x; row++) {
        let down = max(1.0 - abs(f32(row) - center.x + 0.5) / reach.x, 0.0);
        for (var column = first.y; column < end.y; column++) {
            let weight = down * max(1.0 - abs(f32(column) - center.y + 0.5) / reach.y, 0.0);
            sum += weight * load_x(plane + u32(row * params.in_size.y + column));
            weights += weight;
        }
    }
    store_out(i, sum / select(weights, 1.0, weights == 0.0));
}
