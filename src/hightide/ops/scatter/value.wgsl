// The value of a point, for an element that lies `own` further on in what the point's place stands for.
// VALUES: they are a tensor; else one, whose bits are in the parameters. T: the type that elements are moved or added in.
#const OF = "point"   // over values
#include "movement/strided_at.wgsl"
#params value: u32 if not VALUES
#const E = "u32" if T == "word" else T
#read values: $T if VALUES

fn value_of(point: u32, own: u32) -> $E {
    #if VALUES
    let at = own + point_at(point);
    #if T == "u32"
    return values[at >> 2u] >> ((at & 3u) * 8u);
    #else
    return load_values(at);
    #end
    #else
    return bitcast<$E>(params.value);
    #end
}
