// The place in x that the index tensors pick for an element o: its own place + sum over them of index(o) * step.
// COUNT index tensors, up to four. A negative index counts from the end; one that the caller gave was checked, others
// are clamped.
#params numel: u32
#params first: i32   // dims before this one are 1
#params dims: array<vec4<u32>, 2>, x_strides: array<vec4<u32>, 2>
#params sizes: vec4<u32>, steps: vec4<u32>   // of the dims that the index tensors pick from
#params strides: array<vec4<u32>, ${2 * COUNT}>   // of the index tensors at o, eight each
#for n in COUNT
#read index$n: i32
#end

fn picked(index: i32, n: u32) -> u32 {
    let size = i32(params.sizes[n]);
    return u32(clamp(select(index, index + size, index < 0), 0, size - 1)) * params.steps[n];
}

fn source(element: u32) -> u32 {
    var rest = element;
    var at = 0u;
    var places = vec4<u32>();   // in the index tensors
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        let index = rest % size;
        rest = rest / size;
        at += index * params.x_strides[d >> 2u][d & 3];
        #for n in COUNT
        places[$n] += index * params.strides[${2 * n} + (d >> 2u)][d & 3];
        #end
    }
    #for n in COUNT
    at += picked(index$n[places[$n]], ${n}u);
    #end
    return at;
}
