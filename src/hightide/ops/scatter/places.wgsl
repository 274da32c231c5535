// Where an element of a box lies: (among the places of points, in what a point's values are).
#params first: i32   // dims before this one are 1
#params dims: array<vec4<u32>, 2>, place_strides: array<vec4<u32>, 2>, value_strides: array<vec4<u32>, 2>

fn places(element: u32) -> vec2<u32> {
    var rest = element;
    var at = vec2<u32>();
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        at += rest % size * vec2<u32>(params.place_strides[d >> 2u][d & 3], params.value_strides[d >> 2u][d & 3]);
        rest = rest / size;
    }
    return at;
}
