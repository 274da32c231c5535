// out[plane, p] = the mean or the maximum (and where it is) of x over the window at p.
// One thread per output. A window goes from `start` to before `end`, both cut at the edges of the plane.
// OVER: what a sum is divided by, the elements "inside" the plane, those of the "padded" plane, or a "given" number;
// "" for the maximum. ADAPTIVE: windows divide the plane. INDICES: of the maxima, too.
#params numel: u32, divisor: i32, in_size: vec2<i32>, out_size: vec2<i32>   // height, width
#params window: vec2<i32>, stride: vec2<i32>, padding: vec2<i32>, dilation: vec2<i32>
#read x: f32
#write out: f32
#write indices: i32 if INDICES

#if not OVER
fn is_nan(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}
// WGSL has no literal for it.
fn minus_infinity() -> f32 {
    return bitcast<f32>(0xff800000u + params.numel * 0u);
}
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let width = u32(params.out_size.y);
    let at = vec2<i32>(i32(i / width % u32(params.out_size.x)), i32(i % width));
    let plane = i / width / u32(params.out_size.x) * u32(params.in_size.x * params.in_size.y);
    #if ADAPTIVE
    let start = at * params.in_size / params.out_size;
    let end = ((at + 1) * params.in_size + params.out_size - 1) / params.out_size;
    #else
    let first = at * params.stride - params.padding;
    let start = first + (max(-first, vec2<i32>()) + params.dilation - 1) / params.dilation * params.dilation;
    // `past` is where the window ends in the padded plane.
    let past = min(first + (params.window - 1) * params.dilation + 1, params.in_size + params.padding);
    let end = min(past, params.in_size);
    #end
    #if OVER
    var total = 0.0;
    #else
    var best = minus_infinity();
    var best_at = start.x * params.in_size.y + start.y;
    #end
    for (var row = start.x; row < end.x; row += params.dilation.x) {
        for (var column = start.y; column < end.y; column += params.dilation.y) {
            let place = row * params.in_size.y + column;
            let value = load_x(plane + u32(place));
            #if OVER
            total += value;
            #else
            // As in torch: the first of equal maxima, and NaN above all.
            if (value > best || is_nan(value)) { best = value; best_at = place; }
            #end
        }
    }
    #if OVER == "inside"
    let count = max(max(end.x - start.x, 0) * max(end.y - start.y, 0), 1);
    #elif OVER == "padded"
    let count = max((past.x - first.x) * (past.y - first.y), 1);
    #elif OVER == "given"
    let count = params.divisor;   // not 0, but perhaps below
    #end
    #if OVER
    store_out(i, total / f32(count));
    #else
    store_out(i, best);
    #end
    #if INDICES
    indices[i] = best_at;
    #end
}
