// The value of a point, for an element that lies `own` further on in what the point's place stands for.
// VALUES: they are a tensor; else one, whose bits are in the parameters. T: the type that elements are moved or added in.
#params first_point: i32   // dims of points before this one are 1
#params point_dims: array<vec4<u32>, 2>, point_strides: array<vec4<u32>, 2>   // over values
#params value: u32 if not VALUES
#const E = "u32" if T == "word" else T
#read values: $T if VALUES

fn value_of(point: u32, own: u32) -> $E {
    #if VALUES
    var rest = point;
    var at = own;
    for (var d = 7; d >= params.first_point; d--) {
        let size = params.point_dims[d >> 2u][d & 3];
        at += rest % size * params.point_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    #if T == "u32"
    return values[at >> 2u] >> ((at & 3u) * 8u);
    #else
    return load_values(at);
    #end
    #else
    return bitcast<$E>(params.value);
    #end
}
