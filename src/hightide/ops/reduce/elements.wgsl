// The elements of x that make one output: output o starts at kept_at(o), its i-th element lies reduced_at(i) further on.
#params outputs: u32
#params count: u32           // elements joined for one output, at least one
#params first_kept: i32, first_reduced: i32   // dims before these are 1
#params kept_dims: array<vec4<u32>, 2>, kept_strides: array<vec4<u32>, 2>
#params reduced_dims: array<vec4<u32>, 2>, reduced_strides: array<vec4<u32>, 2>
#include "reduce/element.wgsl"

fn kept_at(output: u32) -> u32 {
    var rest = output;
    var at = 0u;
    for (var d = 7; d >= params.first_kept; d--) {
        let size = params.kept_dims[d >> 2u][d & 3];
        at += rest % size * params.kept_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    return at;
}
fn reduced_at(index: u32) -> u32 {
    var rest = index;
    var at = 0u;
    for (var d = 7; d > params.first_reduced; d--) {
        let size = params.reduced_dims[d >> 2u][d & 3];
        at += rest % size * params.reduced_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    let d = params.first_reduced;
    return at + rest * params.reduced_strides[d >> 2u][d & 3];
}
