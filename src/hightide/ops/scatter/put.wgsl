// out = x, with values at the places that pairs name: (place, number of a point), in order.
// One thread per output word: one element, or four bytes (BYTES), so that no two threads write one word. It looks for its
// elements' places among the pairs, by bisection.
// ADD: the values of all points at a place are added to x, in their order; else the last one stands.
// VALUES: they are a tensor; else one, whose bits are in the parameters. T: the type that elements are moved or added in.
#params numel: u32, points: u32
#params first: i32, first_point: i32   // dims before these are 1
#params dims: array<vec4<u32>, 2>, place_strides: array<vec4<u32>, 2>   // of out; dims without indices have place stride 0
#params value_strides: array<vec4<u32>, 2>   // over the dims of out: those with indices have 0
#params point_dims: array<vec4<u32>, 2>, point_strides: array<vec4<u32>, 2>   // of points, over values
#params value: u32 if not VALUES
#const BYTES = T == "u32"
#const E = "u32" if T == "word" else T
#read x: $T
#read pairs: vec2<u32>
#read values: $T if VALUES
#write out: $T

// How many pairs have a place below this one.
fn below(place: u32) -> u32 {
    var low = 0u;
    var high = params.points;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (pairs[middle].x < place) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// The value of a point, for an element that lies at `own` in what the point's place stands for.
fn value_of(point: u32, own: u32) -> $E {
    #if VALUES
    var rest = point;
    var at = own;
    for (var d = 7; d >= params.first_point; d--) {
        let size = params.point_dims[d >> 2u][d & 3];
        at += rest % size * params.point_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    #if BYTES
    return values[at >> 2u] >> ((at & 3u) * 8u);
    #else
    return load_values(at);
    #end
    #else
    return params.value;
    #end
}

// What becomes of an element of x.
fn put(element: u32, before: $E) -> $E {
    var rest = element;
    var place = 0u;
    var own = 0u;
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        let index = rest % size;
        place += index * params.place_strides[d >> 2u][d & 3];
        own += index * params.value_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    #if ADD
    var sum = before;
    for (var n = below(place); n < params.points; n++) {
        if (pairs[n].x != place) { break; }
        sum += value_of(pairs[n].y, own);
    }
    return sum;
    #else
    let n = below(place + 1u);
    if (n == 0u) { return before; }
    let last = pairs[n - 1u];
    if (last.x != place) { return before; }
    return value_of(last.y, own);
    #end
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if BYTES
    if (i * 4u >= params.numel) { return; }
    var word = x[i];
    for (var n = 0u; n < min(4u, params.numel - i * 4u); n++) {
        word = insertBits(word, put(i * 4u + n, word >> (n * 8u)), n * 8u, 8u);
    }
    out[i] = word;
    #else
    if (i >= params.numel) { return; }
    store_out(i, put(i, load_x(i)));
    #end
}
