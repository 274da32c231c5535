// The elements of x that make one output: output o starts at kept_at(o), its i-th element lies reduced_at(i) further on.
#params outputs: u32
#params count: u32           // elements joined for one output, at least one
#params reduced_first: i32   // dims before this one are 1
#params reduced_dims: array<vec4<u32>, 2>, reduced_strides: array<vec4<u32>, 2>
#include "reduce/element.wgsl"
#const OF = "kept"
#include "movement/strided_at.wgsl"

fn reduced_at(index: u32) -> u32 {
    var rest = index;
    var at = 0u;
    for (var d = 7; d > params.reduced_first; d--) {
        let size = params.reduced_dims[d >> 2u][d & 3];
        at += rest % size * params.reduced_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    let d = params.reduced_first;
    return at + rest * params.reduced_strides[d >> 2u][d & 3];
}
