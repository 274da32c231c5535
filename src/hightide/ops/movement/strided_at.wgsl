// ${OF}_at(element): where an element of a box lies, by the strides of the box's dims; those before the first are 1.
#params ${OF}_first: i32, ${OF}_dims: array<vec4<u32>, 2>, ${OF}_strides: array<vec4<u32>, 2>

fn ${OF}_at(element: u32) -> u32 {
    var rest = element;
    var at = 0u;
    for (var d = 7; d >= params.${OF}_first; d--) {
        let size = params.${OF}_dims[d >> 2u][d & 3];
        at += rest % size * params.${OF}_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    return at;
}
